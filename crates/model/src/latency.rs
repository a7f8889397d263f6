//! IRQ and wake-up latency of CPUs: to a call of another CPU, to a timer, to any interrupt.

use serde::{Deserialize, Serialize};

/// Calls for which a thread spun until a CPU came, later than half a millisecond: one row a (thread, CPU, function, state).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CrossCall {
    /// The thread that asked.
    pub pid: u32,
    pub tgid: u32,
    pub comm: String,
    /// The CPU that was asked.
    pub cpu: u32,
    /// The function that it was to run.
    pub function: String,
    /// The function that asked, where the kernel tells.
    pub site: Option<String>,
    /// The idle state that the CPU was in, by number; `None`: it ran.
    pub state: Option<u32>,
    /// How many.
    pub count: u64,
    /// From the question until the CPU came, summed.
    pub total_ns: u64,
    /// Of it, time in which the thread did not wait for another CPU of the same call anyway.
    pub paid_ns: u64,
    /// The longest.
    pub worst_ns: u64,
}

/// Timers that went off later than half a millisecond after they were due: one row a (thread, CPU, function, state).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LateTimer {
    /// The thread that it was to wake; 0: no sleeping thread.
    pub pid: u32,
    pub tgid: u32,
    pub comm: String,
    /// The CPU that was late.
    pub cpu: u32,
    /// The timer's function.
    pub function: String,
    /// The idle state that the CPU came from, by number; `None`: it ran.
    pub state: Option<u32>,
    /// How many.
    pub count: u64,
    /// Latency, summed.
    pub total_ns: u64,
    /// Of it, time in which the thread did not wait for another late timer anyway.
    pub paid_ns: u64,
    /// The longest.
    pub worst_ns: u64,
}

/// A CPU took no interrupt for a millisecond or more although one was due.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gap {
    /// Which CPU.
    pub cpu: u32,
    /// When it took one at last.
    pub at_ns: u64,
    /// Since one was due.
    pub ns: u64,
    /// The thread on the CPU then; 0: the idle task.
    pub pid: u32,
    pub tgid: u32,
    pub comm: String,
    /// The idle state that the CPU came from, by number; `None`: it ran.
    pub state: Option<u32>,
    /// The instruction before lets interrupts in: they had been kept out. `None`: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub let_in: Option<bool>,
    /// Of it, time in which the hypervisor did not run this CPU. `None`: it does not tell, or not here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stolen_ns: Option<u64>,
    /// Kernel frames there, innermost first, those of the interrupt included. Empty: not known.
    pub kernel: Vec<String>,
}

/// How late a CPU was to timers and calls, by the state in which it was wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IrqLatency {
    /// Which CPU.
    pub cpu: u32,
    /// The idle state, by number; `None`: it ran.
    pub state: Option<u32>,
    /// Timers and calls.
    pub count: u64,
    /// ... later than half a millisecond.
    pub late: u64,
    /// Their latency, summed.
    pub late_ns: u64,
    /// What the idle driver calls the state, of those that were late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How long leaving it takes, by the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_us: Option<u64>,
    /// How many by latency: below 128 us, 256 us, 512 us, ... 32 ms, and more.
    pub by_delay: Vec<u64>,
}

impl IrqLatency {
    /// Lower bound of the latency at this quantile: the lower edge of its class.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let all: u64 = self.by_delay.iter().fold(0, |sum, n| sum.saturating_add(*n));
        let wanted = (all as f64 * share.clamp(0.0, 1.0)) as u64;
        let mut seen = 0u64;
        for (class, count) in (0u32..).zip(&self.by_delay) {
            seen = seen.saturating_add(*count);
            if seen > wanted {
                return class
                    .checked_sub(1)
                    .map_or(0, |doubled| 128_000u64.saturating_mul(1 << doubled.min(32)));
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_lower_bound_of_its_class() {
        let late = IrqLatency { by_delay: vec![1, 0, 0, 0, 3], ..IrqLatency::default() };
        assert_eq!((late.quantile_ns(0.0), late.quantile_ns(0.25), late.quantile_ns(1.0)), (0, 1_024_000, 0));
        assert_eq!(IrqLatency::default().quantile_ns(0.5), 0);
        let endless = IrqLatency {
            by_delay: vec![0; 99].into_iter().chain([u64::MAX]).collect(),
            ..IrqLatency::default()
        };
        assert_eq!(endless.quantile_ns(0.5), 128_000 << 32);
    }
}
