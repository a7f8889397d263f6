//! Who spins for CPUs waits for these CPUs.

use whyslow_model::chain::Part;
use whyslow_model::table::{CrossCall, IrqLatency, Sample};

use super::host::{Does, Host, MS, said};
use crate::graph::wall;
use Does::Runs;
use whyslow_model::wait::Reason;

fn spinner() -> Host {
    let mut host = Host::window(100);
    host.task(7, "lscpu", 0, &[Runs(100)]);
    host.rec.tables.samples = Some(vec![
        Sample {
            pid: 7,
            count: 80,
            ns: 80 * MS,
            kernel: vec!["smp_call_function_single".into()],
            ..Sample::default()
        },
        Sample { pid: 7, count: 20, ns: 20 * MS, user: vec!["main".into()], ..Sample::default() },
    ]);
    host.watch(7);
    host
}

fn call(cpu: u32, state: Option<u32>, ms: u64) -> CrossCall {
    let function = "aperfmperf_snapshot_khz".to_owned();
    CrossCall {
        pid: 7,
        tgid: 7,
        cpu,
        state,
        function,
        count: 4,
        paid_ns: ms * MS,
        worst_ns: 9 * MS,
        ..CrossCall::default()
    }
}

#[test]
fn spinning_leads_to_the_cpus_that_came_late() {
    let mut host = spinner();
    host.rec.tables.cross_calls = Some(vec![call(3, Some(2), 45), call(1, None, 15)]);
    let by_delay = vec![0, 0, 0, 0, 0, 0, 9];
    host.rec.tables.irq_latencies =
        Some(vec![IrqLatency { cpu: 3, state: Some(2), count: 9, by_delay, ..IrqLatency::default() }]);
    let account = wall::account(&host.graph()).unwrap();
    let spun = account.parts.iter().find(|part| part.reason == Reason::Spinning).unwrap();
    let ms = |part: &Part| format!("{}, {}", said(part), part.time.as_millis());
    let reported: Vec<String> = spun.parts.iter().map(ms).collect();
    assert_eq!(
        reported,
        [
            "CPU 3, which wakes slowly from idle state number 2, to run aperfmperf_snapshot_khz, 45",
            "CPUs that answered within half a millisecond, 20",
            "CPU 1, which ran, to run aperfmperf_snapshot_khz, 15",
        ]
    );
    assert!(spun.parts.iter().all(|part| part.reason == Reason::WakeupLatency));
}

#[test]
fn spinning_stays_a_leaf_where_no_cpu_was_seen_to_be_late() {
    let mut host = spinner();
    host.rec.tables.cross_calls = Some(vec![]);
    let account = wall::account(&host.graph()).unwrap();
    let spun = account.parts.iter().find(|part| part.reason == Reason::Spinning).unwrap();
    assert!(spun.parts.is_empty() && spun.time.as_millis() == 80);
}
