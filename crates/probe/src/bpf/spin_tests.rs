//! Threads of the test that spin and work, and what the samples show of them.

use std::arch::asm;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::oncpu::{BLOCK_BITS, Hit, OnCpu, Pace, RawSamples};

/// CPU time of each kind of thread: some 60 samples.
const BUSY: Duration = Duration::from_millis(120);
/// A thread that yields on a busy host has to wait for each bit of it.
const BUSY_YIELDING: Duration = Duration::from_millis(40);

static STOP: AtomicBool = AtomicBool::new(false);

// In assembly: the test must see this code, however the test itself is compiled.

fn pauses() {
    // SAFETY: reads a static byte until it is set.
    unsafe { asm!("2:", "pause", "cmp byte ptr [{flag}], 0", "je 2b", flag = in(reg) STOP.as_ptr()) }
}

fn polls() {
    // SAFETY: as above.
    unsafe { asm!("2:", "cmp byte ptr [{flag}], 0", "je 2b", flag = in(reg) STOP.as_ptr()) }
}

fn yields() {
    while !STOP.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
}

fn computes() {
    // SAFETY: reads a static byte until it is set; its numbers are its own.
    unsafe {
        asm!(
            "2:",
            "imul {state}, {factor}",
            "inc {state}",
            "cmp byte ptr [{flag}], 0",
            "je 2b",
            flag = in(reg) STOP.as_ptr(),
            factor = in(reg) 6_364_136_223_846_793_005_u64,
            state = inout(reg) 1_u64 => _,
        );
    }
}

/// The samples of one thread that ran `work` for so much CPU time.
fn seen_of(work: fn(), busy: Duration) -> (RawSamples, Vec<usize>) {
    let pid = AtomicU32::new(0);
    STOP.store(false, Ordering::Relaxed);
    let mut slot = MaybeUninit::uninit();
    let mut probe = OnCpu::start(&mut slot, &[0, 1], Pace::Close).expect("root may sample");
    let (tell, hear) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: no arguments; the thread lives on until it is told to stop.
            let _ = tell.send(unsafe { libc::pthread_self() });
            // SAFETY: gettid has no arguments and cannot fail.
            pid.store(unsafe { libc::gettid() } as u32, Ordering::Relaxed);
            work();
        });
        let worker = hear.recv().expect("it says who it is");
        while cpu_time(worker) < busy {
            std::thread::sleep(Duration::from_millis(10));
        }
        STOP.store(true, Ordering::Relaxed);
    });
    let seen = probe.finish().unwrap();
    assert_eq!(probe.lost(), 0);
    let pid = pid.load(Ordering::Relaxed);
    let mine = seen.hits.iter().enumerate().filter(|(_, hit)| hit.key.pid == pid).map(|(at, _)| at);
    let mine = mine.collect();
    (seen, mine)
}

fn cpu_time(thread: libc::pthread_t) -> Duration {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: the thread is not joined yet; the pointers are to locals.
    unsafe {
        libc::pthread_getcpuclockid(thread, &raw mut clock);
        libc::clock_gettime(clock, &raw mut time);
    }
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn sum(seen: &RawSamples, mine: &[usize], of: impl Fn(&Hit) -> u64) -> f64 {
    mine.iter().map(|at| of(&seen.hits[*at]) as f64).sum()
}

fn user(hit: &Hit) -> u64 {
    if hit.key.kernel_mode == 0 { hit.count } else { 0 }
}

/// The hottest address of the thread has its code kept, and the address lies in it.
fn code_of(seen: &RawSamples, mine: &[usize]) -> Vec<u8> {
    let hottest = mine.iter().map(|at| &seen.hits[*at]).max_by_key(|hit| user(hit)).expect("it was sampled");
    let block = hottest.key.ip >> BLOCK_BITS << BLOCK_BITS;
    let code = seen.codes.iter().find(|code| code.tgid == hottest.key.tgid && code.block == block);
    let code = code.expect("its code is kept");
    assert!((code.start..code.start + code.bytes.len() as u64).contains(&hottest.key.ip));
    code.bytes.clone()
}

/// One test, as they share the flag.
#[test]
fn root_registers_and_code_tell_waiting_from_working() {
    let (seen, mine) = seen_of(polls, BUSY);
    let (all, same) = (sum(&seen, &mine, user), sum(&seen, &mine, |hit| hit.same));
    assert!(all > 20.0 && same > 0.5 * all, "a flag is polled with the same registers: {same} of {all}");
    code_of(&seen, &mine);

    let (seen, mine) = seen_of(pauses, BUSY);
    let code = code_of(&seen, &mine);
    assert!(code.windows(2).any(|pair| pair == [0xf3, 0x90]), "the pause is in the code: {code:02x?}");

    let (seen, mine) = seen_of(computes, BUSY);
    let (all, same) = (sum(&seen, &mine, user), sum(&seen, &mine, |hit| hit.same));
    assert!(all > 20.0 && same < 0.1 * all, "what computes changes its registers: {same} of {all}");

    let (seen, mine) = seen_of(yields, BUSY_YIELDING);
    let all = sum(&seen, &mine, |hit| hit.count);
    let yields = |hit: &Hit| if hit.key.call == libc::SYS_sched_yield as i32 { hit.count } else { 0 };
    let inside = sum(&seen, &mine, yields);
    assert!(inside > 0.2 * all, "in sched_yield: {inside} of {all}");
    let sites: std::collections::BTreeSet<u64> =
        mine.iter().map(|at| &seen.hits[*at]).filter(|hit| yields(hit) > 0).map(|hit| hit.key.ip).collect();
    assert_eq!(sites.len(), 1, "it returns to one place");
}
