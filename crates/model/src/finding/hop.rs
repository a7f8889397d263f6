//! The chain from the victim to the culprit.

use std::time::Duration;

use serde::Serialize;

use super::{in_seconds, in_seconds_or_null};

/// One hop of the chain from the victim to the culprit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hop {
    /// What sort of wait: "runnable", "block-io", "reclaim", "throttled", ...
    pub edge: String,
    /// Who waited.
    pub who: String,
    /// For what.
    pub waits_for: String,
    /// The waiter's state: "runnable", "disk sleep", "sleep", "running".
    pub state: String,
    /// Time lost in this hop, all victims together.
    #[serde(rename = "lost_s", serialize_with = "in_seconds")]
    pub lost: Duration,
    /// The longest single wait, where measured.
    #[serde(rename = "worst_s", serialize_with = "in_seconds_or_null")]
    pub worst: Option<Duration>,
    /// How many waits, where counted.
    pub count: Option<u64>,
    /// Time per call, where calls were counted.
    #[serde(
        rename = "per_call_s",
        skip_serializing_if = "Option::is_none",
        serialize_with = "in_seconds_or_null"
    )]
    pub per_call: Option<Duration>,
    /// The count that the time per call grows with, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grows_with: Option<String>,
}

impl Hop {
    /// `who` waited so long for `waits_for`.
    pub fn new(
        edge: &str,
        who: impl Into<String>,
        waits_for: impl Into<String>,
        state: &str,
        lost: Duration,
    ) -> Self {
        Hop {
            edge: edge.to_owned(),
            who: who.into(),
            waits_for: waits_for.into(),
            state: state.to_owned(),
            lost,
            worst: None,
            count: None,
            per_call: None,
            grows_with: None,
        }
    }

    /// So many times, the longest of them so long.
    #[must_use]
    pub fn times(self, count: u64, worst: Duration) -> Self {
        Hop { count: Some(count), worst: Some(worst), ..self }
    }
}
