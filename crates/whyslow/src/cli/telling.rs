//! From a recording to the printed answer: the same for every verb that reports.

use std::env;
use std::io::{self, IsTerminal as _, Write};

use anyhow::Result;
use whyslow_model::Recording;
use whyslow_report::{Style, json, text};

use super::SubjectArgs;
use crate::out::{note, say};
use crate::outcome::Outcome;

/// How to tell it, and about whom.
#[derive(Debug, Clone, clap::Args)]
pub struct Telling {
    /// Print JSON (docs/json.md describes it) instead of text
    #[arg(long)]
    json: bool,
    /// Say everything: each "cannot tell" with its reason, all that was not seen, every cgroup
    #[arg(short, long)]
    verbose: bool,
    /// About whom.
    #[command(flatten)]
    pub subject: SubjectArgs,
}

impl Telling {
    /// Examine and print.
    pub fn tell(&self, recording: &Recording, out: &mut dyn Write) -> Result<Outcome> {
        let mut document = whyslow_analyze::examine(recording);
        if let Some(focus) = self.subject.focus() {
            whyslow_analyze::focus::focus(recording, &mut document, &focus)?;
        }
        if let Some(why) = &recording.torn {
            note(&format!("the recording is torn: {why}; this is the report up to there"));
        }
        if self.json {
            say(out, &json(&document))?;
        } else {
            say(out, &text(&document, &Style { colour: wants_colour(), verbose: self.verbose }))?;
        }
        // A host of which nothing at all was seen has not been looked at.
        if recording.tables.tasks.is_none() && recording.frames.is_empty() {
            return Ok(Outcome::CouldNotLook);
        }
        Ok(Outcome::of(&document))
    }
}

/// Colour is for a terminal whose user did not say no (no-color.org: `NO_COLOR` set to anything but nothing).
fn wants_colour() -> bool {
    let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !set("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb")
}
