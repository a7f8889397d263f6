//! `whyslow doctor`: what this kernel lets us see, and what is lost without the rest.

use std::io::Write;

use anyhow::Result;
use whyslow_report::paragraph;

use crate::ending;
use crate::out::say;
use crate::outcome::Outcome;

/// One paragraph a rung.
pub fn run(out: &mut dyn Write) -> Result<Outcome> {
    ending::begin(Outcome::CouldNotLook.status());
    let rungs = whyslow_probe::doctor(&mut ending::step);
    ending::done();
    let mut page = String::new();
    for rung in &rungs {
        let mark = if rung.ok { "ok    " } else { "lost  " };
        page.push_str(&paragraph(mark, &format!("{}: {}", rung.what, rung.why)));
        if !rung.ok {
            let lost = if rung.lost.is_empty() { "nothing that this version uses" } else { rung.lost };
            page.push_str(&paragraph("      lost: ", lost));
        }
    }
    let ok = rungs.iter().filter(|rung| rung.ok).count();
    page.push_str(&format!("\n{ok} of {} rungs are there.\n", rungs.len()));
    page.push_str(&paragraph("", &whyslow_probe::claim()));
    say(out, &page)?;
    Ok(Outcome::Quiet)
}
