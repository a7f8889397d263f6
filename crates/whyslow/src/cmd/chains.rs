//! `whyslow chains`: the wait chains of this host, each from the waiter to the task or device at its end.

use std::io::Write;

use anyhow::Result;
use whyslow_report::chains;

use crate::cli::{InputArgs, OutputArgs, SaveArgs};
use crate::outcome::Outcome;
use crate::watch::{Look, watch};
use crate::watchdog;

/// Arguments of `whyslow chains`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    save: SaveArgs,
}

/// Prints the chains of a window of the whole host, or of a recording. A reported chain counts as found: status 1.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    watchdog::begin(Outcome::CouldNotLook.status());
    args.save.must_be_writable()?;
    // A saved recording is for `whyslow report`, which needs more than waits.
    let only_waits = !args.save.keeps_recording();
    let look = |window| watch(Look { only_waits, ..Look::at_the_host(window) });
    let recording = args.input.recording(look)?;
    let reported = args.output.compared_with(None).tell_as(chains, &recording, None, out);
    args.save.keep(&recording)?;
    let document = reported?;
    Ok(match document.chains.is_empty() {
        false => Outcome::Found,
        true if document.why_waits_unseen().is_some() => Outcome::CouldNotLook,
        true => Outcome::Quiet,
    })
}
