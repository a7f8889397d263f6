//! `whyslow report FILE`: what a recording says.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;

use crate::cli::{BaselineArgs, FlameArg, OutputArgs, SubjectArgs};
use crate::outcome::Outcome;
use crate::store;

/// Arguments of `whyslow report`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Recording: a file, a folder that holds an unpacked recording or copies of /proc and /sys, or - for standard input
    #[arg(value_name = "FILE")]
    recording: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    baseline: BaselineArgs,
    #[command(flatten)]
    subject: SubjectArgs,
    #[command(flatten)]
    flame: FlameArg,
}

/// Opens the recording, examines it and prints the answer.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    args.flame.must_be_writable()?;
    let baseline = args.baseline.open()?;
    let recording = store::open(&args.recording)?;
    let reported =
        args.output.compared_with(baseline.as_ref()).tell(&recording, args.subject.focus().as_ref(), out);
    args.flame.keep(&recording)?;
    let reported = reported?;
    let outcome = Outcome::of(&reported);
    // The process ends here, and the kernel frees all memory at once; dropping a million rows one by one takes longer.
    std::mem::forget((recording, reported));
    Ok(outcome)
}
