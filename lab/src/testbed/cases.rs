//! The five founding cases and their helpers: each is really made, and proven by the clocks of its own processes.

pub(crate) mod actor;
pub(crate) mod bottom_halves;
pub(crate) mod burst;
pub(crate) mod busy_wait;
pub(crate) mod churn;
pub(crate) mod cpu_latency;
pub(crate) mod files;
pub(crate) mod idle_states;
pub(crate) mod memory_cgroup;
pub(crate) mod net;
pub(crate) mod nodes;
pub(crate) mod packets;
pub(crate) mod policies;
pub(crate) mod polling;
pub(crate) mod rule_set;
pub(crate) mod slow_cpu;
pub(crate) mod stall;
mod sys;
pub(crate) mod traffic;

use std::collections::BTreeMap;

pub use actor::become_if_asked;
pub use cpu_latency::ask;

use crate::testbed::part::Proof;

/// Names that an answer can refer to.
fn named<const N: usize>(names: [(&str, String); N]) -> BTreeMap<String, String> {
    names.into_iter().map(|(key, name)| (key.to_owned(), name)).collect()
}

/// A proof that `with` is not larger than `without` by `ratio`: for healthy work, measured as a time.
fn steady(what: String, with: f64, without: f64, ratio: f64) -> Proof {
    let holds = with > 0.0 && without > 0.0 && with <= without * ratio;
    Proof { what, with, without, least_ratio: ratio, holds }
}

/// The median of some numbers; 0 if there are none.
fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// The largest of some numbers; 0 if there are none.
fn largest(numbers: impl IntoIterator<Item = f64>) -> f64 {
    numbers.into_iter().fold(0.0, f64::max)
}
