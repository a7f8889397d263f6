//! Run whyslow, and read its answer.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::cgroup::Group;
use crate::clock::{self, Span};
use crate::expected::Expected;
use crate::report_checks::{self, Sight, Verb};
use crate::rounds::{Trouble, Verdict};
use crate::thresholds;
use crate::wrong::{Sort, Wrong};
use crate::{grace, story, sys, turns};

/// Path of the whyslow under test: `WHYSLOW_BIN`, or else the binary that cargo built with this test.
#[macro_export]
macro_rules! program {
    () => {
        std::env::var_os("WHYSLOW_BIN")
            .unwrap_or_else(|| std::ffi::OsString::from(env!("CARGO_BIN_EXE_whyslow")))
    };
}

/// One run of whyslow on the host.
pub struct Look {
    /// Its document.
    pub document: Value,
    /// Its window.
    pub window: Span,
    /// Its exit status.
    pub status: Option<i32>,
    /// Where the document is kept.
    pub kept: PathBuf,
    /// From its start to its end, where the harness did both.
    pub asked: Option<Span>,
    /// CPU time that it used until then, by the kernel's account.
    pub used: Option<Duration>,
}

impl Look {
    /// Run `whyslow ARGS` now; `args` contain the length of its window. The document is kept in `kept`.
    pub fn now(whyslow: &OsStr, args: &[&str], length: Duration, kept: &Path) -> Result<Self, Trouble> {
        Look::of(Command::new(whyslow), args, length, kept)
    }

    /// As [`Look::now`], with whyslow as this command starts it: in another network namespace, on another CPU.
    pub fn of(mut whyslow: Command, args: &[&str], length: Duration, kept: &Path) -> Result<Self, Trouble> {
        let (began, driver) = (clock::now(), grace::driver_waited());
        whyslow.args(args).stdin(Stdio::null()).stdout(File::create(kept)?);
        let mut child = whyslow.stderr(File::create(kept.with_extension("stderr"))?).spawn()?;
        // Before its window, whyslow needs CPU time to start.
        let patience = length + 2 * thresholds::patient(thresholds::ANSWER_WITHIN);
        // No polling: a timer of the harness would be one more late timer on a slow CPU.
        if !sys::ends_within(child.id(), patience)? {
            let why = no_answer(child.id(), patience, driver);
            child.kill()?;
            child.wait()?;
            return Err(why);
        }
        let (status, used) = sys::reap(child.id())?;
        let ended = clock::now();
        let mut look = Look::read(kept, status.code(), length)?;
        (look.asked, look.used) = (Some(Span { from: began, to: ended }), Some(used));
        let late = Duration::from_nanos(ended.saturating_sub(look.window.to));
        if late > thresholds::patient(thresholds::ANSWER_WITHIN) {
            return Err(Wrong::missed(format!("whyslow answered {late:?} after its window")).into());
        }
        Ok(look)
    }

    /// Read what a whyslow that has just ended wrote into `kept`: the last line if it ran a command, otherwise the whole file.
    pub fn read(kept: &Path, status: Option<i32>, length: Duration) -> Result<Self, Trouble> {
        let ended = clock::now();
        let text = fs::read_to_string(kept)?;
        let last = text.lines().next_back().filter(|line| line.starts_with("{\"schema\""));
        let document: Value = serde_json::from_str(last.unwrap_or(&text)).map_err(|err| {
            let stderr = fs::read_to_string(kept.with_extension("stderr")).unwrap_or_default();
            Wrong::missed(format!("whyslow ({status:?}) printed no document: {err}\n{text}\n{stderr}"))
        })?;
        let broken = story::broken(&document);
        if !broken.is_empty() {
            return Err(Wrong::missed(format!("a report that does not hold together: {broken:#?}")).into());
        }
        let length = document["window_s"].as_f64().map_or(length, Duration::from_secs_f64);
        let window = match document["started_at"].as_str().and_then(seconds_since_1970) {
            Some(wall) => Span::at_wall(wall, length),
            // A start without a fraction of a second is too coarse; the window cannot have ended after the program.
            None => Span { from: ended.saturating_sub(length.as_nanos() as u64), to: ended },
        };
        Ok(Look { document, window, status, kept: kept.to_owned(), asked: None, used: None })
    }

    /// Check that the document is complete, that all probes were attached, and that its window is the time of this run.
    pub fn is_sound(&self, verb: Verb) -> Result<(), Wrong> {
        report_checks::is_whole(&self.document, verb, self.status)?;
        report_checks::has_its_probes(&self.document)?;
        report_checks::has_its_resources(&self.document)?;
        Ok(self.is_of_its_time()?)
    }

    /// Judge it by `expected`. If the scenario did not come about (`again`: why), no answer is required; a false accusation counts all the
    /// same.
    #[must_use]
    pub fn judged(&self, expected: &Expected, verb: Verb, again: Option<String>) -> Verdict {
        let kept = format!("(all of it: {})", self.kept.display());
        let judged = expected.judge(&self.document, verb, self.status);
        match (judged.and_then(|()| Ok(self.is_of_its_time()?)), again) {
            (Err(wrong), again) if again.is_none() || wrong.sort == Sort::False => {
                Verdict::Wrong(wrong.told(|what| format!("{what} {kept}")))
            }
            (_, Some(again)) => Verdict::Again(format!("{again} {kept}")),
            (_, None) => Verdict::Passed,
        }
    }

