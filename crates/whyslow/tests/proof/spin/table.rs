//! The table of all runs, one row each. A star: other processes used the host meanwhile.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::sync::Once;
use std::time::Duration;

use whyslow_faults::rounds;

use crate::spin::cell::Cell;
use crate::spin::judge::Verdict;

/// One run.
pub struct Row {
    /// The cell.
    pub cell: Cell,
    /// Other processes used the host meanwhile.
    pub disturbed: bool,
    /// The outcome.
    pub verdict: Verdict,
    /// Reported share of CPU time that it spins: the number and its bounds.
    pub reported: Option<[f64; 3]>,
    /// The true share.
    pub truth: f64,
    /// CPU seconds of the program.
    pub cpu_s: f64,
    /// The reported function in which it spins.
    pub function: String,
    /// Threads that spun, and how many of them were named.
    pub named: [usize; 2],
    /// CPU time of whyslow.
    pub own: Duration,
    /// The error.
    pub wrong: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = format!("{:?}", self.verdict).to_lowercase();
        let reported = self.reported.map_or("-".to_owned(), |[share, low, high]| {
            if low == high { format!("{share:.2}") } else { format!("{share:.2} ({low:.2}-{high:.2})") }
        });
        let [named, all] = self.named;
        write!(
            f,
            "{:<15} {:<6} {verdict:<7} {reported:>16} {:>5.2} {:>6.2} {:>8} {:>6.3}  {:<32} {}",
            self.cell.program.to_string(),
            format!("{}{}", self.cell.load(), if self.disturbed { "*" } else { "" }),
            self.truth,
            self.cpu_s,
            format!("{named}/{all}"),
            self.own.as_secs_f64(),
            self.function,
            self.wrong
        )
    }
}

impl Row {
    /// Print it, and keep it.
    pub fn note(&self) {
        static HEAD: Once = Once::new();
        let mut text = String::new();
        HEAD.call_once(|| {
            text = format!(
                "{:<15} {:<6} {:<7} {:>16} {:>5} {:>6} {:>8} {:>6}  {:<32} wrong\n",
                "program",
                "load",
                "verdict",
                "share reported",
                "true",
                "cpu s",
                "threads",
                "own s",
                "function"
            );
        });
        text.push_str(&format!("{self}\n"));
        text.lines().for_each(rounds::say);
        let file = fs::create_dir_all(crate::kept_in("spin")).and_then(|()| {
            OpenOptions::new().create(true).append(true).open(crate::kept_in("spin").join("table.txt"))
        });
        let _ = file.and_then(|mut file| file.write_all(text.as_bytes()));
    }
}
