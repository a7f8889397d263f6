//! Every BPF probe that whyslow can run without: one line each. The task list, the scheduler's timelines and our own ids are
//! not among them: all others need these.

use super::probe::Entry;
use crate::bpf::{
    blkio, blocked, calls, churn, connect, dma_latency, failed, ipi, irq, irq_latency, locks, memory, napi,
    oncpu, stall, work,
};

/// In the order in which they start and return results.
#[rustfmt::skip] // one line a probe
pub const ALL: &[Entry] = &[
    locks::ENTRY,
    work::ENTRY,
    calls::ENTRY,
    irq_latency::ENTRY,
    ipi::ENTRY,
    stall::ENTRY,
    irq::ENTRY,
    oncpu::ENTRY,
    napi::ENTRY,
    blkio::ENTRY,
    blocked::ENTRY,
    memory::ENTRY,
    connect::ENTRY,
    failed::ENTRY,
    churn::ENTRY,
    dma_latency::ENTRY,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Probes that are no entries.
    const OTHERS: [&str; 4] = ["tasks", "sched", "pidns", "own_memory"];

    #[test]
    fn every_bpf_object_is_started_by_an_entry() {
        let sources = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/bpf")).unwrap();
        let mut objects = 0;
        for source in sources {
            let file = source.unwrap().file_name().into_string().unwrap();
            let Some(name) = file.strip_suffix(".bpf.c").filter(|name| !OTHERS.contains(name)) else {
                continue;
            };
            objects += 1;
            assert!(include_str!("registry.rs").contains(&format!("    {name}::ENTRY,")), "{name}");
        }
        assert_eq!(objects, ALL.len());
        for name in OTHERS {
            let is_tried = include_str!("../doctor.rs").contains(&format!("bpf::{name}::"));
            assert!(is_tried, "{name} has no capability");
        }
    }
}