    /// Check that its window is the time of this run, and that it used as much CPU time as it reports.
    pub fn is_of_its_time(&self) -> Result<(), String> {
        if let Some(asked) = self.asked {
            let edge = EDGE.as_nanos() as u64;
            if self.window.from + edge < asked.from || self.window.to > asked.to + edge {
                return Err(format!("its window is not the time of the run: {:?}", self.window));
            }
        }
        let reported = self.document["own_cost"]["cpu_s"].as_f64().unwrap_or(0.0);
        match self.used.map(|used| used.as_secs_f64()) {
            Some(used) if reported > used + EDGE.as_secs_f64() || reported < used * OWN_COST => {
                Err(format!("it used {used:.3} s of CPU by the kernel, and reports {reported:.3} s"))
            }
            _ => Ok(()),
        }
    }

    /// CPU time of a group since `before` was read, scaled to the window.
    pub fn sight(&self, group: &Group, before: Duration) -> io::Result<Sight> {
        let used = self.part(group.cpu_used()?.saturating_sub(before));
        Ok(Sight { group: group.path().to_owned(), used })
    }

    /// The window's part of CPU time that was used during the run.
    #[must_use]
    pub fn part(&self, used: Duration) -> Duration {
        let asked = self.asked.map_or(self.window.length(), Span::length);
        used.mul_f64((self.window.length().as_secs_f64() / asked.as_secs_f64().max(1e-9)).min(1.0))
    }

    /// CPU time that whyslow itself used: by the kernel's account where known, otherwise as it reports.
    #[must_use]
    pub fn own_cpu(&self) -> Duration {
        let reported = || self.document["own_cost"]["cpu_s"].as_f64().unwrap_or(0.0);
        self.used.unwrap_or_else(|| Duration::from_secs_f64(reported().clamp(0.0, 60.0)))
    }
}

/// Tolerance: the wall clock is set in small steps, and both clocks are read one after the other.
const EDGE: Duration = Duration::from_millis(200);
/// Least share of its own CPU time that it must report: it writes the document before it has printed it and detached its probes.
const OWN_COST: f64 = 0.5;
/// A grace period this long is the kernel's fault: on a busy host it takes some tens of milliseconds.
const LATE_PERIOD: Duration = Duration::from_secs(1);

/// The verdict on a whyslow that has not answered in time: the host was disturbed, if that is the reason. `driver`: the result of
/// [`grace::driver_waited`] before whyslow began.
fn no_answer(pid: u32, patience: Duration, driver: Option<Duration>) -> Trouble {
    let (where_it_is, starved) = (threads(pid), turns::is_starved(pid));
    let period = grace::is_awaited_by(pid).then(|| grace::period(patience)).flatten();
    // The kernel adds a thread's wait when the thread runs again; after a grace period it has run.
    let driver = grace::driver_waited().zip(driver).map(|(now, before)| now.saturating_sub(before));
    let is_late = |took: Option<Duration>, bar| took.is_some_and(|took| took > bar);
    // A starved RCU thread waited for most of one grace period; a thread that ran served hundreds of them.
    let late = is_late(period, thresholds::patient(LATE_PERIOD))
        || period.is_some() && is_late(driver, patience / 2);
    let why = format!(
        "whyslow gave no answer in {patience:?}: {where_it_is}; a grace period takes {period:?}, its thread waited {driver:?}"
    );
    if starved || late {
        return io::Error::new(io::ErrorKind::TimedOut, why).into();
    }
    Wrong::missed(why).into()
}

/// The state of each of its threads: name, state, system call, CPU time and time ready for a CPU, kernel stack.
fn threads(pid: u32) -> String {
    let all = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let one = |task: fs::DirEntry| {
        let text = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let stat = text("stat");
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('?');
        let first = |name: &str| text(name).split(' ').next().unwrap_or("?").trim().to_owned();
        let seconds = |ns: &str| ns.parse::<f64>().unwrap_or(0.0) / 1e9;
        let times: Vec<f64> = text("schedstat").split(' ').take(2).map(seconds).collect();
        let stack: Vec<String> = text("stack").lines().take(6).map(str::to_owned).collect();
        format!(
            "{} {state} in {}, ran and waited for {times:.2?} s {stack:?}",
            text("comm").trim(),
            first("syscall")
        )
    };
    all.map(one).collect::<Vec<_>>().join(", ")
}

/// RFC 3339 with a fraction of a second: a text without a fraction is too coarse for a start.
fn seconds_since_1970(text: &str) -> Option<f64> {
    let start = OffsetDateTime::parse(text, &Rfc3339).ok().filter(|_| text.contains('.'))?;
    Some(start.unix_timestamp() as f64 + f64::from(start.nanosecond()) / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_read_to_the_fraction() {
        assert_eq!(seconds_since_1970("1970-01-02T00:00:01.500Z"), Some(86_401.5));
        assert_eq!(seconds_since_1970("2024-02-29T12:00:00.25+02:00"), Some(1_709_200_800.25));
        assert_eq!(seconds_since_1970("2026-11-21T12:00:00Z"), None);
        assert_eq!(seconds_since_1970("torn"), None);
    }
}
