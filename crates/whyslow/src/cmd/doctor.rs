//! `whyslow doctor`: what this kernel lets us see, and what is lost without the rest.

use std::io::Write;

use anyhow::Result;
use whyslow_report::paragraph;

use crate::ending;
use crate::out::say;
use crate::outcome::Outcome;

/// One paragraph a capability.
pub fn run(out: &mut dyn Write) -> Result<Outcome> {
    ending::begin(Outcome::CouldNotLook.status());
    let capabilities = whyslow_probe::doctor(&mut ending::step);
    ending::done();
    let mut page = String::new();
    for capability in &capabilities {
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
    say(out, &page)?;
    Ok(Outcome::Quiet)
}
