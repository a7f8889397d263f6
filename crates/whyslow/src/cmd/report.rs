//! `whyslow report FILE`: what a recording says.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;

use crate::cli::Telling;
use crate::outcome::Outcome;
use crate::store;

/// Arguments of `whyslow report`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A recording, or a folder that one was unpacked to
    #[arg(value_name = "FILE")]
    recording: PathBuf,
    #[command(flatten)]
    telling: Telling,
}

/// Open, examine, print.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    args.telling.tell(&store::open(&args.recording)?, out)
}
