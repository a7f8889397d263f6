//! Test binaries, as listed by cargo, and single tests of a binary in a process of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;
use whyslow_faults::proven::{self, Ended, Row};

use crate::Trouble;
use crate::child::{self, Waited};

/// Listing the tests of a binary takes milliseconds.
const LISTED_WITHIN: Duration = Duration::from_secs(60);
/// Last line of the test harness.
const ONE_PASSED: &str = "test result: ok. 1 passed";
/// Environment variables that give a binary another role: such a binary lists and runs no tests.
const ROLES: [&str; 2] = ["WHYSLOW_VICTIM", "WHYSLOW_STAND_IN"];
/// Characters of a failure's reason that are kept: the log may be gone when it is needed.
const WORDS: usize = 600;

/// A test binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    /// Its target: "functional", or the crate of unit tests.
    pub target: String,
    /// Its path.
    pub path: PathBuf,
    /// The folder of its package, where cargo starts it.
    folder: PathBuf,
}

/// How a test is run.
#[derive(Debug, Clone)]
pub struct How {
    /// The seed of its draws.
    pub seed: u64,
    /// The program under test.
    pub whyslow: PathBuf,
    /// Further environment variables, each set to "1".
    pub set: Vec<&'static str>,
    /// Time after which it is killed.
    pub limit: Duration,
}

/// The result of one test.
#[derive(Debug)]
pub struct Ran {
    /// From its exit status and its output.
    pub ended: Ended,
    /// Why it was not proven.
    pub why: String,
    /// All that it said.
    pub said: String,
    /// Rows that it wrote; if it wrote none, one for the test itself.
    pub rows: Vec<Row>,
    /// It wrote none.
    pub is_without_rows: bool,
    /// How long it took.
    pub took: Duration,
}

/// A line of `cargo build --message-format=json`, as far as it is needed.
#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    manifest_path: PathBuf,
    executable: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl Binary {
    /// All test binaries that cargo listed in a file.
    pub fn all(messages: &Path) -> Result<Vec<Self>, Trouble> {
        let trouble = |why: String| Trouble::new(format!("read {}", messages.display()), why);
        let text = fs::read_to_string(messages).map_err(|err| trouble(err.to_string()))?;
        let found = told(&text).map_err(|err| trouble(err.to_string()))?;
        if found.is_empty() { Err(trouble("it names no test binary".to_owned())) } else { Ok(found) }
    }

    /// The folder's name.
    pub fn package(&self) -> &str {
        self.folder.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Its tests with one of these words in their names.
    pub fn names(&self, words: &[&str]) -> Result<Vec<String>, Trouble> {
        let mut list = self.command();
        list.args(["--list", "--format", "terse"]);
        let said = child::output(&format!("list the tests of {}", self.target), &mut list, LISTED_WITHIN)?;
        let names = said.lines().filter_map(|line| line.strip_suffix(": test"));
        let is_asked_for = |name: &&str| words.iter().any(|word| name.contains(word));
        Ok(names.filter(is_asked_for).map(str::to_owned).collect())
    }

    /// Run one of its tests.
    pub fn run(&self, name: &str, how: &How) -> Result<Ran, Trouble> {
        let trouble = |err: std::io::Error| Trouble::new(format!("run {} {name}", self.target), err);
        let folder = tempfile::tempdir().map_err(trouble)?;
        let noted = folder.path().join("rows");
        let mut test = self.command();
        test.args(["--exact", name, "--test-threads=1", "--show-output"]);
        test.env(proven::FILE, &noted)
            .env("WHYSLOW_SEED", how.seed.to_string())
            .env("PROPTEST_RNG_SEED", how.seed.to_string())
            .env("WHYSLOW_BIN", &how.whyslow);
        test.envs(how.set.iter().map(|name| (*name, "1")));
        let began = Instant::now();
        let (waited, said) = child::run(&mut test, how.limit).map_err(trouble)?;
        let took = began.elapsed();
        let (ended, why) = match waited {
            Waited::Ended(status) if status.success() => match not_run(&said) {
                Some(why) => (Ended::NotRun, why.to_owned()),
                None if said.contains(ONE_PASSED) => (Ended::Passed, String::new()),
                None => (Ended::Failed, "it ended without a result".to_owned()),
            },
            Waited::Ended(status) => (Ended::Failed, panicked(&said).unwrap_or_else(|| status.to_string())),
            Waited::TimedOut => (Ended::Failed, format!("it took more than {} s", how.limit.as_secs())),
            Waited::Interrupted => return Err(Trouble::new("run the live tests", "interrupted")),
        };
        let mut rows = Row::all(&noted).map_err(trouble)?;
        let is_without_rows = rows.is_empty();
        if is_without_rows {
            rows.push(Row { why: why.clone(), ..Row::of(&self.target, name, ended) });
        }
        Ok(Ran { ended, why, said, rows, is_without_rows, took })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder);
        for role in ROLES {
            command.env_remove(role);
        }
        command
    }
}

fn told(text: &str) -> Result<Vec<Binary>, serde_json::Error> {
    let mut found = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line)?;
        let (Some(path), Some(target), Some(Profile { test: true })) =
            (message.executable, message.target, message.profile)
        else {
            continue;
        };
        let folder = message.manifest_path.parent().map(Path::to_owned).unwrap_or_default();
        found.push(Binary { target: target.name, path, folder });
    }
    Ok(found)
}

/// The reason in a passed test that says that it was not run.
fn not_run(said: &str) -> Option<&str> {
    said.lines().find_map(|line| line.strip_prefix("not run: "))
}

/// The last words of a failed test: the place, and the value that it got.
fn panicked(said: &str) -> Option<String> {
    let begins = |line: &&str| line.starts_with("thread '") && line.contains("panicked at ");
    let mut lines = said.lines().skip_while(|line| !begins(line));
    let is_more = |line: &&str| !line.is_empty() && !line.starts_with("note: ");
    let all: Vec<&str> = lines.next().into_iter().chain(lines.take_while(is_more)).collect();
    (!all.is_empty()).then(|| all.join(" / ").chars().take(WORDS).collect())
}

#[cfg(test)]
mod tests;
