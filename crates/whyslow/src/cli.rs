//! The command line: verbs, their arguments, and the help that teaches them.

mod baseline_args;
mod following;
mod input;
mod output_args;
mod ping_args;
mod save_args;
mod subject;
mod window;

use std::io::Write;

use anyhow::Result;
use clap::{CommandFactory as _, Parser, Subcommand};

pub use baseline_args::BaselineArgs;
pub use following::Following;
pub use input::InputArgs;
pub use output_args::OutputArgs;
pub use ping_args::PingArgs;
pub use save_args::{FlameArg, SaveArgs, can_be_written};
pub use subject::{SubjectArgs, WordArg, must_be_here};
pub use window::{LENGTH as WINDOW, WindowArgs, parse as window, slow};

use crate::cmd::{
    attach, blocked, chains, completions, cpu, doctor, exam, explain, jobs, locks, man, net, record, report,
    rules, run, work,
};
use crate::launch::OUR_FAILURE;
use crate::outcome::Outcome;

/// Below the help of `whyslow`, and in its man page.
pub const EXAMPLES: &str = "\
Examples:
  sudo whyslow                          examine this host for 10 s
  sudo whyslow nginx                    why is this service slow?
  sudo whyslow 4242 -v                  why is this process slow? (all details)
  sudo whyslow run -- git clone URL     run a command: where does its time go?
  sudo whyslow attach 4242 --for 30s    follow a running process for 30 s
  sudo whyslow chains                   list the wait chains of this host
  sudo whyslow cpu                      measure the speed of each CPU
  sudo whyslow net --watch --for 60s    list the packets that waited for their CPU
  sudo whyslow net cache7 --tcp 80      does that host stall, and for how long?
  sudo whyslow record --for 30s -o host.why
  whyslow report host.why               later, on any host, without root
  whyslow explain cpu-quota             how this rule works, and its limits
  whyslow doctor                        what this kernel lets whyslow measure";

/// Below the help of `whyslow`, and in its man page: what each exit status means.
pub const STATUS: &str = "\
Exit status:
  0  no cause found (risks and \"cannot tell\" alone are 0)
  1  at least one cause found
  2  whyslow could not look, or could not do what was requested

  chains          1 if it reports a chain, else 0 or 2
  cpu             1 if a slow CPU cost a task time, else 0 or 2
  attach, blocked, jobs, locks, net, work
                  0 if they could look, else 2;
                  net HOST: 2 also if no answer came
  run             the exit status of the command, or
                  128 + n if signal n ended the command
                  128 + n if whyslow got signal n twice (Ctrl-C: 130);
                          the command goes on
                  125     if whyslow failed
                  126     if the command could not be executed
                  127     if the command was not found";

/// whyslow names the process, lock, quota or device that slows a Linux host, with the time lost and a command to verify it
///
/// Without a verb, whyslow observes this host for 10 seconds. It reports where the time went, which tasks lost time and how much,
/// what caused each loss, how to verify the cause by hand, and what would help. It changes nothing on the host. Run it as root:
/// BPF needs root, and without BPF whyslow reports only what files in /proc and /sys show.
#[derive(Debug, Parser)]
#[command(
    name = "whyslow",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_value_name = "VERB",
    subcommand_help_heading = "Verbs",
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
    /// Examine this host (the default)
    Exam(exam::Args),
    /// Run a command, and report where its wall time went and what made it wait
    Run(run::Args),
    /// Follow running processes, and report where their wall time goes and what makes them wait
    Attach(attach::Args),
    /// List the wait chains of this host, each from the waiter to the culprit
    Chains(chains::Args),
    /// List the contended kernel locks of this host, with their waiters and holders
    Locks(locks::Args),
    /// List the tasks that wait in D state, by samples, also those that began to wait before: what they wait for, and the holders behind them
    Blocked(blocked::Args),
    /// List the short-lived jobs of each process: their wall time, CPU time and waits before, in and after the program, and the cgroups and namespaces
    /// that they make
    Jobs(jobs::Args),
    /// List the work items of the kernel, with their time in the queue and at work, and the RCU grace periods that threads waited for
    Work(work::Args),
    /// Ask another host and report its stalls; list the packets that waited for their CPU here, and what kept that CPU from them
    Net(net::Args),
    /// Measure the speed of each CPU, and report why a CPU is slow
    Cpu(cpu::Args),
    /// Record a window of this host to a file, for `whyslow report`
    Record(record::Args),
    /// Examine a recording, on any host, without root
    Report(report::Args),
    /// List the rules: the questions that whyslow answers about a host
    Rules(rules::Args),
    /// Explain a rule: what it finds, how, and its limits
    Explain(explain::Args),
    /// List the capabilities of this kernel, and what whyslow cannot see without the missing ones
    Doctor(doctor::Args),
    /// Print a shell completion script
    Completions(completions::Args),
    /// Print the man page (roff)
    Man,
}

impl Cli {
    /// Runs the verb, and writes the answer to `out`.
    pub fn run(&self, out: &mut dyn Write) -> Result<Outcome> {
        match &self.verb {
            None => exam::run(&self.exam, out),
            Some(Verb::Exam(args)) => exam::run(args, out),
            Some(Verb::Run(args)) => Ok(run::run(args, out)),
            Some(Verb::Attach(args)) => attach::run(args, out),
            Some(Verb::Chains(args)) => chains::run(args, out),
            Some(Verb::Locks(args)) => locks::run(args, out),
            Some(Verb::Blocked(args)) => blocked::run(args, out),
            Some(Verb::Jobs(args)) => jobs::run(args, out),
            Some(Verb::Work(args)) => work::run(args, out),
            Some(Verb::Net(args)) => net::run(args, out),
            Some(Verb::Cpu(args)) => cpu::run(args, out),
            Some(Verb::Record(args)) => record::run(args, out),
            Some(Verb::Report(args)) => report::run(args, out),
            Some(Verb::Rules(args)) => rules::run(args, out),
            Some(Verb::Explain(args)) => explain::run(args, out),
            Some(Verb::Doctor(args)) => doctor::run(args, out),
            Some(Verb::Completions(args)) => completions::run(args, out),
            Some(Verb::Man) => man::run(out),
        }
    }
}

/// The names of all verbs.
fn verbs() -> Vec<String> {
    Cli::command().get_subcommands().map(|verb| verb.get_name().to_owned()).collect()
}

/// The exit status for an invalid command line, and for a request for help. An invalid `run` is 125: 2 may be the command's own status.
#[must_use]
pub fn status(reported: &clap::Error) -> u8 {
    let is_run = std::env::args_os().nth(1).is_some_and(|verb| verb == "run");
    match reported.exit_code() {
        0 => 0,
        _ if is_run => OUR_FAILURE,
        _ => Outcome::CouldNotLook.status(),
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
        assert!(Cli::try_parse_from(["whyslow", "nginx", "--pid", "1"]).is_err());
    }

    #[test]
    fn a_word_is_a_subject_unless_it_is_a_verb() {
        let is_exam = |args: &[&str]| Cli::try_parse_from(args).unwrap().verb.is_none();
        assert!(is_exam(&["whyslow", "nginx", "--for", "3s"]) && is_exam(&["whyslow", "4242"]));
        assert!(!is_exam(&["whyslow", "chains"]));
    }
}
