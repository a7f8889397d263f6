//! Turns a recording into the printed answer, in the same way for every verb that reports.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use anyhow::Result;
use whyslow_analyze::focus::Focus;
use whyslow_model::{Document, Recording};
use whyslow_report::{Style, json, json_line, text};

use whyslow_probe::priority;

use crate::out::{note, say};
use crate::{interrupt, watchdog};

/// Output format. A new format needs a function in `report`, a variant, and its arms here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Text for people
    #[default]
    Text,
    /// JSON for programs; docs/json.md describes each field
    Json,
}

/// When to colour text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Colour {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    #[default]
    Auto,
    /// Also in a file or a pipe
    Always,
    /// Not even on a terminal
    Never,
}

/// How to print the answer.
#[derive(Debug, Clone, clap::Args)]
pub struct OutputArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Format,
    /// Print JSON; same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Show all details: the evidence for each "ruled out", the reason for each "cannot tell", all cgroups, and lists in full
    #[arg(short, long)]
    verbose: bool,
    /// When to print colours and bold text
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", alias = "colour")]
    color: Colour,
}

/// How to print the answer, and the recording to compare with.
#[derive(Debug)]
pub struct Compared<'t> {
    output: &'t OutputArgs,
    baseline: Option<&'t Recording>,
}

impl Compared<'_> {
    /// Examines the recording and prints the answer. `focus`: the process, cgroup or user that the answer is about.
    pub fn tell(
        &self,
        recording: &Recording,
        focus: Option<&Focus>,
        out: &mut dyn Write,
    ) -> Result<Document> {
        self.tell_as(text, recording, focus, out)
    }

    /// As [`Self::tell`], with the text made by `text`.
    pub fn tell_as(
        &self,
        text: fn(&Document, &Style) -> String,
        recording: &Recording,
        focus: Option<&Focus>,
        out: &mut dyn Write,
    ) -> Result<Document> {
        let document = examine(recording, self.baseline, focus)?;
        let page = match self.output.format() {
            Format::Text => text(&document, &self.output.style(&io::stdout())),
            Format::Json => json(&document),
        };
        say(out, &page)?;
        Ok(document)
    }
}

impl OutputArgs {
    /// These options, with `baseline` to compare with.
    #[must_use]
    pub fn compared_with<'t>(&'t self, baseline: Option<&'t Recording>) -> Compared<'t> {
        Compared { output: self, baseline }
    }

    /// For `run`, where the command owns standard output: text goes to stderr, JSON to the last line of stdout.
    ///
    /// whyslow cannot know whether the command's output ended with a newline. It always writes a newline before the document:
    /// the document then begins a line, and all bytes before that newline are the command's output.
    pub fn tell_beside(&self, recording: &Recording, out: &mut dyn Write) -> Result<()> {
        let document = examine(recording, None, None)?;
        match self.format() {
            Format::Json => say(out, &format!("\n{}", json_line(&document))),
            Format::Text => {
                let page = text(&document, &self.style(&io::stderr()));
                // A caller that closed stderr does not want the text.
                let _ = io::stderr().write_all(page.as_bytes());
                Ok(())
            }
        }
    }

    fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    fn style(&self, to: &(impl IsTerminal + AsFd)) -> Style {
        let colour = match self.color {
            Colour::Auto => to.is_terminal() && colour_is_welcome(),
            Colour::Always => true,
            Colour::Never => false,
        };
        // As in ls and systemctl: an exported COLUMNS overrides the width of the terminal.
        let asked =
            env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|columns| *columns > 0);
        let columns = asked.or_else(|| terminal_size::terminal_size_of(to).map(|(columns, _)| columns.0));
        Style { colour, verbose: self.verbose, columns }
    }
}

fn examine(recording: &Recording, baseline: Option<&Recording>, focus: Option<&Focus>) -> Result<Document> {
    watchdog::step(c"judging what was seen");
    let mut document = whyslow_analyze::examine_beside(recording, baseline);
    if let Some(focus) = focus {
        whyslow_analyze::focus::focus(recording, &mut document, focus)?;
    }
    // From here on whyslow waits only for the reader of the answer: the watchdog must not end it.
    watchdog::done();
    interrupt::release();
    priority::as_it_was();
    if let Some(why) = &recording.torn {
        note(&format!("the recording is torn: {why}; this report covers the part before that"));
    }
    Ok(document)
}

/// A user refuses colour by a `NO_COLOR` that is set and not empty (no-color.org), or by TERM=dumb.
fn colour_is_welcome() -> bool {
    let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb")
}
