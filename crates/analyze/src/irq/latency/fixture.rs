//! Small hosts with IRQ latency, for tests.

use whyslow_model::table::{Gap, IrqLatency};
use whyslow_model::{Meta, Recording};

/// A second of two CPUs.
pub(crate) fn host() -> Recording {
    Recording { meta: Meta { window_ns: 1_000_000_000, cpus: 2, ..Meta::default() }, ..Recording::default() }
}

/// 20 ms on a CPU that ran `pid`.
pub(crate) fn gap(cpu: u32, pid: u32, frames: &[&str]) -> Gap {
    let kernel = frames.iter().map(|frame| (*frame).to_owned()).collect();
    Gap {
        cpu,
        at_ns: 500_000_000,
        ns: 20_000_000,
        pid,
        tgid: pid,
        comm: format!("t{pid}"),
        state: None,
        let_in: None,
        stolen_ns: None,
        kernel,
    }
}

/// How late a CPU was.
pub(crate) fn irq_latency(cpu: u32, state: Option<u32>, by_delay: &[u64]) -> IrqLatency {
    let count = by_delay.iter().sum();
    let late = by_delay.iter().skip(3).sum();
    IrqLatency {
        cpu,
        state,
        count,
        late,
        late_ns: late * 20_000_000,
        by_delay: by_delay.to_vec(),
        ..IrqLatency::default()
    }
}
