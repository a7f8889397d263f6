//! Let whyslow look, and read what it said.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::bars;
use crate::cgroup::Group;
use crate::clock::{self, Span};
use crate::expected::Expected;
use crate::rounds::{Trouble, Verdict};
use crate::said::{self, Sight, Verb};
use crate::wrong::{Sort, Wrong};
use crate::{grace, story, sys, turns};

/// The whyslow to test, by its path: `WHYSLOW_BIN`, else the one that cargo built with this test.
#[macro_export]
macro_rules! program {
    () => {
        std::env::var_os("WHYSLOW_BIN")
            .unwrap_or_else(|| std::ffi::OsString::from(env!("CARGO_BIN_EXE_whyslow")))
    };
}

/// One look of whyslow at the host.
pub struct Look {
    /// What it said.
    pub document: Value,
    /// When it looked.
    pub window: Span,
    /// Its exit status.
    pub status: Option<i32>,
    /// Where the document is kept.
    pub kept: PathBuf,
    /// From asking it until it had ended, where we did both.
    pub asked: Option<Span>,
    /// CPU time that it used until then, by the kernel.
    pub used: Option<Duration>,
}

impl Look {
    /// Run `whyslow ARGS` now; its window is as long as it is told to be in `args`. What it says is kept in `kept`.
    pub fn now(whyslow: &OsStr, args: &[&str], length: Duration, kept: &Path) -> Result<Self, Trouble> {
        let (began, driver) = (clock::now(), grace::driver_waited());
        let mut child = Command::new(whyslow)
            .args(args)
            .stdin(Stdio::null())
            .stdout(File::create(kept)?)
            .stderr(File::create(kept.with_extension("stderr"))?)
            .spawn()?;
        // Before its window it has to get the CPUs that it needs to start.
        let patience = length + 2 * bars::patient(bars::ANSWER_WITHIN);
        // Not by looking again and again: a timer of ours would be one more that a late CPU is late for.
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
        if late > bars::patient(bars::ANSWER_WITHIN) {
            return Err(Wrong::missed(format!("whyslow answered {late:?} after its window")).into());
        }
        Ok(look)
    }

    /// Read what a whyslow that has just ended wrote into `kept`: its last line, if it ran a command, else all.
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
            // A start to the second is no start; the window cannot have ended later than the program.
            None => Span { from: ended.saturating_sub(length.as_nanos() as u64), to: ended },
        };
        Ok(Look { document, window, status, kept: kept.to_owned(), asked: None, used: None })
    }

    /// The document is whole, all probes were attached, and it is about the time in which it was asked for.
    pub fn is_sound(&self, verb: Verb) -> Result<(), Wrong> {
        said::is_whole(&self.document, verb, self.status)?;
        said::has_its_probes(&self.document)?;
        said::has_its_resources(&self.document)?;
        Ok(self.is_of_its_time()?)
    }

    /// What `expected` says of it. Where nothing came about (`again`: why) no answer is asked for; an accusation counts all the same.
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

    /// It is about the time in which it was asked for, by a program that used what it says it used.
    pub fn is_of_its_time(&self) -> Result<(), String> {
        if let Some(asked) = self.asked {
            let edge = EDGE.as_nanos() as u64;
            if self.window.from + edge < asked.from || self.window.to > asked.to + edge {
                return Err(format!(
                    "its window is not of the time in which it was asked: {:?}",
                    self.window
                ));
            }
        }
        let reported = self.document["own_cost"]["cpu_s"].as_f64().unwrap_or(0.0);
        match self.used.map(|used| used.as_secs_f64()) {
            Some(used) if reported > used + EDGE.as_secs_f64() || reported < used * OWN_COST => {
                Err(format!("it used {used:.3} s of CPU by the kernel, and tells {reported:.3} s"))
            }
            _ => Ok(()),
        }
    }

    /// What a group used since `before` was read, as much of it as was in the window.
    pub fn sight(&self, group: &Group, before: Duration) -> io::Result<Sight> {
        let used = self.part(group.cpu_used()?.saturating_sub(before));
        Ok(Sight { group: group.path().to_owned(), used })
    }

    /// Of what was used while whyslow was asked, the window's part.
    #[must_use]
    pub fn part(&self, used: Duration) -> Duration {
        let asked = self.asked.map_or(self.window.length(), Span::length);
        used.mul_f64((self.window.length().as_secs_f64() / asked.as_secs_f64().max(1e-9)).min(1.0))
    }

    /// CPU time that whyslow itself used: by the kernel, where we know; else as it says.
    #[must_use]
    pub fn own_cpu(&self) -> Duration {
        let reported = || self.document["own_cost"]["cpu_s"].as_f64().unwrap_or(0.0);
        self.used.unwrap_or_else(|| Duration::from_secs_f64(reported().clamp(0.0, 60.0)))
    }
}

/// The wall clock is set in small steps, and both clocks are read one after the other.
const EDGE: Duration = Duration::from_millis(200);
/// Of what it used it must tell so much: the document is written before all is printed and taken down.
const OWN_COST: f64 = 0.5;
/// A grace period that takes so long is the kernel's to answer for: on a busy host it takes some tens of milliseconds.
const LATE_PERIOD: Duration = Duration::from_secs(1);

/// What to say of a whyslow that has not answered in time: that the host was disturbed, if that is why. `driver`: what
/// [`grace::driver_waited`] said before it began.
fn no_answer(pid: u32, patience: Duration, driver: Option<Duration>) -> Trouble {
    let (where_it_is, starved) = (threads(pid), turns::is_starved(pid));
    let period = grace::is_awaited_by(pid).then(|| grace::period(patience)).flatten();
    // The kernel adds what a thread has waited when that runs again, which it has after a grace period.
    let driver = grace::driver_waited().zip(driver).map(|(now, before)| now.saturating_sub(before));
    let is_late = |took: Option<Duration>, bar| took.is_some_and(|took| took > bar);
    // In one wait for a thread that was starved it waited most of the time; in hundreds of grace periods it had its turns.
    let late =
        is_late(period, bars::patient(LATE_PERIOD)) || period.is_some() && is_late(driver, patience / 2);
    let why = format!(
        "whyslow gave no answer in {patience:?}: {where_it_is}; a grace period takes {period:?}, its thread waited {driver:?}"
    );
    if starved || late {
        return io::Error::new(io::ErrorKind::TimedOut, why).into();
    }
    Wrong::missed(why).into()
}

/// What each of its threads does: its name, its state, the system call that it is in, the CPU that it has had and has
/// waited for, and where it is in the kernel.
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

/// RFC 3339 with a fraction of a second: what was cut to the second is no start.
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
