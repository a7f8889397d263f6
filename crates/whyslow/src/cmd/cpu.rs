//! `whyslow cpu`: the speed of each CPU.

use std::io::Write;

use anyhow::Result;
use whyslow_model::Kind;
use whyslow_report::cpus;

use crate::cli::{BaselineArgs, OutputArgs, SaveArgs, WindowArgs};
use crate::outcome::Outcome;
use crate::watch::{Look, watch};
use crate::watchdog;

/// Arguments of `whyslow cpu`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Each online CPU runs loops of known length, 24 ms in total. A CPU is
slow if its loops take at least 1.25 times as long as on the median CPU,
as at the nominal frequency, as in the baseline, or as without
interrupts.

Examples:
  sudo whyslow cpu --for 5s
  sudo whyslow record --for 5s -o good.why    while the host is healthy
  sudo whyslow cpu --baseline good.why        later: compare")]
pub struct Args {
    #[command(flatten)]
    window: WindowArgs,
    /// Also measure isolated and nohz_full CPUs, and CPUs that run real-time tasks
    #[arg(long)]
    all_cpus: bool,
    #[command(flatten)]
    baseline: BaselineArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    save: SaveArgs,
}

/// Records a window and prints the CPUs. A slow CPU that cost a task time counts as found: status 1.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    watchdog::begin(Outcome::CouldNotLook.status());
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
