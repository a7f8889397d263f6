//! `whyslow jobs`: processes that began in the window by the process that started them, and what they make and remove.

use std::io::Write;

use anyhow::Result;
use whyslow_model::Probe;
use whyslow_report::jobs;

use crate::cli::{InputArgs, OutputArgs};
use crate::outcome::Outcome;
use crate::watch::{Look, watch};

/// Arguments of `whyslow jobs`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Prints the jobs of a window of the whole host, or of a recording. Slow ones are no cause yet: status 0.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    let recording = args.input.recording(|window| watch(Look::at_the_host(window)))?;
    let document = args.output.compared_with(None).tell_as(jobs, &recording, None, out)?;
    let unseen = document.jobs.is_empty()
        && document.churn.is_empty()
        && document.why_unseen_by(Probe::TaskList).is_some();
    Ok(if unseen { Outcome::CouldNotLook } else { Outcome::Quiet })
}
