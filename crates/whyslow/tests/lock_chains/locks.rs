//! Whether the waits for a kernel lock and its holder are reported.

use serde_json::Value;
use whyslow_faults::clock::Span;
use whyslow_faults::lock_chain::Link;
use whyslow_faults::{Wrong, thresholds};

use crate::climb::Climbed;

/// A reported wait may differ by this part of it, or by the cost of a system call beside its lock.
const EXACT: f64 = 0.10;
const BESIDE_S: f64 = 0.001;

/// An exam reports the start of its window to 10 ms, by the wall clock.
const EDGE_NS: u64 = 12_000_000;

/// Waits of one link, by the clock of the waiter.
struct Waits {
    /// Waits that lie wholly in the window, wherever its edges really are.
    whole: Vec<f64>,
    /// These, and the waits that the window cuts, even those of which only an instant lies in it: with the window as reported, and at its
    /// widest.
    all: [Vec<f64>; 2],
    /// These, and the waits that ended at once: the lock may or may not have been free.
    at_most: usize,
}

impl Waits {
    /// Bounds of a figure of the waits.
    fn bounds(&self, of: impl Fn(&[f64]) -> f64) -> [f64; 2] {
        let [reported, widest] = &self.all;
        let figures = [of(&self.whole), of(reported), of(widest)];
        [figures.iter().copied().fold(f64::MAX, f64::min), figures.iter().copied().fold(0.0, f64::max)]
    }
}

/// Whether all kernel locks on the lock chain are reported correctly.
pub fn judge(climbed: &Climbed) -> Result<(), Wrong> {
    let links = climbed.plan.links.iter().enumerate();
    for (index, link) in links.filter(|(_, link)| link.is_of_kernel()) {
        lock(climbed, index, *link).map_err(|wrong| {
            let names = [index, index + 1].map(|position| climbed.reported.names[position].as_str());
            let reported = serde_json::to_string_pretty(&climbed.look.document["locks"]).unwrap_or_default();
            wrong.told(|what| {
                format!(
                    "{link:?} that {} wants of {}: {what}\n{climbed}\n{reported:.4000}",
                    names[0], names[1]
                )
            })
        })?;
    }
    Ok(())
}

fn lock(climbed: &Climbed, index: usize, link: Link) -> Result<(), Wrong> {
    let read = matches!(link, Link::File { read: true } | Link::AddressSpace { read: true });
    let (side, other) = if read { ("read", "write") } else { ("write", "read") };
    let holder = u64::from(climbed.reported.tids[index + 1]);
    let truth = waits(climbed, index);
    let total: f64 = truth.all[0].iter().sum();
    let held_by = |lock: &&Value| {
        let holders = lock["holders"].as_array();
        holders.into_iter().flatten().any(|who| who["pid"].as_u64() == Some(holder))
    };
    let reported_s = |lock: &Value, side: &str| lock[side]["total_s"].as_f64().unwrap_or(0.0);
    let ours = climbed.look.document["locks"].as_array().into_iter().flatten().filter(held_by);
    let Some(lock) = ours
        .min_by(|a, b| (reported_s(a, side) - total).abs().total_cmp(&(reported_s(b, side) - total).abs()))
    else {
        return Err(format!("no reported lock is held by {holder}").into());
    };
    if reported_s(lock, other) > EXACT * total {
        return Err(Wrong::inexact(format!("waits to {other} are reported: {}", lock[other])));
    }
    // Other tasks want the lock, too: the kernel's workers that free removed cgroups (css_release_work_fn).
    let sites = lock["sites"].as_array().into_iter().flatten();
    let of_workers = |what: &str| {
        let theirs =
            sites.clone().filter(|site| site["site"].as_str().is_some_and(|at| at.contains("worker_thread")));
        theirs.filter_map(|site| site[what].as_f64()).sum::<f64>()
    };
    let count = lock[side]["count"].as_f64().unwrap_or(0.0) - of_workers("count");
    // On emulated CPUs these workers are slow enough to block the thread, and to block on it.
    let most = truth.at_most as f64 * if thresholds::is_emulated() { 2.0 } else { 1.0 };
    if count < truth.whole.len() as f64 || count > most {
        let what = format!("{count} waits, by its own clock {} to {}", truth.whole.len(), truth.at_most);
        return Err(Wrong::inexact(what));
    }
    let worst = lock[side]["worst_s"].as_f64().unwrap_or(0.0);
    is_near("the longest", worst, truth.bounds(longest))?;
    is_near(
        "the average",
        (reported_s(lock, side) - of_workers("total_s")) / count.max(1.0),
        truth.bounds(mean),
    )
}

/// The thread's waits at this position, from before its system call until after it.
fn waits(climbed: &Climbed, position: usize) -> Waits {
    let window = climbed.window;
    let narrow = Span { from: window.from.saturating_add(EDGE_NS), to: window.to.saturating_sub(EDGE_NS) };
    let wide = Span { from: window.from.saturating_sub(EDGE_NS), to: window.to.saturating_add(EDGE_NS) };
    let rounds = climbed.reported.rounds.iter();
    let of_thread: Vec<_> = rounds.filter_map(|round| round.waits.get(position)).collect();
    let seen = |window: Span| {
        let all = of_thread.iter().filter(move |wait| wait.from < window.to && wait.to > window.from);
        all.filter(|wait| wait.length().as_secs_f64() > BESIDE_S)
            .map(move |wait| (wait.to.min(window.to) - wait.from.max(window.from)) as f64 / 1e9)
            .collect()
    };
    let whole = climbed.reported.waits(position, narrow).into_iter().filter(|s| *s > BESIDE_S);
    let at_most = of_thread.iter().filter(|wait| wait.from < wide.to && wait.to > wide.from).count();
    Waits { whole: whole.collect(), all: [seen(window), seen(wide)], at_most }
}

fn longest(waits: &[f64]) -> f64 {
    waits.iter().copied().fold(0.0, f64::max)
}

fn mean(waits: &[f64]) -> f64 {
    waits.iter().sum::<f64>() / waits.len().max(1) as f64
}

fn is_near(what: &str, reported: f64, truths: [f64; 2]) -> Result<(), Wrong> {
    let [low, high] = [truths[0].min(truths[1]), truths[0].max(truths[1])];
    let slack = |of: f64| {
        if thresholds::is_emulated() { thresholds::slack_s(of) } else { (EXACT * of).max(BESIDE_S) }
    };
    if reported >= low - slack(low) && reported <= high + slack(high) {
        return Ok(());
    }
    let what = format!("{what} is reported as {reported:.4} s, by its own clock {low:.4} to {high:.4} s");
    Err(Wrong::inexact(what))
}
