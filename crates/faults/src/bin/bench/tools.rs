//! The tools: ours, and those that others use for the same questions.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub struct Tool {
    pub name: &'static str,
    pub words: &'static str,
    /// Another program; none: whyslow.
    pub program: Option<&'static str>,
    pub args: &'static [&'static str],
    pub started: Started,
    /// CPU ratio that it must stay below, by load.
    pub bar: fn(&str) -> Option<f64>,
    /// The share of a load, in percent, that it gets: some are slow.
    pub percent: u64,
}

/// How a tool comes to a load.
#[derive(Clone, Copy)]
pub enum Started {
    /// It looks at the whole host while the load runs.
    Beside(Looks),
    /// It starts the load: the command follows its arguments.
    Before,
}

/// When does a tool look?
#[derive(Clone, Copy)]
pub enum Looks {
    /// When it says so on stderr.
    Says(&'static str),
    /// When its BPF programs are attached.
    Links,
}

/// Others get so many times fewer pairs: no bar is theirs, and the time is better spent on ours.
pub const FEWER_FOR_OTHERS: usize = 5;

const HOST: Started = Started::Beside(Looks::Says("looking, "));

pub const TOOLS: [Tool; 7] = [
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
        // As root also under sudo: the load is the same as alone.
        args: &["run", "--json", "--as-root", "--"],
        started: Started::Before,
        bar: run,
        percent: 100,
    },
    peer("strace", "strace -c -f", &["-c", "-f", "-o", "/dev/null"], Started::Before, 10),
    peer("perf", "perf trace -s", &["trace", "-s", "-o", "/dev/null", "--"], Started::Before, 5),
    // The next two are of libbpf-tools.
    peer("offcputime", "offcputime", &[], Started::Beside(Looks::Links), 100),
    peer("syscount", "syscount -L", &["-L"], Started::Beside(Looks::Links), 100),
];

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

/// `syscount -L` costs 2.9 there, and sees no files.
fn run(load: &str) -> Option<f64> {
    (load == "dd").then_some(2.9)
}

fn none(_: &str) -> Option<f64> {
    None
}

impl Tool {
    /// Where it is, or why it cannot be measured.
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
