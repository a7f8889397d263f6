//! `whyslow` names the process, lock, quota or device that slows a Linux host.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use whyslow::cli::{self, Cli};
use whyslow::outcome::Outcome;
use whyslow_report::safe::plain;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(reported) => {
            let _ = reported.print();
            return ExitCode::from(cli::status(&reported));
        }
    };
    let outcome = cli.run(&mut io::stdout().lock()).unwrap_or_else(|error| {
        // The text of an error may contain a file's or a process's name: `plain` makes it safe for a terminal. A closed stderr is no
        // reason to panic.
        let _ = writeln!(io::stderr(), "whyslow: {}", plain(&format!("{error:#}")));
        Outcome::CouldNotLook
    });
    ExitCode::from(outcome.status())
}
