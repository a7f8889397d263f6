//! `whyslow record -o FILE`: records now, for a report later.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use whyslow_model::{Bytes, seconds};
use whyslow_report::safe::plain;

use whyslow_probe::priority;

use crate::cli::{WindowArgs, can_be_written};
use crate::out::say;
use crate::outcome::Outcome;
use crate::watch::{Look, watch};
use crate::{redact, store, watchdog};

/// Arguments of `whyslow record`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    window: WindowArgs,
    /// File to write (a tar compressed with zstd), for `whyslow report FILE`
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace the names of tasks, cgroups, users, files, network peers and functions, and all command lines, by made-up words;
    /// process and user ids, other numbers and times stay
    #[arg(long)]
    redact: bool,
}

/// Records a window and saves it.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    watchdog::begin(Outcome::CouldNotLook.status());
    can_be_written("save recording", &args.output)?;
    let mut recording = watch(Look::at_the_host(args.window.window))?;
    watchdog::done();
    priority::as_it_was();
    if args.redact {
        redact::redact(&mut recording);
    }
    store::save(&recording, &args.output)?;
    let size =
        std::fs::metadata(&args.output).map_or_else(|_| String::new(), |m| format!(", {}", Bytes(m.len())));
    let file = plain(&args.output.to_string_lossy());
    let window = seconds(recording.window());
    say(out, &format!("{file}: {window} recorded{size}; `whyslow report {file}` reads it\n"))?;
    Ok(Outcome::Quiet)
}
