//! `whyslow chains`: who on this host waits for whom, down to the end of each chain.

use std::io::Write;

use anyhow::Result;
use whyslow_report::chains;

use crate::cli::{OutputArgs, SaveArgs, WindowArgs};
use crate::ending;
use crate::outcome::Outcome;
use crate::watch::{Look, watch};

/// Arguments of `whyslow chains`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    save: SaveArgs,
}

/// Record a window of the whole host and print its chains. A chain that is reported is something found.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    ending::begin(Outcome::CouldNotLook.status());
    args.save.must_be_writable()?;
    // What is kept is for `whyslow report`, which asks for more.
    let only_waits = !args.save.keeps_recording();
    let recording = watch(Look { only_waits, ..Look::at_the_host(args.window.window) })?;
    let reported = args.output.compared_with(None).tell_as(chains, &recording, None, out);
    args.save.keep(&recording)?;
    let document = reported?;
    Ok(match document.chains.is_empty() {
        false => Outcome::Found,
        true if document.why_waits_unseen().is_some() => Outcome::CouldNotLook,
        true => Outcome::Quiet,
    })
}
