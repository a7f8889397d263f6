//! What the live tests printed, a row a cell.

use whyslow_faults::proven::{Ended, Row};

/// How a cell ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All was asserted, and held.
    Passed,
    /// What whyslow told was wrong, or the cell broke down.
    Failed(String),
    /// It was no lock chain: the guest was disturbed too often.
    NotIdle(String),
    /// It cannot be made here.
    NotRun(String),
}

/// One test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// "file::root_run_tells_the_chain".
    pub name: String,
    /// How it ended.
    pub verdict: Verdict,
}

impl Cell {
    /// It must not be called passed.
    #[must_use]
    pub fn is_bad(&self) -> bool {
        matches!(self.verdict, Verdict::Failed(_))
    }

    /// Whatever it said does not count.
    pub fn fail(&mut self, why: &str) {
        self.verdict = Verdict::Failed(why.to_owned());
    }

    /// For the table of all test beds.
    pub fn note(&self, kernel: &str) {
        let (ended, why) = match &self.verdict {
            Verdict::Passed => (Ended::Passed, ""),
            Verdict::Failed(why) => (Ended::Failed, why.as_str()),
            Verdict::NotIdle(why) => (Ended::NotIdle, why.as_str()),
            Verdict::NotRun(why) => (Ended::NotRun, why.as_str()),
        };
        let why = why.lines().next().unwrap_or("").to_owned();
        let cell = format!("{} {kernel}", self.name);
        Row { suite: "lab".to_owned(), cell, ended, redrawn: 0, retried: 0, why }.write();
    }

    /// One line of the table.
    #[must_use]
    pub fn line(&self, kernel: &str) -> String {
        let (word, why) = match &self.verdict {
            Verdict::Passed => ("passed", ""),
            Verdict::Failed(why) => ("failed", why.as_str()),
            Verdict::NotIdle(why) => ("not idle", why.as_str()),
            Verdict::NotRun(why) => ("not run", why.as_str()),
        };
        let line = format!("{:<60} {kernel:<6} {word:<9} {why}", self.name.replacen("::root_", " ", 1));
        line.trim_end().to_owned()
    }
}

/// How many of each.
#[must_use]
pub fn sum(cells: &[Cell]) -> String {
    let count = |is: fn(&Verdict) -> bool| cells.iter().filter(|cell| is(&cell.verdict)).count();
    format!(
        "{} passed, {} failed, {} not idle, {} not run",
        count(|v| matches!(v, Verdict::Passed)),
        count(|v| matches!(v, Verdict::Failed(_))),
        count(|v| matches!(v, Verdict::NotIdle(_))),
        count(|v| matches!(v, Verdict::NotRun(_))),
    )
}

/// The harness prints "test NAME ... ", and what the cell says about itself behind it or below. `end`: how all ended, for
/// cells that said nothing.
#[must_use]
pub fn read(names: &[String], said: &str, end: &str) -> Vec<Cell> {
    let verdict = |name: &String| {
        let begin = format!("test {name} ... ");
        let rest = said.split_once(&begin).map(|(_, rest)| rest);
        let until = |rest: &str| rest.find("\ntest ").unwrap_or(rest.len());
        let own = rest.map_or("", |rest| rest.get(..until(rest)).unwrap_or(""));
        own.lines().find_map(of_line).unwrap_or_else(|| match rest {
            Some(_) => Verdict::Failed(format!("it did not end; {end}")),
            None => Verdict::Failed(format!("it did not begin; {end}")),
        })
    };
    names.iter().map(|name| Cell { name: name.clone(), verdict: verdict(name) }).collect()
}

fn of_line(line: &str) -> Option<Verdict> {
    let (_, said) = line.split_once("live: ")?;
    let (word, rest) = said.split_once(": ")?;
    match word {
        "passed" => Some(Verdict::Passed),
        "FAILED" => Some(Verdict::Failed(rest.to_owned())),
        "HOST NOT IDLE, not passed" => Some(Verdict::NotIdle(rest.to_owned())),
        "not run" => Some(Verdict::NotRun(rest.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\nrunning 4 tests
test file::root_run_tells_the_chain ... WHYSLOW_SEED=7
live: broke down, made again: file-run: too late
live: passed: file-run WHYSLOW_SEED=7
ok
test go_mutex::root_a_healthy_one_is_not_told ... live: not run: go-healthy: cannot run go
ok
test pipe::root_attach_tells_the_chain ... live: FAILED: pipe-attach WHYSLOW_ALL=1 WHYSLOW_SEED=7: no chain a < b
  more
FAILED
test unix::root_attach_tells_the_chain ... ";

    #[test]
    fn each_cell_has_the_verdict_that_stands_behind_its_name() {
        let names = ["file::root_run_tells_the_chain", "go_mutex::root_a_healthy_one_is_not_told"];
        let cells = read(&names.map(str::to_owned), SAID, "");
        assert_eq!(cells[0].verdict, Verdict::Passed);
        assert_eq!(cells[1].verdict, Verdict::NotRun("go-healthy: cannot run go".to_owned()));
        assert!(!cells.iter().any(Cell::is_bad));
    }

    #[test]
    fn a_cell_that_says_nothing_has_failed() {
        let names = ["pipe::root_attach_tells_the_chain", "unix::root_attach_tells_the_chain", "std::never"];
        let cells = read(&names.map(str::to_owned), SAID, "the guest died");
        assert!(cells.iter().all(Cell::is_bad));
        assert_eq!(cells[1].verdict, Verdict::Failed("it did not end; the guest died".to_owned()));
        assert_eq!(cells[2].verdict, Verdict::Failed("it did not begin; the guest died".to_owned()));
        assert_eq!(sum(&cells), "0 passed, 3 failed, 0 not idle, 0 not run");
        assert!(cells[0].line("6.1").starts_with("pipe attach_tells_the_chain "), "{}", cells[0].line("6.1"));
    }
}
