//! `whyslow locks`: the kernel locks that tasks waited for.

use std::io::Write;

use anyhow::Result;
use whyslow_report::locks;

use crate::cli::{InputArgs, OutputArgs};
use crate::outcome::Outcome;
use crate::watch::{Look, watch};

/// Arguments of `whyslow locks`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Prints the contended locks of a window of the whole host, or of a recording. A contended lock is no cause yet: status 0.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    let recording = args.input.recording(|window| watch(Look::at_the_host(window)))?;
    let document = args.output.compared_with(None).tell_as(locks, &recording, None, out)?;
    let unseen = document.locks.is_empty() && document.why_waits_unseen().is_some();
    Ok(if unseen { Outcome::CouldNotLook } else { Outcome::Quiet })
}
