//! What each step of `whyslow report FILE` costs on a large host: `cargo run --release -p whyslow --example scale -- [PART]`.
//!
//! 500 throttled groups, 100,000 tasks and cgroups, 512 CPUs; with PART 1 in so many of each.

use std::time::Duration;

use whyslow::store;
use whyslow_analyze::{Evidence, examine, rules};

#[path = "../tests/scale/host.rs"]
mod host;
#[path = "../tests/scale/largest.rs"]
mod largest;

/// CPU time of this process.
fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` has room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn timed<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let before = cpu();
    let result = run();
    let took = cpu() - before;
    if took > Duration::from_millis(2) {
        println!("{what:>24} {:>9.1} ms", took.as_secs_f64() * 1e3);
    }
    result
}

/// Peak resident memory, in MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0_u64) >> 10
}

fn main() -> anyhow::Result<()> {
    let part = std::env::args().nth(1).and_then(|part| part.parse().ok()).unwrap_or(1);
    let path = std::env::temp_dir().join(format!("whyslow-scale-{}.why", std::process::id()));
    if let Some(path) = std::env::args().nth(2) {
        let drawn = timed("draw", || host::recording(largest::LARGEST.part(part), 1));
        store::save(&drawn, path.as_ref())?;
        return Ok(());
    }
    let drawn = timed("draw", || host::recording(largest::LARGEST.part(part), 1));
    timed("save", || store::save(&drawn, &path))?;
    drop(drawn);
    let recording = timed("open", || store::open(&path))?;
    std::fs::remove_file(&path)?;
    println!("{:>24} {:>9} MiB (drawn as well), torn: {:?}", "peak", peak(), recording.torn);
    let ev = Evidence::of(&recording);
    for rule in rules::ALL {
        timed(rule.id, || {
            let found = (rule.check)(&ev);
            if let Some(ask) = rule.rules_out {
                let _ = ask(&ev);
            }
            found
        })
        .ok();
    }
    timed("chains", || whyslow_analyze::graph::chains(&recording));
    timed("locks", || whyslow_analyze::locks::locks(&recording));
    timed("calls", || whyslow_analyze::stacks::calls::calls(&recording));
    timed("slow calls", || whyslow_analyze::stacks::calls::slow_calls(&recording));
    timed("cpus", || whyslow_analyze::cpu::speed::rows(&ev));
    let document = timed("examine, all of it", || examine(&recording));
    timed("text", || whyslow_report::text(&document, &whyslow_report::Style::default()).len());
    timed("json", || whyslow_report::json(&document).len());
    println!("{:>24} {:>9} MiB, {} findings", "peak", peak(), document.findings.len());
    Ok(())
}
