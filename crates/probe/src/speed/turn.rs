//! One loop: additions, each waiting for the one before, by wall time, CPU time and the time stamp counter.
//!
//! An addition of two registers takes one cycle on every x86 and arm64 core of the last twenty years, whatever its width, and a
//! busy hardware thread on the same core leaves it that cycle. So additions per time give the frequency of the core. The time is
//! read after each piece of the loop: that separates time that is taken in pieces (interrupts, firmware, a hypervisor) from
//! a core that is slow throughout.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use whyslow_model::table::Loop;

use crate::host;

/// Additions between two tests of the count: beside so many the test costs nothing.
const UNROLLED: u64 = 64;
/// Turns of a piece: it must be short compared with interruptions (4 us at 4 GHz), and long compared with the reading of the clock after
/// it (40 ns). Where reading the clock is slow, because the clock is a device (1 us and more), pieces are longer.
const TURNS: u64 = 256;
const TURNS_DEAR: u64 = 1024;
const DEAR_NS: u64 = 300;
/// A loop: longer than the pause between two interrupts of a busy device or timer, shorter than a time slice.
const LENGTH_NS: u64 = 2_000_000;
/// The most that one piece adds to that length, unless all pieces take longer: a piece that was interrupted does not end the loop, and its
/// time is not our cost.
const PIECE_MOST_NS: u64 = 500_000;
/// The loop ends after this time, however slow the CPU is.
const LONGEST_NS: u64 = 50_000_000;

/// The clocks of the thread that runs the loops.
pub struct Clocks {
    waits: Option<File>,
    turns: u64,
}

impl Clocks {
    /// The clocks of this thread.
    pub fn open() -> Self {
        let look = |_| {
            let began = host::monotonic_ns();
            host::monotonic_ns().saturating_sub(began)
        };
        let cost = (0..64).map(look).min().unwrap_or(0);
        let turns = if cost < DEAR_NS { TURNS } else { TURNS_DEAR };
        Clocks { waits: File::open("/proc/thread-self/schedstat").ok(), turns }
    }

    /// The time that this thread was ready but did not run, so far.
    fn waited_ns(&self) -> Option<u64> {
        let mut text = [0u8; 64];
        let n = self.waits.as_ref()?.read_at(&mut text, 0).ok()?;
        waited(std::str::from_utf8(text.get(..n)?).ok()?)
    }

    /// Run one loop. `origin_ns`: when the window began.
    pub fn turn(&self, origin_ns: u64) -> Loop {
        let (waited, cpu) = (self.waited_ns(), host::thread_cpu_ns());
        let (began, ticks) = (host::monotonic_ns(), ticks());
        let (mut last, mut counted, mut pieces, mut best) = (began, 0, 0u64, u64::MAX);
        while counted < LENGTH_NS && last.saturating_sub(began) < LONGEST_NS {
            add(self.turns);
            let now = host::monotonic_ns();
            let took = now.saturating_sub(last);
            (last, pieces, best) = (now, pieces + 1, best.min(took));
            // A clock that advances once a tick stands still during a piece: such a piece counts as one.
            counted += took.clamp(4_000, PIECE_MOST_NS.max(best.saturating_mul(2)));
        }
        let ticks = self::ticks().saturating_sub(ticks);
        let cpu = host::thread_cpu_ns().saturating_sub(cpu);
        let wait_ns = waited.and_then(|before| Some(self.waited_ns()?.saturating_sub(before)));
        Loop {
            at_ns: began.saturating_sub(origin_ns),
            wall_ns: last.saturating_sub(began),
            cpu_ns: cpu,
            wait_ns,
            work: pieces.saturating_mul(self.turns).saturating_mul(UNROLLED),
            pieces,
            best_ns: best,
            ticks,
        }
    }
}

/// "run-time wait-time times-on-CPU"; where the scheduler keeps no such account, "0 0 0".
fn waited(schedstat: &str) -> Option<u64> {
    let mut words = schedstat.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let (_, wait, times) = (words.next()??, words.next()??, words.next()??);
    (times > 0).then_some(wait)
}

#[cfg(target_arch = "x86_64")]
fn add(turns: u64) {
    // SAFETY: adds registers and counts one down to zero; touches no memory and no stack.
    unsafe {
        std::arch::asm!(
            "2:", ".rept {unrolled}", "add {sum}, {one}", ".endr", "sub {n}, 1", "jnz 2b",
            unrolled = const UNROLLED, n = inout(reg) turns.max(1) => _, sum = inout(reg) 1u64 => _,
            one = in(reg) 1u64, options(nomem, nostack)
        );
    }
}

#[cfg(target_arch = "aarch64")]
fn add(turns: u64) {
    // SAFETY: as on x86.
    unsafe {
        std::arch::asm!(
            "2:", ".rept {unrolled}", "add {sum}, {sum}, {one}", ".endr", "subs {n}, {n}, #1", "b.ne 2b",
            unrolled = const UNROLLED, n = inout(reg) turns.max(1) => _, sum = inout(reg) 1u64 => _,
            one = in(reg) 1u64, options(nomem, nostack)
        );
    }
}

/// The time stamp counter runs at the nominal frequency, nearly, on all CPUs with a constant one.
#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: reads a counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The counter of other machines says nothing about their frequency.
#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

/// Whether an addition takes a cycle here: not under QEMU's emulator, which its signature shows.
#[cfg(target_arch = "x86_64")]
pub fn is_cycle_exact() -> bool {
    const HYPERVISOR: u32 = 1 << 31;
    const EMULATOR: [u8; 12] = *b"TCGTCGTCGTCG";
    if std::arch::x86_64::__cpuid(1).ecx & HYPERVISOR == 0 {
        return true;
    }
    let reported = std::arch::x86_64::__cpuid(0x4000_0000);
    [reported.ebx, reported.ecx, reported.edx].map(u32::to_le_bytes).as_flattened() != EMULATOR
}

/// Other machines do not report whether they are emulated.
#[cfg(not(target_arch = "x86_64"))]
pub fn is_cycle_exact() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_tells_its_work_and_its_time() {
        let clocks = Clocks::open();
        let origin = host::monotonic_ns();
        let turn = clocks.turn(origin);
        assert!(turn.wall_ns >= LENGTH_NS / 2 && turn.pieces > 0, "{turn:?}");
        assert_eq!(turn.work, turn.pieces * clocks.turns * UNROLLED);
        assert!(turn.best_ns * turn.pieces <= turn.wall_ns, "{turn:?}");
        assert!(turn.cpu_ns <= turn.wall_ns + 1_000_000, "{turn:?}");
    }

    #[test]
    fn twice_the_turns_take_twice_the_time() {
        let timed = |turns: u64| {
            let began = host::thread_cpu_ns();
            add(turns);
            (host::thread_cpu_ns() - began) as f64
        };
        // The median of many pairs of neighbours: other load on the machine or this core, and changes of its clock, do not matter.
        let mut ratios: Vec<f64> = (0..401).map(|_| timed(8192) / timed(4096)).collect();
        ratios.sort_by(f64::total_cmp);
        assert!((1.7..2.3).contains(&ratios[200]), "{ratios:?}");
    }

    #[test]
    fn an_account_that_is_not_kept_is_not_zero() {
        assert_eq!(waited("0 10800953 1\n"), Some(10_800_953));
        for none in ["0 0 0\n", "", "1", "a b c"] {
            assert_eq!(waited(none), None, "{none}");
        }
    }
}
