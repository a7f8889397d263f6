//! `whyslow explain RULE`: what a rule finds, how, and where it is blind.

use std::io::Write;

use anyhow::{Result, anyhow};
use whyslow_analyze::rules::{ALL, Rule};
use whyslow_report::paragraph;

use crate::nearest::nearest;
use crate::out::say;
use crate::outcome::Outcome;

/// Arguments of `whyslow explain`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The rule's id, as `whyslow rules` lists it
    rule: String,
}

/// Print the rule's own words.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    let rule = ALL.iter().find(|rule| rule.id == args.rule).ok_or_else(|| unknown(&args.rule))?;
    say(out, &words(rule))?;
    Ok(Outcome::Quiet)
}

fn words(rule: &Rule) -> String {
    let says = if rule.can_be_cause { "causes, with the time lost, and risks" } else { "risks only" };
    let parts = [
        ("what", rule.what),
        ("how", rule.how),
        ("limits", rule.limits),
        ("sources", rule.sources),
        ("says", says),
    ];
    let mut page = paragraph("", &format!("{}: {}", rule.id, rule.question));
    for (label, text) in parts {
        page.push('\n');
        // The rules' words are wrapped in their source; only an empty line is meant as a break.
        for (at, part) in text.split("\n\n").enumerate() {
            let label = if at == 0 { label } else { "" };
            page.push_str(&paragraph(&format!("{label:<9}"), &part.replace('\n', " ")));
        }
    }
    page
}

fn unknown(asked: &str) -> anyhow::Error {
    let meant = nearest(asked, ALL.iter().map(|rule| rule.id));
    let hint = meant.map(|id| format!(" (did you mean {id}?)")).unwrap_or_default();
    anyhow!("cannot explain {asked}: there is no such rule{hint}; `whyslow rules` lists them")
}
