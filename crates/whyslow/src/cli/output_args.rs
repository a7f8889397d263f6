//! From a recording to the printed answer: the same for every verb that reports.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use anyhow::Result;
use whyslow_analyze::focus::Focus;
use whyslow_model::{Document, Recording};
use whyslow_report::{Style, json, json_line, text};

use whyslow_probe::priority;

use crate::out::{note, say};
use crate::{ending, interrupt};

/// What is printed. A new format is a function of `report`, a variant, and its arms here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people
    #[default]
    Text,
    /// For programs: docs/json.md describes it
    Json,
}

/// Whether to colour text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Colour {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    #[default]
    Auto,
    Always,
    Never,
}

/// How to print it.
#[derive(Debug, Clone, clap::Args)]
pub struct OutputArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Format,
    /// Print JSON: the same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Show everything: evidence of what is ruled out, reasons of what cannot be known, every cgroup
    #[arg(short, long)]
    verbose: bool,
    /// Colours and bold text
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", alias = "colour")]
    color: Colour,
}

/// How to print it, and what it is compared with.
#[derive(Debug)]
pub struct Compared<'t> {
    output: &'t OutputArgs,
    baseline: Option<&'t Recording>,
}

impl Compared<'_> {
    /// Examine and print. `focus`: about whom.
    pub fn tell(
        &self,
        recording: &Recording,
        focus: Option<&Focus>,
        out: &mut dyn Write,
    ) -> Result<Document> {
        self.tell_as(text, recording, focus, out)
    }

    /// The same, with the text made by `text`.
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
    /// Compared with `baseline`.
    #[must_use]
    pub fn compared_with<'t>(&'t self, baseline: Option<&'t Recording>) -> Compared<'t> {
        Compared { output: self, baseline }
    }

    /// For a command whose standard output is its own: text to stderr, what programs read as the last line of stdout.
    ///
    /// Nobody can know whether the command's output ended with a newline. One is always written before the document,
    /// so that its line begins at its beginning, and that the command's output, byte for byte, is all before it.
    pub fn tell_beside(&self, recording: &Recording, out: &mut dyn Write) -> Result<()> {
        let document = examine(recording, None, None)?;
        match self.format() {
            Format::Json => say(out, &format!("\n{}", json_line(&document))),
            Format::Text => {
                let page = text(&document, &self.style(&io::stderr()));
                // Whoever closed stderr does not want it.
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
        // As of ls and systemctl: a width that is exported is meant.
        let asked =
            env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|columns| *columns > 0);
        let columns = asked.or_else(|| terminal_size::terminal_size_of(to).map(|(columns, _)| columns.0));
        Style { colour, verbose: self.verbose, columns }
    }
}

fn examine(recording: &Recording, baseline: Option<&Recording>, focus: Option<&Focus>) -> Result<Document> {
    ending::step(c"judging what was seen");
    let mut document = whyslow_analyze::examine_beside(recording, baseline);
    if let Some(focus) = focus {
        whyslow_analyze::focus::focus(recording, &mut document, focus)?;
    }
    // From here on it is whoever reads the answer that we wait for.
    ending::done();
    interrupt::release();
    priority::as_it_was();
    if let Some(why) = &recording.torn {
        note(&format!("the recording is torn: {why}; this is the report up to there"));
    }
    Ok(document)
}

/// Colour is for a user who did not say no (no-color.org: `NO_COLOR` set to anything but nothing).
fn colour_is_welcome() -> bool {
    let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb")
}
