//! `whyslow work`: the kernel's work items, and the RCU grace periods that threads waited for.

use std::io::Write;

use anyhow::Result;
use whyslow_model::Probe;
use whyslow_report::work;

use crate::cli::{InputArgs, OutputArgs};
use crate::outcome::Outcome;
use crate::watch::{Look, watch};

/// Arguments of `whyslow work`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Prints the work items of a window of the whole host, or of a recording. A long one is no cause yet: status 0.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    let recording = args.input.recording(|window| watch(Look::at_the_host(window)))?;
    let document = args.output.compared_with(None).tell_as(work, &recording, None, out)?;
    let unseen = document.works.is_empty() && document.why_unseen_by(Probe::WorkItems).is_some();
    Ok(if unseen { Outcome::CouldNotLook } else { Outcome::Quiet })
}
