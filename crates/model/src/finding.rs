//! Findings: victim, time lost, cause, checks and fixes.

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::Share;
use crate::shell::Command;
use crate::timeline::is_default;

mod hop;
mod subject;

pub use hop::Hop;
pub use subject::{Culprit, Subject, SubjectKind};

/// How sure a finding is, and whether somebody paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It explains a measured loss.
    Cause,
    /// No victim's loss was measured: none now, not measurable, or a price chosen on purpose.
    Risk,
    /// What the host, or a tree of tasks, is busy with, and whom only its own tasks wait for: no fault.
    Busy,
    /// The question could not be answered.
    CannotTell,
}

/// The rule that `whyslow cpu` asks, and whose findings it shows.
pub const SLOW_CPU: &str = "slow-cpu";
/// The rule that asks for packets that waited, as `whyslow net --watch` does.
pub const PACKET_STALLS: &str = "packet-stalls";

/// How to check by hand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What to look for.
    pub text: String,
    /// A command that shows it and changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Command>,
}

/// What would help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// What to do, and what it costs.
    pub text: String,
    /// A command that does it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Command>,
}

/// What the evidence rules out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuledOut {
    /// What it is not: "the disk".
    pub what: String,
    /// Why: "no task waited for it".
    pub evidence: String,
}

/// An answer: victim, loss, cause.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Cause, risk, busy or cannot tell.
    pub kind: Kind,
    /// The rule that found it.
    pub rule: String,
    /// One line: what happened.
    pub title: String,
    /// The victim.
    pub victim: Subject,
    /// The victims' time x (1 - work done / work without the cause), in task-seconds. `None`: not measured.
    #[serde(rename = "lost_s", serialize_with = "in_seconds_or_null")]
    pub lost: Option<Duration>,
    /// The victims' calls that failed, where that is what they lost.
    #[serde(skip_serializing_if = "is_default")]
    pub failed_calls: u64,
    /// Bounds of `lost`, where it is not one number.
    #[serde(
        rename = "lost_range_s",
        skip_serializing_if = "Option::is_none",
        serialize_with = "range_in_seconds"
    )]
    pub lost_range: Option<(Duration, Duration)>,
    /// The raw runnable, throttled or blocked time beside it.
    #[serde(
        rename = "raw_wait_s",
        skip_serializing_if = "Option::is_none",
        serialize_with = "in_seconds_or_null"
    )]
    pub raw_wait: Option<Duration>,
    /// Reclaimable CPU time.
    #[serde(
        rename = "cpu_s",
        skip_serializing_if = "Option::is_none",
        serialize_with = "in_seconds_or_null"
    )]
    pub cpu: Option<Duration>,
    /// Bounds of `cpu`, where it is not one number.
    #[serde(
        rename = "cpu_range_s",
        skip_serializing_if = "Option::is_none",
        serialize_with = "range_in_seconds"
    )]
    pub cpu_range: Option<(Duration, Duration)>,
    /// Rules whose losses are in part the same time; not to be added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overlaps: Vec<String>,
    /// Time lost as a share of the victims' task-seconds in the window.
    pub share: Option<Share>,
    /// The culprit: what cost them that time.
    pub culprit: Option<Culprit>,
    /// The resource that it is about: a name in the document's `resources`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// From the victim to the culprit.
    pub chain: Vec<Hop>,
    /// Threads that lost, where the victim stands for several: a question about one of them gets this finding.
    #[serde(skip)]
    pub paid_by: Vec<u32>,
    /// How to check by hand.
    pub check: Vec<Check>,
    /// What would help.
    pub fixes: Vec<Fix>,
}

impl Finding {
    /// It explains `lost` of the victim's time.
    #[must_use]
    pub fn cause(rule: &str, victim: Subject, lost: Duration) -> Self {
        Finding { lost: Some(lost), ..Finding::new(Kind::Cause, rule, victim) }
    }

    /// Tasks of the victim are gone: no time measures what was lost with them, and nothing stands above it.
    #[must_use]
    pub fn killed(rule: &str, victim: Subject) -> Self {
        Finding::new(Kind::Cause, rule, victim)
    }

