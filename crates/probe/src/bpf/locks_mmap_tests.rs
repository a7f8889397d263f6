use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use whyslow_model::timeline::{HoldSeen, Lock};

use super::tests::{CPUS, now_ns};
use super::*;
use crate::kallsyms::Kallsyms;
use crate::lock_table;
use crate::symbols::KernelNames;
use crate::test_stuck::tid;

/// A walk takes at least so long.
const WALK: Duration = Duration::from_millis(4);

/// A mapping that `mprotect` walks while `mincore` waits to look at it.
struct Pages(*mut libc::c_void, usize);
// SAFETY: an address; the threads of the test only make system calls with it.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    fn new(len: usize) -> Self {
        // SAFETY: a new private mapping; populated, so that there is something to walk.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            libc::madvise(at, len, libc::MADV_NOHUGEPAGE);
            assert_eq!(libc::madvise(at, len, libc::MADV_POPULATE_WRITE), 0);
            Pages(at, len)
        }
    }

    /// So many that a walk over them takes several times as long as a wait whose holder is reported (1 ms): how long that is depends
    /// on the machine.
    fn that_take_long() -> Self {
        let mut len = 128 << 20;
        loop {
            let pages = Pages::new(len);
            let began = Instant::now();
            pages.protect(libc::PROT_READ);
            pages.protect(libc::PROT_READ | libc::PROT_WRITE);
            if began.elapsed() >= 2 * WALK || len >= 1 << 30 {
                return pages;
            }
            len *= 2;
        }
    }

    fn protect(&self, how: i32) {
        // SAFETY: the mapping is ours, and no thread touches its bytes.
        assert_eq!(unsafe { libc::mprotect(self.0, self.1, how) }, 0);
    }

    /// Takes mmap_lock for reading; how long that took, and whether it slept and was not preempted
    /// besides: then all of it, nearly, was the wait.
    fn look(&self) -> (u64, bool) {
        let (slept, preempted) = switches();
        let (mut byte, began) = (0u8, Instant::now());
        // SAFETY: queries one page; the answer is one byte.
        assert_eq!(unsafe { libc::mincore(self.0, 4096, &raw mut byte) }, 0);
        let took = began.elapsed().as_nanos() as u64;
        let (sleeps, preemptions) = switches();
        (took, sleeps > slept && preemptions == preempted)
    }
}

/// How often this thread has given up the CPU, and how often it was taken from it.
fn switches() -> (i64, i64) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a local of that type, whose bytes may all be zero.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    (usage.ru_nvcsw, usage.ru_nivcsw)
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and the threads have ended.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

/// What the threads of the test did, by their own clocks.
struct Contention {
    holder: u32,
    waiter: u32,
    /// Looks that only slept.
    slept: Vec<u64>,
    /// Looks that took longer than one that finds the lock free: some were only without a CPU.
    long: Vec<u64>,
    /// Time in which the waiter was ready and had no CPU: of a look that slept, the lock had been free for so long.
    ready: u64,
}

/// One thread protects the pages, over and over, while another queries one of them.
fn contend(pages: &Pages) -> Contention {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                pages.protect(libc::PROT_READ);
                pages.protect(libc::PROT_READ | libc::PROT_WRITE);
            }
            tid()
        });
        let waiter = scope.spawn(|| {
            let until = Instant::now() + Duration::from_secs(20);
            let (mut slept, mut long) = (Vec::new(), Vec::new());
            let before = ready_ns();
            while slept.len() < 200 && Instant::now() < until {
                let (took, has_slept) = pages.look();
                slept.extend(has_slept.then_some(took));
                long.extend((has_slept || took > 20_000).then_some(took));
            }
            done.store(true, Ordering::Relaxed);
            (tid(), slept, long, ready_ns() - before)
        });
        let (waiter, slept, long, ready) = waiter.join().unwrap();
        Contention { holder: holder.join().unwrap(), waiter, slept, long, ready }
    })
}

