//! `whyslow completions SHELL`

use std::io::Write;

use anyhow::Result;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::out::say;
use crate::outcome::Outcome;

/// Arguments of `whyslow completions`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Shell to print the script for
    shell: Shell,
}

/// Prints the script for the shell.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "whyslow", &mut script);
    say(out, &String::from_utf8_lossy(&script))?;
    Ok(Outcome::Quiet)
}
