//! `whyslow [exam]`: look at this host now.

use std::io::Write;

use anyhow::Result;

use crate::cli::{BesideArg, Keeping, SubjectArgs, Telling, WindowArgs, outcome};
use crate::ending;
use crate::outcome::Outcome;
use crate::watch::{Look, watch};

/// Arguments of `whyslow exam`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    telling: Telling,
    #[command(flatten)]
    beside: BesideArg,
    #[command(flatten)]
    subject: SubjectArgs,
    #[command(flatten)]
    keeping: Keeping,
}

/// Record a window, examine it, print it. The answer comes before the files: a full disk costs the files only.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    ending::begin(Outcome::CouldNotLook.status());
    args.subject.must_be_here()?;
    args.keeping.must_be_writable()?;
    let baseline = args.beside.open()?;
    let recording = watch(Look::at_the_host(args.window.window))?;
    let told = args.telling.beside(baseline.as_ref()).tell(&recording, args.subject.focus().as_ref(), out);
    args.keeping.keep(&recording)?;
    Ok(outcome(&recording, &told?))
}
