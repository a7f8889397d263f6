//! The guest's clock: the guest gets the true frequency of the counter that it reads, and the lab compares its clock with the host's.

use std::arch::x86_64::_rdtsc;
use std::time::{Duration, Instant};

/// A guest whose clock is this far off has calibrated it wrongly: its durations mean nothing.
const OFF: f64 = 0.2;
/// Long enough for 1 part in 10,000: the guest does not refine the frequency, because it is told that the counter is reliable.
const MEASURE: Duration = Duration::from_millis(50);

/// kHz of this CPU's time-stamp counter, which the emulator passes through to the guest.
pub fn tsc_khz() -> u64 {
    let began = Instant::now();
    // SAFETY: reads a counter; every x86-64 has it.
    let from = unsafe { _rdtsc() };
    while began.elapsed() < MEASURE {
        std::hint::spin_loop();
    }
    // SAFETY: as above.
    let ticks = unsafe { _rdtsc() }.saturating_sub(from);
    let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
    ticks.saturating_mul(1000).checked_div(micros).unwrap_or_default()
}

/// The complaint about a clock that runs at `ratio` of the host's.
pub fn complaint(ratio: Option<f64>) -> Option<String> {
    let ratio = ratio.filter(|ratio| (ratio - 1.0).abs() > OFF)?;
    Some(format!("the guest's clock ran at {ratio:.2} of the host's"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_may_be_a_fifth_off() {
        assert_eq!(complaint(None), None);
        assert_eq!(complaint(Some(1.19)), None);
        assert!(complaint(Some(0.5)).is_some_and(|text| text.contains("0.50")));
        assert!(tsc_khz() > 100_000);
    }
}
