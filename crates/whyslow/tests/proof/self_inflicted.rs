//! Waits that a task causes itself, on the live kernel: its own data on their way to a disk that no other task writes to, the work of its
//! own children. The account and the chains show these waits; no cause may count them as a loss.
//!
//! All is drawn; the kernel's count of writes, without the task and beside it, shows whether other tasks left the disk alone.
//! `WHYSLOW_SEED` repeats a run. whyslow's documents are kept under `target/*/tmp/self_inflicted`.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value;
use whyslow_faults::host::Calm;
use whyslow_faults::ledger::Word;
use whyslow_faults::look::Look;
use whyslow_faults::report_checks::{self, Verb};
use whyslow_faults::rounds::{self, Trouble, Verdict};
use whyslow_faults::spec::Work;
use whyslow_faults::{Draw, Fence, Victim, Wrong, thresholds};

/// Rules that could report such a wait as a loss.
const RULES: [&str; 3] = ["lock-wait", "disk-latency", "load-average"];
/// Least share of the time in such waits: with less, the absence of an accusation proves nothing.
const WAITED: f64 = 0.2;
/// Above this share of the CPUs, the task waits for other tasks, too.
const CROWDED: f64 = 0.2;
/// Largest share of all writes that other tasks may issue: less than the share from which a wait counts as theirs (a tenth).
const OTHERS: f64 = 0.05;

/// A task, and the name of its wait.
struct Own {
    work: Work,
    edges: &'static [&'static str],
    /// Whether it writes: then it needs the disk for itself.
    writes: bool,
}

fn look(args: &[&str], label: &str) -> Result<Look, Trouble> {
    let look = crate::look("self_inflicted", label, args)?;
    look.is_sound(Verb::of(args))?;
    report_checks::could_tell(&look.document, &RULES)?;
    Ok(look)
}

/// Writes to all disks until now: the fifth number after each name.
fn writes() -> Result<f64, Trouble> {
    let text = fs::read_to_string("/proc/diskstats")?;
    let of_line = |line: &str| line.split_whitespace().nth(7)?.parse::<f64>().ok();
    Ok(text.lines().filter_map(of_line).sum())
}

/// ... per second.
fn writes_of_others() -> Result<f64, Trouble> {
    let before = writes()?;
    std::thread::sleep(Duration::from_secs(1));
    Ok(writes()? - before)
}

/// Share of the wall time that is reported as waits of these kinds, anywhere in the tree.
fn shown(parts: &Value, edges: &[&str]) -> f64 {
    let all = parts.as_array().map_or(&[][..], Vec::as_slice).iter();
    all.map(|part| match edges.iter().any(|edge| part["reason"] == *edge) {
        true => part["share"].as_f64().unwrap_or(0.0),
        false => shown(&part["parts"], edges),
    })
    .sum()
}

/// A cause that names a task of the test.
fn accused(look: &Look, comm: &str) -> Option<String> {
    let all = look.document["findings"].as_array()?;
    let found = all.iter().find(|found| found["kind"] == "cause" && found.to_string().contains(comm))?;
    Some(format!("reported as a loss, {found} (all of it: {})", look.kept.display()))
}

fn once(draw: &mut Draw, label: &str, own: fn(&mut Draw, &Fence) -> Own) -> Result<Verdict, Trouble> {
    let fence = Fence::enter()?;
    let Own { work, edges, writes: its_writes } = own(draw, &fence);
    let comm = format!("own-{}", draw.word(7));
    let group = fence.group(&draw.word(6))?;
    let mut others = if its_writes { writes_of_others()? } else { 0.0 };
    let victim = Victim::spawn(fence.spec(&group, &comm, 1, work))?;
    // `Work::Vfork`, mode 2: the child computes.
    victim.ledger().word(Word::Mode).store(2, Ordering::Release);
    victim.go();
    std::thread::sleep(thresholds::SETTLE);
    let (began, before) = (Instant::now(), writes()?);
    let host = look(&["exam"], label)?;
    let written = (writes()? - before) / began.elapsed().as_secs_f64();
    let calm = Calm::watch(Some(fence.top()))?;
    let near = look(&["attach", &victim.pid().to_string()], &format!("{label}-attached"))?;
    let crowded = calm.crowded(Some(fence.top()), near.own_cpu(), CROWDED)?;
    drop(victim);
    others = if its_writes { others.max(writes_of_others()?) } else { others };
    fence.check_time()?;
    let shown = shown(&near.document["wall"]["parts"], edges);
    let said = format!(
        "{comm}, {shown:.2} of the time is reported as {edges:?}, {written:.0} writes/s, {others:.0} of others, {crowded:?} (all of it: {})",
        near.kept.display()
    );
    if its_writes && others > written * OTHERS {
        return Ok(Verdict::Again(format!("the disk was not its own: {said}")));
    }
    Ok(match (accused(&host, &comm).or_else(|| accused(&near, &comm)), crowded) {
        (Some(wrong), _) => Verdict::Wrong(Wrong::accused(format!("{wrong}; {said}"))),
        (None, _) if shown >= WAITED => Verdict::Passed,
        // A disk is fast, and a task that waits for CPUs between two writes hardly waits for the disk.
        (None, Some(_)) if its_writes => Verdict::Again(said),
        (None, _) => Verdict::Wrong(Wrong::missed(said)),
    })
}

fn is_no_loss(cell: &str, own: fn(&mut Draw, &Fence) -> Own) {
    rounds::run_judged(&cell, &crate::kept_in("self_inflicted"), |draw, label| once(draw, label, own));
}

const OF_A_WRITER: &[&str] = &["journal", "writeback", "block-io", "dirty-throttling", "wbt"];

#[test]
fn root_small_writes_with_fsync_alone_on_a_disk_are_no_loss() {
    is_no_loss("own-fsync", |draw, fence| {
        let (block, rest_us) = (draw.between(1, 16) << 10, draw.between(1, 60));
        let each = draw.between(1, 3);
        let file = fence.dir().join("small");
        Own {
            work: Work::Sync { file, block, each, most: 8 << 20, rest_us },
            edges: OF_A_WRITER,
            writes: true,
        }
    });
}

#[test]
fn root_a_stream_that_is_synced_alone_on_a_disk_is_no_loss() {
    is_no_loss("own-stream", |draw, fence| {
        let (block, each) = (draw.between(2, 8) << 17, draw.between(40, 90));
        let file = fence.dir().join("stream");
        Own {
            work: Work::Sync { file, block, each, most: 96 << 20, rest_us: 0 },
            edges: OF_A_WRITER,
            writes: true,
        }
    });
}

#[test]
fn root_wait_for_a_busy_child_is_no_loss() {
    is_no_loss("own-wait4", |draw, _| Own {
        work: Work::Fork { burst_us: draw.between(60, 300) * 1000 },
        edges: &["child"],
        writes: false,
    });
}

#[test]
fn root_wait_for_a_vforked_child_is_no_loss() {
    is_no_loss("own-vfork", |draw, _| Own {
        work: Work::Vfork { child_us: draw.between(60, 300) * 1000 },
        edges: &["vfork"],
        writes: false,
    });
}
