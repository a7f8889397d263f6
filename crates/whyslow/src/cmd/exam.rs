//! `whyslow [exam]`: look at this host now.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;

use super::can_be_written;
use crate::cli::{Telling, WindowArgs};
use crate::outcome::Outcome;
use crate::store;
use crate::watch::watch;

/// Arguments of `whyslow exam`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    telling: Telling,
    /// Save the recording, too, for `whyslow report FILE`
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Record a window, examine it, print it. The answer comes before the file: a full disk costs the file only.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    args.telling.subject.must_be_here()?;
    if let Some(file) = &args.output {
        can_be_written(file)?;
    }
    let recording = watch(args.window.window);
    let told = args.telling.tell(&recording, out);
    if let Some(file) = &args.output {
        store::save(&recording, file)?;
    }
    told
}
