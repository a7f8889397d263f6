//! `whyslow blocked`: tasks in D state, by samples: what they wait for, and the holders behind them.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use whyslow_model::{Probe, Recording};
use whyslow_report::{blocked, flame};

use crate::cli::{InputArgs, OutputArgs, can_be_written};
use crate::outcome::Outcome;
use crate::store;
use crate::watch::{Look, watch};

/// Arguments of `whyslow blocked`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Write a flame graph of the samples: the thread, its stack, and the holders behind it
    #[arg(long, value_name = "FILE.svg")]
    flame: Option<PathBuf>,
}

const DRAW: &str = "draw flame graph";

/// Prints the samples of a window of the whole host, or of a recording. That tasks wait is no cause yet: status 0.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    args.flame.as_deref().map_or(Ok(()), |file| can_be_written(DRAW, file))?;
    let recording = args.input.recording(|window| watch(Look::at_the_host(window)))?;
    let document = args.output.compared_with(None).tell_as(blocked, &recording, None, out)?;
    if document.blocked.is_none() && document.why_unseen_by(Probe::BlockedTasks).is_some() {
        return Ok(Outcome::CouldNotLook);
    }
    args.flame.as_deref().map_or(Ok(()), |file| store::put(&drawn(&recording)?, file, DRAW))?;
    Ok(Outcome::Quiet)
}

fn drawn(recording: &Recording) -> Result<String> {
    let picture = whyslow_analyze::blocked_picture(recording);
    Ok(flame(&picture.title, &picture.subtitle, &picture.lines)?)
}
