//! `whyslow [exam]`: examine this host now.

use std::io::Write;

use anyhow::Result;

use crate::cli::{BaselineArgs, OutputArgs, SaveArgs, SubjectArgs, WindowArgs, WordArg, must_be_here};
use crate::outcome::Outcome;
use crate::watch::{Look, watch};
use crate::watchdog;

/// Arguments of `whyslow exam`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    baseline: BaselineArgs,
    #[command(flatten)]
    subject: SubjectArgs,
    #[command(flatten)]
    word: WordArg,
    #[command(flatten)]
    save: SaveArgs,
}

/// Records a window, examines it and prints the answer. Files are written after the answer: a full disk costs the files only.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    watchdog::begin(Outcome::CouldNotLook.status());
    let focus = match args.subject.focus() {
        Some(focus) => must_be_here(&focus).map(|()| Some(focus))?,
        None => args.word.focus()?,
    };
    args.save.must_be_writable()?;
    let baseline = args.baseline.open()?;
    let recording = watch(Look::at_the_host(args.window.window))?;
    let reported = args.output.compared_with(baseline.as_ref()).tell(&recording, focus.as_ref(), out);
    args.save.keep(&recording)?;
    Ok(Outcome::of(&reported?))
}
