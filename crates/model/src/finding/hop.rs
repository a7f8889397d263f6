//! The chain from the victim to the culprit.

use std::time::Duration;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::round;
use crate::wait::{Detail, Reason, TaskState, Who};

/// One hop of the chain from the victim to the culprit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hop {
    /// Why it waited, or that it ran.
    pub reason: Reason,
    /// The task or thing that waited or ran.
    pub who: Who,
    /// The thing it waited for; if it ran, its work.
    pub detail: Detail,
    /// Its state meanwhile.
    pub state: TaskState,
    /// Time lost in this hop, all victims together; zero: not measured, which JSON prints as null.
    pub lost: Duration,
    /// The longest single wait, where measured.
    pub worst: Option<Duration>,
    /// How many waits, where counted.
    pub count: Option<u64>,
    /// Time per call, where calls were counted; with `grows_with` at the end of the window.
    pub per_call: Option<Duration>,
    /// The count that the time per call grows with, where known: "9,000 cgroups".
    pub grows_with: Option<String>,
    /// A vicious circle: tasks that make that count smaller wait in hops above this one.
    pub circle: bool,
}

impl Hop {
    /// `who` waited for `detail`, for `lost` in all.
    pub fn new(
        reason: Reason,
        who: impl Into<Who>,
        detail: impl Into<Detail>,
        state: TaskState,
        lost: Duration,
    ) -> Self {
        Hop { reason, who: who.into(), detail: detail.into(), state, lost, ..Hop::default() }
    }

    /// With the number of waits and the longest of them.
    #[must_use]
    pub fn times(self, count: u64, worst: Duration) -> Self {
        Hop { count: Some(count), worst: Some(worst), ..self }
    }
}

impl Hop {
    /// What the time per call grows with, in words.
    #[must_use]
    pub fn growth(&self) -> Option<String> {
        let count = self.grows_with.as_ref()?;
        let noun = count.split_once(' ').map_or(count.as_str(), |(_, noun)| noun);
        Some(match self.circle {
            true => format!(
                "growing with {count}: a vicious circle, because tasks that remove {noun} wait for it"
            ),
            false => format!("growing with {count}"),
        })
    }
}

/// JSON has names as text, and beside them the data they are made of.
impl Serialize for Hop {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let seconds = |time: Duration| round(time.as_secs_f64());
        let mut hop = serializer.serialize_struct("Hop", 12)?;
        hop.serialize_field("reason", &self.reason)?;
        hop.serialize_field("who", &self.who)?;
        if let Some(work) = self.who.work() {
            hop.serialize_field("work", work)?;
        }
        hop.serialize_field("waits_for", &self.detail.to_string())?;
        if self.detail.is_typed() {
            hop.serialize_field("detail", &self.detail)?;
        }
        hop.serialize_field("state", &self.state)?;
        hop.serialize_field("lost_s", &(!self.lost.is_zero()).then(|| seconds(self.lost)))?;
        hop.serialize_field("worst_s", &self.worst.map(seconds))?;
        hop.serialize_field("count", &self.count)?;
        if let Some(per_call) = self.per_call {
            hop.serialize_field("per_call_s", &seconds(per_call))?;
        }
        if let Some(count) = &self.grows_with {
            hop.serialize_field("grows_with", count)?;
        }
        if self.circle {
            hop.serialize_field("circle", &true)?;
        }
        hop.end()
    }
}
