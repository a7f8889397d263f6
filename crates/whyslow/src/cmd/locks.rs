//! `whyslow locks`: the kernel locks that tasks waited for.

use std::io::Write;

use anyhow::Result;
use whyslow_report::locks;

use crate::cli::{OutputArgs, WindowArgs, outcome};
use crate::outcome::Outcome;
use crate::watch::{Look, watch};

/// Arguments of `whyslow locks`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Record a window of the whole host and print its contended locks. That a lock was contended is no fault yet.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    let recording = watch(Look::at_the_host(args.window.window))?;
    let document = args.output.compared_with(None).tell_as(locks, &recording, None, out)?;
    Ok(match outcome(&recording, &document) {
        Outcome::CouldNotLook => Outcome::CouldNotLook,
        _ => Outcome::Quiet,
    })
}
