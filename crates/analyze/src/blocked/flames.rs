//! Samples as a flame graph: the thread, its stack from the outermost frame, what it waited for, and the holders behind it.

use std::collections::BTreeMap;

use whyslow_model::Recording;
use whyslow_model::blocked::Blocked;

use super::as_span;
use super::holders::{Rows, alike};
use crate::graph::folded;
use crate::stacks::flame::{Picture, frame};
use crate::wait_reasons::Stacks;
use crate::works;

/// What the flame graph of the samples shows. A sample stands for the time from one pass to the next.
#[must_use]
pub fn blocked_picture(recording: &Recording) -> Picture {
    let stacks = Stacks::in_recording(recording);
    let rows = recording.tables.blocked.as_deref().unwrap_or_default();
    let passes = rows.iter().map(|row| row.passes).max().unwrap_or(0).max(1);
    let period = recording.meta.window_ns / passes;
    let known = Rows::of(rows, &stacks);
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.samples > 0 && !recording.meta.is_own(row.pid, row.tgid)) {
        let frames: Vec<String> = labels(row, &known, &stacks).iter().map(|label| frame(label)).collect();
        let ns = lines.entry(frames.join(";")).or_default();
        *ns = ns.saturating_add(row.samples.saturating_mul(period));
    }
    Picture {
        title: "Tasks in D state".to_owned(),
        subtitle: format!(
            "The root is as wide as the time that all tasks waited, by samples in {passes} passes"
        ),
        lines: lines.into_iter().collect(),
    }
}

fn labels(row: &Blocked, known: &Rows<'_>, stacks: &Stacks<'_>) -> Vec<String> {
    let mut labels = vec![folded(&row.comm)];
    labels.extend(stacks.kernel(row.stack).iter().rev().cloned());
    labels.push(format!("-- waits for {}", works::what(&as_span(row), stacks)));
    for holder in known.chain(row).holders {
        labels.push(alike(&holder).to_string());
        if !holder.what.is_empty() {
            labels.push(format!("-- waits for {}", holder.what));
        }
    }
    labels
}
