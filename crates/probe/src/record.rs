//! One window, from start to end: load the probes, read the files, wait, read again, put it all into a recording.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use whyslow_model::{FORMAT, Meta, MissingNote, Recording};

use crate::cost;
use crate::files::{Files, Moment, Seen};
use crate::host;
use crate::probes::{Probes, Slots};

/// How often the ring buffers are emptied.
const BEAT: Duration = Duration::from_millis(200);
/// The hazardous rows get this long, at most, after the window.
const HAZARD_DEADLINE: Duration = Duration::from_millis(250);
/// Processes whose /proc files are read: the busiest.
const BUSIEST: usize = 20;

/// What to record.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Length of the window.
    pub window: Duration,
    /// Where /proc and /sys are: "/" live; an unpacked recording is a host, too (files only, no BPF).
    pub root: PathBuf,
    /// Version of the program, for the recording.
    pub version: String,
}

/// Record one window. `stop` ends it early; `progress` is told the time left about once a second.
pub fn record(plan: &Plan, stop: &AtomicBool, progress: &mut dyn FnMut(Duration)) -> Recording {
    go_first();
    crate::bpf::hush();
    let before = cost::so_far();
    let mut seen = Seen { frames: Vec::new(), missing: Vec::new() };
    let mut files = Files::open(&plan.root);
    let mut slots = Slots::default();
    let mut probes = Probes::load(&mut slots, plan.root == Path::new("/"), &mut seen.missing);

    files.read(Moment::Start, Duration::ZERO, &[], &mut seen);
    probes.begin(&mut seen.missing);
    let (started_at, began) = (host::now_rfc3339(), Instant::now());
    let interrupted = wait_out(plan.window, began, stop, progress, &mut |at, second| {
        probes.poll(at, plan.window);
        if second {
            files.read(Moment::Second, at, &[], &mut seen);
        }
    });
    let window = began.elapsed();
    let traced = probes.end(window, &mut seen.missing);
    files.read(Moment::End, window, &traced.busiest(BUSIEST), &mut seen);

    let lost_events = traced.lost.clone();
    let own_bpf_ns = traced.own_bpf_ns;
    let tables = traced.into_tables(&files, probes.kallsyms(), window, &mut seen.missing);
    files.read_hazardous(window, HAZARD_DEADLINE, &mut seen);
    drop(probes);
    let spent = cost::so_far();
    let meta = Meta {
        format: FORMAT,
        whyslow: plan.version.clone(),
        started_at,
        window_ns: window.as_nanos() as u64,
        own_pids: vec![std::process::id()],
        own_cpu_ns: spent.cpu.saturating_sub(before.cpu).as_nanos() as u64,
        own_rss_bytes: spent.rss_bytes,
        own_bpf_ns,
        lost_events,
        interrupted,
        ..host::facts(&plan.root)
    };
    Recording { meta, frames: seen.frames, tables, missing: once_each(seen.missing), torn: None }
}

/// Beat until the window is over or `stop` is set; true if stopped.
fn wait_out(
    window: Duration,
    began: Instant,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Duration),
    beat: &mut dyn FnMut(Duration, bool),
) -> bool {
    let mut next_second = Duration::from_secs(1);
    progress(window);
    loop {
        let at = began.elapsed();
        if at >= window {
            return false;
        }
        if stop.load(Ordering::Relaxed) {
            return true;
        }
        let second = at >= next_second;
        if second {
            next_second += Duration::from_secs(1);
            progress(window.saturating_sub(at));
        }
        beat(at, second);
        nap(BEAT.min(window.saturating_sub(began.elapsed())));
    }
}

/// On a host with forty tasks a CPU our quarter second of work would take ten: the answer is wanted while it matters.
fn go_first() {
    // SAFETY: plain numbers; refused without CAP_SYS_NICE, and then we wait like everybody.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}

/// Sleep, but let a signal (Ctrl-C) end it: `std::thread::sleep` would go on.
fn nap(time: Duration) {
    let time = libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    // SAFETY: the pointer is to a local timespec, and the remainder is not asked for.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}

fn once_each(mut notes: Vec<MissingNote>) -> Vec<MissingNote> {
    let mut known = std::collections::HashSet::new();
    notes.retain(|note| known.insert(note.text.clone()));
    notes
}