/// Time in which this thread was ready and did not run (the second figure, CONFIG_SCHED_INFO).
fn ready_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Time that the hypervisor took from all CPUs since boot (/proc/stat: the eighth figure, in ticks of 10 ms), and a tick that
/// is not full yet.
fn stolen_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    let ticks = text.lines().next().and_then(|line| line.split_whitespace().nth(8)).unwrap();
    (ticks.parse::<u64>().unwrap() + 1) * 10_000_000
}

#[test]
fn root_waits_for_mmap_lock_are_as_long_as_the_waiters_clock_says() {
    let pages = Pages::that_take_long();
    let mut slot = MaybeUninit::uninit();
    let begin = now_ns();
    let mut probe = Locks::start(&mut slot, None, &CPUS).unwrap();
    probe.begin();
    let before = stolen_ns();
    let clock = contend(&pages);
    let stolen = stolen_ns() - before;
    let (seen, lost) = probe.finish().unwrap();
    assert_eq!(lost, 0);

    let kallsyms = Kallsyms::read();
    let mut kernel = KernelNames::from(&kallsyms);
    let (locks, holds, stacks) = lock_table::tables(&seen, begin, now_ns() - begin, &mut kernel, 0);
    let acquired =
        holds.iter().find(|h| h.pid == clock.waiter && h.seen == HoldSeen::Acquired && h.reader).unwrap();
    let site = |l: &Lock| {
        stacks
            .iter()
            .any(|s| Some(s.id) == l.stack && s.kernel.first().is_some_and(|n| n.contains("mincore")))
    };
    // Other threads of this process wait for its mmap_lock, too.
    let rows =
        || locks.iter().filter(|l| l.address == acquired.lock && !l.write && (l.stack.is_none() || site(l)));
    let total: u64 = rows().map(|l| l.total_ns).sum();
    let worst = rows().map(|l| l.worst_ns).max().unwrap();
    let count = rows().map(|l| l.count).sum::<u64>() as usize;
    let all: Vec<_> = locks.iter().filter(|l| l.address == acquired.lock).collect();
    let reported = format!("{all:?}; slept {:?}; long {:?}", clock.slept, clock.long);
    // A wait may end before it has come to sleep: the truth is between the two.
    assert!(count * 10 >= clock.slept.len() * 9, "{count} waits: {reported}");
    let called = rows().filter(|l| l.stack.is_some()).map(|l| l.count).sum::<u64>() as usize;
    assert!(called <= clock.long.len() + clock.long.len() / 10 + 5, "{called} have a call site: {reported}");
    let (least, most): (u64, u64) = (clock.slept.iter().sum(), clock.long.iter().sum());
    // The waiter's clock goes on while others or a hypervisor have its CPU, after the lock was free.
    let late = clock.ready + stolen;
    let reported = format!("{} ns ready, {stolen} ns stolen; {reported}", clock.ready);
    let sure = least.saturating_sub(late).max(least / 2);
    assert!(total > sure / 20 * 19 && total < most / 20 * 21, "{reported}");
    let longest = clock.slept.iter().max().unwrap().saturating_sub(late);
    assert!(worst > longest / 20 * 19, "{stolen} ns stolen: {reported}");
    assert!(worst <= *clock.long.iter().max().unwrap(), "{reported}");
    let words: Vec<_> =
        holds.iter().filter(|h| h.lock == acquired.lock && h.seen == HoldSeen::Word && !h.reader).collect();
    // Other threads of this process take its mmap_lock, too: with other tests beside this one, for a sixth of the words.
    let right = words.iter().filter(|h| h.pid == clock.holder).count();
    let (owners, waits) = (words.len(), clock.slept.len());
    assert!(
        right * 4 > waits && right * 3 > owners * 2,
        "{right} of {owners} owners are the holder, {waits} waits"
    );
}
