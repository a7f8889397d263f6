//! `whyslow doctor`: the capabilities of this kernel, and what whyslow cannot see without the missing ones.

use std::io::Write;

use anyhow::Result;
use whyslow_probe::Capability;
use whyslow_report::{json, paragraph};

use crate::out::say;
use crate::outcome::Outcome;
use crate::watchdog;

/// Arguments of `whyslow doctor`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Print JSON: a list with one object per capability
    #[arg(long)]
    json: bool,
}

/// Prints one paragraph per capability.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    watchdog::begin(Outcome::CouldNotLook.status());
    let capabilities = whyslow_probe::doctor(&mut watchdog::step);
    watchdog::done();
    say(out, &if args.json { json(&capabilities) } else { page(&capabilities) })?;
    Ok(Outcome::Quiet)
}

fn page(capabilities: &[Capability]) -> String {
    let mut page = String::new();
    for capability in capabilities {
        let mark = if capability.ok { "ok    " } else { "lost  " };
        page.push_str(&paragraph(mark, &format!("{}: {}", capability.what, capability.why)));
        if !capability.ok {
            let lost =
                if capability.lost.is_empty() { "nothing that this version uses" } else { capability.lost };
            page.push_str(&paragraph("      lost: ", lost));
        }
    }
    let ok = capabilities.iter().filter(|capability| capability.ok).count();
    page.push_str(&format!("\n{ok} of {} capabilities are available.\n", capabilities.len()));
    page.push_str(&paragraph("", &whyslow_probe::claim()));
    page
}
