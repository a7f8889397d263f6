//! The command line: verbs, their arguments, and the help that teaches them.

mod subject;
mod telling;
mod window;

use std::io::Write;

use anyhow::Result;
use clap::{Parser, Subcommand};

pub use subject::SubjectArgs;
pub use telling::Telling;
pub use window::WindowArgs;

use crate::cmd::{completions, doctor, exam, explain, man, record, report, rules};
use crate::outcome::Outcome;

/// Below the help of `whyslow`, and in its man page.
pub const EXAMPLES: &str = "\
Examples:
  sudo whyslow                          look for 10 s, say what is slow and why
  sudo whyslow --for 3s --unit nginx    why is this service slow?
  sudo whyslow --pid 4242 -v            why is this process slow? with all reasons
  sudo whyslow record --for 30s -o host.why
  whyslow report host.why               anywhere, later, without root
  whyslow explain cpu-quota             how a cause is found, and where it is blind
  whyslow doctor                        what this kernel lets us see";

/// What the exit status means.
pub const STATUS: &str = "\
Exit status:
  0  looked, and found no cause (risks and \"cannot tell\" alone are 0)
  1  found at least one cause
  2  could not look, or could not do what was asked";

/// Ask a Linux host why it is slow
///
/// Without a verb, whyslow examines this host: it looks for a window of 10 seconds and says where the time went, who
/// lost how much of it to what, how to check that by hand, and what would help. It changes nothing.
#[derive(Debug, Parser)]
#[command(
    name = "whyslow",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_value_name = "VERB",
    subcommand_help_heading = "Verbs",
    disable_help_subcommand = true,
    max_term_width = 80,
    after_help = format!("{EXAMPLES}\n\n{STATUS}")
)]
pub struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    exam: exam::Args,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Examine this host (this is what happens without a verb, too)
    Exam(exam::Args),
    /// Record a window of this host into a file, to be reported later
    Record(record::Args),
    /// Report a recording
    Report(report::Args),
    /// List the questions that are asked of a host
    Rules,
    /// Explain one rule: what it finds, how, and where it is blind
    Explain(explain::Args),
    /// Show what this kernel lets us see, and what is lost without the rest
    Doctor,
    /// Print completions for a shell
    Completions(completions::Args),
    /// Print the man page
    Man,
}

impl Cli {
    /// Do what was asked; the answer goes to `out`.
    pub fn run(&self, out: &mut dyn Write) -> Result<Outcome> {
        match &self.verb {
            None => exam::run(&self.exam, out),
            Some(Verb::Exam(args)) => exam::run(args, out),
            Some(Verb::Record(args)) => record::run(args, out),
            Some(Verb::Report(args)) => report::run(args, out),
            Some(Verb::Rules) => rules::run(out),
            Some(Verb::Explain(args)) => explain::run(args, out),
            Some(Verb::Doctor) => doctor::run(out),
            Some(Verb::Completions(args)) => completions::run(args, out),
            Some(Verb::Man) => man::run(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn bare_and_exam_take_the_same_options() {
        for args in
            [["whyslow", "--for", "3s", "--json"].as_slice(), &["whyslow", "exam", "--for", "3s", "--json"]]
        {
            assert!(Cli::try_parse_from(args).is_ok(), "{args:?}");
        }
    }

    #[test]
    fn only_one_subject_can_be_asked_about() {
        assert!(Cli::try_parse_from(["whyslow", "--pid", "1", "--unit", "x"]).is_err());
        assert!(Cli::try_parse_from(["whyslow", "--pid", "0"]).is_err());
        assert!(Cli::try_parse_from(["whyslow", "--pid", "x"]).is_err());
    }
}
