//! `whyslow net`: the packets that waited for their CPU.

use std::io::Write;

use anyhow::Result;
use whyslow_model::Probe;
use whyslow_report::stalls;

use crate::cli::{OutputArgs, WindowArgs};
use crate::outcome::Outcome;
use crate::watch::{Look, watch};

/// Arguments of `whyslow net`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Watch this host as the receiver: list the packets that waited for their CPU for 5 ms or more, and what ran there
    #[arg(long, required = true)]
    watch: bool,
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Records a window of the whole host and prints its packet stalls. A stall is no cause yet: status 0.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    debug_assert!(args.watch, "the only way to look so far");
    let recording = watch(Look { watches_packets: true, ..Look::at_the_host(args.window.window) })?;
    let document = args.output.compared_with(None).tell_as(stalls, &recording, None, out)?;
    let unseen = document.stalls.is_empty() && document.why_unseen_by(Probe::PacketStalls).is_some();
    Ok(if unseen { Outcome::CouldNotLook } else { Outcome::Quiet })
}
