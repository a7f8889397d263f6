//! Whether the waits for a lock of the kernel are told, and who held it.

use serde_json::Value;
use whyslow_faults::bars;
use whyslow_faults::ladder::Rung;

use crate::climb::Climbed;

/// What is told of a wait may differ by this part of it, or by what a system call costs beside its lock.
const EXACT: f64 = 0.10;
const BESIDE_S: f64 = 0.001;

/// Waits of one rung, by the clock of the thread that waited.
struct Waits {
    /// Those wholly in the window.
    whole: Vec<f64>,
    /// With those that the window cuts, as far as they are in it, be it for an instant.
    all: Vec<f64>,
    /// With those that were over at once: the lock may have been free, or not.
    at_most: usize,
}

/// All locks of the kernel on the ladder are told right.
pub fn judge(climbed: &Climbed) -> Result<(), String> {
    let rungs = climbed.plan.rungs.iter().enumerate();
    for (index, rung) in rungs.filter(|(_, rung)| rung.is_of_kernel()) {
        lock(climbed, index, *rung).map_err(|what| {
            let names = [index, index + 1].map(|position| climbed.told.names[position].as_str());
            let told = serde_json::to_string_pretty(&climbed.look.document["locks"]).unwrap_or_default();
            format!("{rung:?} that {} wants of {}: {what}\n{climbed}\n{told:.4000}", names[0], names[1])
        })?;
    }
    Ok(())
}

fn lock(climbed: &Climbed, index: usize, rung: Rung) -> Result<(), String> {
    let read = matches!(rung, Rung::File { read: true } | Rung::AddressSpace { read: true });
    let (side, other) = if read { ("read", "write") } else { ("write", "read") };
    let holder = u64::from(climbed.told.tids[index + 1]);
    let truth = waits(climbed, index);
    let total: f64 = truth.all.iter().sum();
    let held_by = |lock: &&Value| {
        let holders = lock["holders"].as_array();
        holders.into_iter().flatten().any(|who| who["pid"].as_u64() == Some(holder))
    };
    let told_s = |lock: &Value, side: &str| lock[side]["total_s"].as_f64().unwrap_or(0.0);
    let ours = climbed.look.document["locks"].as_array().into_iter().flatten().filter(held_by);
    let Some(lock) =
        ours.min_by(|a, b| (told_s(a, side) - total).abs().total_cmp(&(told_s(b, side) - total).abs()))
    else {
        return Err(format!("no lock is told to be held by {holder}"));
    };
    if told_s(lock, other) > EXACT * total {
        return Err(format!("waits to {other} are told: {}", lock[other]));
    }
    let count = lock[side]["count"].as_f64().unwrap_or(0.0);
    // Others want the lock, too: the kernel's workers that free removed cgroups. On emulated CPUs they are slow enough to be
    // waited for, and to wait.
    let most = truth.at_most as f64 * if bars::is_emulated() { 2.0 } else { 1.0 };
    if count < truth.whole.len() as f64 || count > most {
        return Err(format!("{count} waits, by its own clock {} or {}", truth.whole.len(), truth.at_most));
    }
    let worst = lock[side]["worst_s"].as_f64().unwrap_or(0.0);
    is_near("the longest", worst, [longest(&truth.whole), longest(&truth.all)])?;
    is_near("the average", told_s(lock, side) / count.max(1.0), [mean(&truth.whole), mean(&truth.all)])
}

/// The thread's waits at this position, from before its system call to after.
fn waits(climbed: &Climbed, position: usize) -> Waits {
    let window = climbed.window;
    let of_thread = climbed.told.rounds.iter().filter_map(|round| round.waits.get(position));
    let seen: Vec<_> = of_thread.filter(|wait| wait.from < window.to && wait.to > window.from).collect();
    let all = seen
        .iter()
        .filter(|wait| wait.to.saturating_sub(wait.from) as f64 / 1e9 > BESIDE_S)
        .map(|wait| (wait.to.min(window.to) - wait.from.max(window.from)) as f64 / 1e9);
    let whole = climbed.told.waits(position, window).into_iter().filter(|s| *s > BESIDE_S);
    Waits { whole: whole.collect(), all: all.collect(), at_most: seen.len() }
}

fn longest(waits: &[f64]) -> f64 {
    waits.iter().copied().fold(0.0, f64::max)
}

fn mean(waits: &[f64]) -> f64 {
    waits.iter().sum::<f64>() / waits.len().max(1) as f64
}

fn is_near(what: &str, told: f64, truths: [f64; 2]) -> Result<(), String> {
    let [low, high] = [truths[0].min(truths[1]), truths[0].max(truths[1])];
    let slack = |of: f64| if bars::is_emulated() { bars::slack_s(of) } else { (EXACT * of).max(BESIDE_S) };
    if told >= low - slack(low) && told <= high + slack(high) {
        return Ok(());
    }
    Err(format!("{what} is told as {told:.4} s, by its own clock {low:.4} to {high:.4} s"))
}
