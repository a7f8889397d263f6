//! `whyslow explain RULE`: what a rule finds, how, and its limits.

use std::io::Write;

use anyhow::{Result, anyhow};
use whyslow_analyze::rules::{ALL, Rule};
use whyslow_report::paragraph;

use crate::out::say;
use crate::outcome::Outcome;
use crate::suggest::suggest;

/// Arguments of `whyslow explain`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Id of the rule, as `whyslow rules` lists it
    rule: String,
}

/// Prints the texts of the rule.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    let rule = ALL.iter().find(|rule| rule.id == args.rule).ok_or_else(|| unknown(&args.rule))?;
    say(out, &words(rule))?;
    Ok(Outcome::Quiet)
}

/// Words that the rules share.
const TERMS: &str = "Window: the time that whyslow observed. Counterfactual: the same window without the cause. A sleep absorbs a wait if it gets shorter \
    when the wait before it gets longer: the task then loses nothing. Task tree: a cgroup, a session, or a process with its children, as one \
    user of the host. Cause: a loss of time was measured. Risk: no loss was measured.";

fn words(rule: &Rule) -> String {
    let says = if rule.can_be_cause { "causes, with the time lost, and risks" } else { "risks only" };
    let parts = [
        ("what", rule.what),
        ("how", rule.how),
        ("limits", rule.limits),
        ("sources", rule.sources),
        ("says", says),
        ("terms", TERMS),
    ];
    let mut page = paragraph("", &format!("{}: {}", rule.id, rule.question));
    for (label, text) in parts {
        page.push('\n');
        // The texts are wrapped in the source of the rule; only an empty line is a paragraph break.
        for (at, part) in text.split("\n\n").enumerate() {
            let label = if at == 0 { label } else { "" };
            page.push_str(&paragraph(&format!("{label:<9}"), &part.replace('\n', " ")));
        }
    }
    page
}

fn unknown(asked: &str) -> anyhow::Error {
    let meant = suggest(asked, ALL.iter().map(|rule| rule.id));
    let hint = meant.map(|id| format!(" (did you mean {id}?)")).unwrap_or_default();
    anyhow!("cannot explain {asked}: there is no such rule{hint}; `whyslow rules` lists them")
}
