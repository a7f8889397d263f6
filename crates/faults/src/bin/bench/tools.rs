//! The tools: whyslow's own, and other tools for the same questions.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub struct Tool {
    pub name: &'static str,
    pub words: &'static str,
    /// Another program; `None`: whyslow.
    pub program: Option<&'static str>,
    pub args: &'static [&'static str],
    pub started: Started,
    /// CPU ratio that the tool must stay below, for each load.
    pub bar: fn(&str) -> Option<f64>,
    /// Share of the load's size that the tool gets, in percent: some tools are slow.
    pub percent: u64,
}

/// How a tool comes to a load.
#[derive(Clone, Copy)]
pub enum Started {
    /// The tool observes the whole host while the load runs.
    Beside(Looks),
    /// The tool starts the load: the command follows the tool's arguments.
    Before,
}

/// How the bench knows that a tool has begun to observe.
#[derive(Clone, Copy)]
pub enum Looks {
    /// The tool says so on stderr.
    Says(&'static str),
    /// The tool has attached its BPF programs.
    Links,
}

/// Other tools get so many times fewer pairs: they have no bar, and the time is better spent on our own tools.
pub const FEWER_FOR_OTHERS: usize = 5;

const HOST: Started = Started::Beside(Looks::Says("looking, "));

pub const TOOLS: [Tool; 9] = [
    Tool {
        name: "chains",
        words: "whyslow chains",
        program: None,
        args: &["chains", "--json", "--for", "600s"],
        started: HOST,
        bar: burst,
        percent: 100,
    },
    Tool {
        name: "exam",
        words: "whyslow exam",
        program: None,
        args: &["exam", "--json", "--for", "600s"],
        started: HOST,
        bar: burst,
        percent: 100,
    },
    Tool {
        name: "run",
        words: "whyslow run",
        program: None,
        // Root also under sudo: the load runs as the same user as alone.
        args: &["run", "--json", "--as-root", "--"],
        started: Started::Before,
        bar: run,
        percent: 100,
    },
    peer("strace", "strace -c -f", &["-c", "-f", "-o", "/dev/null"], Started::Before, 10),
    peer("perf", "perf trace -s", &["trace", "-s", "-o", "/dev/null", "--"], Started::Before, 5),
    Tool {
        name: "perf-sched",
        ..peer(
            "perf",
            "perf sched record",
            &["sched", "record", "-o", "/dev/null", "--"],
            Started::Before,
            100,
        )
    },
    peer("bpftrace", "bpftrace off-CPU", &["-e", OFF_CPU], Started::Beside(Looks::Links), 100),
    // The next two are of libbpf-tools.
    peer("offcputime", "offcputime", &[], Started::Beside(Looks::Links), 100),
    peer("syscount", "syscount -L", &["-L"], Started::Beside(Looks::Links), 100),
];

/// Histogram of times between two runs of a thread, as bpftrace's users write it.
const OFF_CPU: &str = "tracepoint:sched:sched_switch { @off[args->prev_pid] = nsecs; $since = @off[args->next_pid]; \
    if ($since) { @usecs = hist((nsecs - $since) / 1000); delete(@off[args->next_pid]); } }";

const fn peer(
    name: &'static str,
    words: &'static str,
    args: &'static [&'static str],
    started: Started,
    percent: u64,
) -> Tool {
    Tool { name, words, program: Some(name), args, started, bar: none, percent }
}

/// Two empty hooks in the scheduler alone cost 1.04 on the ping-pong, runqlat 1.14.
fn burst(load: &str) -> Option<f64> {
    Some(if load == "pingpong" { 1.10 } else { 1.05 })
}

/// `syscount -L` costs 2.9 on this load, and does not see files.
fn run(load: &str) -> Option<f64> {
    (load == "dd").then_some(2.9)
}

fn none(_: &str) -> Option<f64> {
    None
}

impl Tool {
    /// The path of the tool, or why the bench cannot measure it.
    pub fn find(&self, whyslow: &Path) -> Result<PathBuf, &'static str> {
        match self.program {
            Some(name) => on_path(name).ok_or("not installed"),
            None if self.knows_verb(whyslow) => Ok(whyslow.to_owned()),
            None => Err("this whyslow has no such verb"),
        }
    }

    fn knows_verb(&self, whyslow: &Path) -> bool {
        let Some(verb) = self.args.first() else { return false };
        let help =
            Command::new(whyslow).args([verb, "--help"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        help.is_ok_and(|status| status.success())
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::LOADS;

    #[test]
    fn the_whole_host_has_a_bar_on_every_load_and_run_has_one_on_dd() {
        for load in &LOADS {
            let bars: Vec<_> =
                TOOLS.iter().filter_map(|tool| Some((tool.name, (tool.bar)(load.name)?))).collect();
            let burst = if load.name == "pingpong" { 1.10 } else { 1.05 };
            let mut expected = vec![("chains", burst), ("exam", burst)];
            if load.name == "dd" {
                expected.push(("run", 2.9));
            }
            assert_eq!(bars, expected, "{}", load.name);
        }
    }

    #[test]
    fn a_tool_that_is_not_there_is_said_to_be() {
        let absent = peer("no-such-tool-anywhere", "", &[], Started::Before, 100);
        assert_eq!(absent.find(Path::new("/")), Err("not installed"));
        assert_eq!(TOOLS[0].find(Path::new("/bin/false")), Err("this whyslow has no such verb"));
        assert_eq!(TOOLS[0].find(Path::new("/bin/true")), Ok(PathBuf::from("/bin/true")));
    }
}
