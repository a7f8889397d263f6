//! Boots real kernels, makes real faults on them, and compares what whyslow says with what the victims' clocks say.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

whyslow_faults::may_become_victim!();

#[derive(Parser)]
#[command(name = "lab", about)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Play what a plan says, here
    Stage {
        /// The plan, in the folder that takes what came of it
        plan: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Stage { plan } => lab::stage::play(&plan),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("lab: {err}");
            ExitCode::from(2)
        }
    }
}
