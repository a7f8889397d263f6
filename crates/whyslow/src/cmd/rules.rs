//! `whyslow rules`: the questions that are asked of a host.

use std::io::Write;

use anyhow::Result;
use whyslow_analyze::rules::ALL;
use whyslow_report::paragraph;

use crate::out::say;
use crate::outcome::Outcome;

/// One line a rule.
pub fn run(out: &mut dyn Write) -> Result<Outcome> {
    let width = ALL.iter().map(|rule| rule.id.len()).max().unwrap_or(0);
    let mut page = String::new();
    for rule in ALL {
        let says = if rule.can_be_cause { "" } else { " (risks only)" };
        page.push_str(&paragraph(&format!("{:width$}  ", rule.id), &format!("{}{says}", rule.question)));
    }
    page.push_str("\n`whyslow explain RULE` says how one is answered, and where it is blind.\n");
    say(out, &page)?;
    Ok(Outcome::Quiet)
}
