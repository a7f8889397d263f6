//! `whyslow rules`: the questions that whyslow answers about a host.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;
use whyslow_analyze::rules::{ALL, Rule};
use whyslow_report::{json, paragraph};

use crate::out::say;
use crate::outcome::Outcome;

/// Arguments of `whyslow rules`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Print JSON: a list with one object per rule
    #[arg(long)]
    json: bool,
}

/// A rule, as JSON shows it.
#[derive(Serialize)]
struct Row {
    id: &'static str,
    question: &'static str,
    can_be_cause: bool,
    what: &'static str,
    how: &'static str,
    limits: &'static str,
    sources: &'static str,
}

impl From<&'static Rule> for Row {
    fn from(rule: &'static Rule) -> Self {
        let Rule { id, question, can_be_cause, what, how, limits, sources, .. } = *rule;
        Row { id, question, can_be_cause, what, how, limits, sources }
    }
}

/// Prints one line per rule.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome> {
    let page = if args.json { json(&ALL.iter().map(Row::from).collect::<Vec<_>>()) } else { list() };
    say(out, &page)?;
    Ok(Outcome::Quiet)
}

fn list() -> String {
    let width = ALL.iter().map(|rule| rule.id.len()).max().unwrap_or(0);
    let mut page = String::new();
    for rule in ALL {
        let says = if rule.can_be_cause { "" } else { " (risks only)" };
        page.push_str(&paragraph(&format!("{:width$}  ", rule.id), &format!("{}{says}", rule.question)));
    }
    page.push_str("\n`whyslow explain RULE` explains a rule: what it finds, how, and its limits.\n");
    page
}