    /// Calls of the victim failed: no time measures what was lost with them.
    #[must_use]
    pub fn failed(rule: &str, victim: Subject, failed_calls: u64) -> Self {
        Finding { failed_calls, ..Finding::new(Kind::Cause, rule, victim) }
    }

    /// A risk: no loss was measured.
    #[must_use]
    pub fn risk(rule: &str, subject: Subject) -> Self {
        Finding::new(Kind::Risk, rule, subject)
    }

    /// No fault: said because the reader wants to know.
    #[must_use]
    pub fn busy(rule: &str, subject: Subject) -> Self {
        Finding::new(Kind::Busy, rule, subject)
    }

    /// The rule's question could not be answered, because of `why`.
    pub fn cannot_tell(rule: &str, why: impl ToString) -> Self {
        Finding::new(Kind::CannotTell, rule, Subject::host()).titled(why.to_string())
    }

    fn new(kind: Kind, rule: &str, victim: Subject) -> Self {
        Finding {
            kind,
            rule: rule.to_owned(),
            title: String::new(),
            victim,
            lost: None,
            failed_calls: 0,
            lost_range: None,
            raw_wait: None,
            cpu: None,
            cpu_range: None,
            overlaps: Vec::new(),
            share: None,
            culprit: None,
            resource: None,
            chain: Vec::new(),
            paid_by: Vec::new(),
            check: Vec::new(),
            fixes: Vec::new(),
        }
    }

    /// One line: what happened.
    #[must_use]
    pub fn titled(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// The raw wait beside the loss.
    #[must_use]
    pub fn raw_wait(mut self, raw: Duration) -> Self {
        self.raw_wait = Some(raw);
        self
    }

    /// The loss as a share of `whole`, the victims' task-seconds.
    #[must_use]
    pub fn share_of(mut self, whole: Duration) -> Self {
        self.share = self.lost.map(|lost| Share::of(lost.as_secs_f64(), whole.as_secs_f64()));
        self
    }

    /// Bounds of the loss. Guess and bounds may come of different models: the guess is within them.
    #[must_use]
    pub fn between(mut self, low: Duration, high: Duration) -> Self {
        let lost = self.lost.unwrap_or(low);
        self.lost_range = Some((low.min(lost), high.max(lost)));
        self
    }

    /// Reclaimable CPU time, with bounds.
    #[must_use]
    pub fn gives_back(mut self, cpu: Duration, low: Duration, high: Duration) -> Self {
        (self.cpu, self.cpu_range) = (Some(cpu), Some((low, high)));
        self
    }

    /// With its culprit.
    #[must_use]
    pub fn by(mut self, culprit: Culprit) -> Self {
        self.culprit = Some(culprit);
        self
    }

    /// The resource that it is about.
    #[must_use]
    pub fn on(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// One more hop.
    #[must_use]
    pub fn hop(mut self, hop: Hop) -> Self {
        self.chain.push(hop);
        self
    }

    /// How to check by hand, with a command.
    #[must_use]
    pub fn check(mut self, text: impl Into<String>, command: impl Into<Command>) -> Self {
        self.check.push(Check { text: text.into(), command: Some(command.into()) });
        self
    }

    /// What would help, with a command.
    #[must_use]
    pub fn fix(mut self, text: impl Into<String>, command: impl Into<Command>) -> Self {
        self.fixes.push(Fix { text: text.into(), command: Some(command.into()) });
        self
    }

    /// What would help, in words.
    #[must_use]
    pub fn advice(mut self, text: impl Into<String>) -> Self {
        self.fixes.push(Fix { text: text.into(), command: None });
        self
    }
}

/// A duration as a JSON number of seconds, to the microsecond.
pub(crate) fn in_seconds<S: Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_f64(round(d.as_secs_f64()))
}

pub(crate) fn in_seconds_or_null<S: Serializer>(d: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
    match d {
        Some(d) => in_seconds(d, s),
        None => s.serialize_none(),
    }
}

fn range_in_seconds<S: Serializer>(range: &Option<(Duration, Duration)>, s: S) -> Result<S::Ok, S::Error> {
    range.map(|(low, high)| [round(low.as_secs_f64()), round(high.as_secs_f64())]).serialize(s)
}

pub(crate) fn round(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}
