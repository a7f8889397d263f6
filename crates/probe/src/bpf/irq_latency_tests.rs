use std::time::{Duration, Instant};

use super::*;

/// The calls of a thread by its own clock.
struct Calls {
    pid: u32,
    count: u64,
    longest: Duration,
}

/// membarrier(2): interrupts every CPU that runs a thread of ours, and waits for all of them.
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: takes three numbers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;

fn pin(cpu: usize) {
    // SAFETY: a zeroed set is an empty one; the pointer is to a local of the size that is reported.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Calls from a thread on CPU 0 to one that is busy on CPU 1. Those count during which that thread went on: while other tasks have its CPU
/// it is not interrupted.
fn call_for(lasts: Duration) -> Calls {
    assert!(membarrier(REGISTER_PRIVATE_EXPEDITED), "this kernel has membarrier");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let turns = std::sync::atomic::AtomicU64::new(0);
    let turn = || turns.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        });
        let caller = scope.spawn(|| {
            pin(0);
            let (until, mut count, mut longest) = (Instant::now() + lasts, 0, Duration::ZERO);
            while Instant::now() < until {
                let (began, before) = (Instant::now(), turn());
                assert!(membarrier(PRIVATE_EXPEDITED));
                longest = longest.max(began.elapsed());
                count += u64::from(turn() > before + 1);
            }
            // SAFETY: gettid has no arguments and cannot fail.
            Calls { pid: unsafe { libc::gettid() } as u32, count, longest }
        });
        let calls = caller.join().unwrap();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        calls
    })
}

fn running(seen: &RawIrqLatency, cpu: usize) -> irqlat_wakes {
    *seen.wakes.get(cpu).and_then(|states| states.get(RUNS as usize)).unwrap()
}

#[test]
fn root_calls_that_are_waited_for_are_counted_where_they_arrive() {
    let kernel = Btf::from_vmlinux().unwrap();
    let kernel = Kernel::of(&kernel);
    if !kernel.calls {
        return; // the lab's kernels have the other probe
    }
    let mut slot = MaybeUninit::uninit();
    let mut late = IrqLatency::start(&mut slot, &Kallsyms::read(), kernel).expect("root may trace");
    late.begin();
    let calls = call_for(Duration::from_millis(600));
    let (seen, lost) = late.finish().unwrap();
    assert_eq!(lost, 0);
    assert!(seen.calls);
    // Timers are counted, too; a ration bounds all.
    let counted = running(&seen, 1).count + seen.unseen;
    assert!(counted > calls.count / 8 && calls.count > 100, "{counted} of {}", calls.count);
    for (key, row) in seen.rows.iter().filter(|(key, _)| key.pid == calls.pid && key.kind == LATE_CALL) {
        assert!(row.worst_ns <= calls.longest.as_nanos() as u64 + 100_000, "{} ns", row.worst_ns);
        assert!(row.worst_ns >= 500_000 && row.paid_ns <= row.total_ns && key.cpu == 1);
    }
}

#[test]
fn root_sums_over_classes_are_the_count_and_gaps_lie_in_the_window() {
    let mut slot = MaybeUninit::uninit();
    let kernel = Kernel::of(&Btf::from_vmlinux().unwrap());
    let before = crate::host::monotonic_ns();
    let mut late = IrqLatency::start(&mut slot, &Kallsyms::read(), kernel).expect("root may trace");
    late.begin();
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (seen, _) = late.finish().unwrap();
    let after = crate::host::monotonic_ns();
    let all: Vec<&irqlat_wakes> = seen.wakes.iter().flatten().collect();
    // A timer each millisecond was ours.
    assert!(all.iter().map(|w| w.count).sum::<u64>() > 100);
    assert!(all.iter().all(|w| w.by_delay.iter().sum::<u64>() == w.count && w.late <= w.count));
    for (gap, _) in &seen.gaps {
        assert!(gap.at > before && gap.at < after && gap.ns >= 1_000_000);
    }
    let ends: std::collections::BTreeSet<_> = seen.gaps.iter().map(|(gap, _)| (gap.cpu, gap.at)).collect();
    assert_eq!(ends.len(), seen.gaps.len(), "each gap is reported once");
    let ours = seen.rows.iter().filter(|(key, row)| key.kind != LATE_CALL && row.tgid == std::process::id());
    for (_, row) in ours {
        assert!(row.paid_ns <= row.total_ns && row.worst_ns <= row.total_ns);
    }
}

/// Column `steal` of each CPU's line, in ticks.
fn steal_ticks() -> Vec<u64> {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let lines = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    lines.map(|line| line.split_ascii_whitespace().nth(8).map_or(0, |ticks| ticks.parse().unwrap())).collect()
}

#[test]
fn root_steal_time_matches_the_kernels_account() {
    let kernel = Kernel::of(&Btf::from_vmlinux().unwrap());
    let mut slot = MaybeUninit::uninit();
    let mut late = IrqLatency::start(&mut slot, &Kallsyms::read(), kernel).expect("root may trace");
    late.begin();
    for cpu in 0..steal_ticks().len() {
        std::thread::spawn(move || {
            pin(cpu);
            std::thread::sleep(Duration::from_millis(20)); // its timer goes off there
        });
    }
    let until = Instant::now() + Duration::from_secs(20);
    // The kernel accounts it at ticks; a hypervisor that reports nothing leaves zeroes in both.
    let is_accounted = |late: &IrqLatency<'_>| {
        let (ticks, stolen) = (steal_ticks(), late.stolen());
        let near = |(ticks, ns): (&u64, &u64)| ticks.abs_diff(ns / 10_000_000) <= 2 + ticks / 10;
        stolen.len() >= ticks.len() && ticks.iter().zip(&stolen).all(near)
    };
    while !is_accounted(&late) {
        assert!(Instant::now() < until, "{:?} ticks, {:?} ns", steal_ticks(), late.stolen());
        std::thread::sleep(Duration::from_millis(10));
    }
}
