//! `whyslow cpu`: what each CPU delivers.

use std::io::Write;

use anyhow::Result;
use whyslow_model::Kind;
use whyslow_report::cpus;

use crate::cli::{BaselineArgs, OutputArgs, SaveArgs, WindowArgs};
use crate::ending;
use crate::outcome::Outcome;
use crate::watch::{Look, watch};

/// Arguments of `whyslow cpu`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Each online CPU runs loops of known length, 24 ms in all. Slow is what takes
1.25 times longer than the median CPU, than the nominal frequency allows,
than in the baseline, or than when nothing interrupts it.

Examples:
  sudo whyslow cpu --for 5s
  sudo whyslow record --for 5s -o good.why      while all is well, or on a twin
  sudo whyslow cpu --baseline good.why")]
pub struct Args {
    #[command(flatten)]
    window: WindowArgs,
    /// Measure isolated and nohz_full CPUs, and those that run real-time tasks, too
    #[arg(long)]
    all_cpus: bool,
    #[command(flatten)]
    baseline: BaselineArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    save: SaveArgs,
}

/// Record a window and print its CPUs. A slow CPU that cost somebody time is something found.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    ending::begin(Outcome::CouldNotLook.status());
    args.save.must_be_writable()?;
    let baseline = args.baseline.open()?;
    let look = Look { all_cpus: args.all_cpus, needs_speeds: true, ..Look::at_the_host(args.window.window) };
    let recording = watch(look)?;
    let reported = args.output.compared_with(baseline.as_ref()).tell_as(cpus, &recording, None, out);
    args.save.keep(&recording)?;
    let document = reported?;
    let is_cause = |f: &whyslow_model::Finding| f.kind == Kind::Cause && f.rule == whyslow_model::SLOW_CPU;
    Ok(match document.cpus.iter().any(|cpu| cpu.not_measured.is_none()) {
        false => Outcome::CouldNotLook,
        true if document.findings.iter().any(is_cause) => Outcome::Found,
        true => Outcome::Quiet,
    })
}
