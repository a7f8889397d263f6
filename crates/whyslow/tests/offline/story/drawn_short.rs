//! Windows of a few milliseconds, as `run` and `attach` have them: latency, stolen time and refused calls began before the window. Whatever the
//! tables hold, no task loses more than its lifetime.

use std::time::Duration;

use proptest::prelude::*;
use whyslow_analyze::examine;
use whyslow_faults::story;
use whyslow_model::table::{Connect, CrossCall, Gap, IrqLatency, LateTimer, Listener, Task};
use whyslow_model::timeline::Watched;
use whyslow_model::{FileSnapshot, Meta, Recording};

const MS: u64 = 1_000_000;
const TASKS: u32 = 3;

/// For one task: (lifetime in per mille of the window, sleep in it, latency of timers, of calls, blocked by connects).
type Row = (u64, u64, u64, u64, u64);

fn task_of(pid: u32, row: &Row, window: u64) -> Task {
    let lived_ns = window * row.0 / 1000;
    let sleep_ns = lived_ns * row.1 / 1000;
    let exec_ns = lived_ns - sleep_ns;
    Task {
        pid,
        tgid: pid,
        comm: format!("task{pid}"),
        lived_ns,
        sleep_ns,
        exec_ns,
        traced_ns: exec_ns,
        allowed: "0-1".into(),
        allowed_count: 2,
        weight: 1024,
        ..Task::default()
    }
}

fn late(rec: &mut Recording, rows: &[Row], state: Option<u32>) {
    let each = || (1u32..).zip(rows);
    let comm = |pid: u32| format!("task{pid}");
    let timer = |(pid, row): (u32, &Row)| LateTimer {
        pid,
        tgid: pid,
        comm: comm(pid),
        state,
        count: 4,
        total_ns: row.2 * MS,
        paid_ns: row.2 * MS,
        worst_ns: row.2 * MS,
        ..LateTimer::default()
    };
    let call = |(pid, row): (u32, &Row)| CrossCall {
        pid,
        tgid: pid,
        comm: comm(pid),
        cpu: 1,
        function: "do_flush_tlb_all".into(),
        state,
        count: 4,
        total_ns: row.3 * MS,
        paid_ns: row.3 * MS,
        worst_ns: row.3 * MS,
        ..CrossCall::default()
    };
    rec.tables.late_timers = Some(each().map(timer).collect());
    rec.tables.cross_calls = Some(each().map(call).collect());
    let snapshots = ["asm_sysvec_apic_timer_interrupt", "foo_ioctl", "do_syscall_64"];
    let gap = |(pid, row): (u32, &Row)| Gap {
        cpu: pid % 2,
        ns: (row.2 + row.3) * MS,
        pid,
        tgid: pid,
        comm: comm(pid),
        state,
        let_in: Some(true),
        kernel: snapshots.map(str::to_owned).to_vec(),
        ..Gap::default()
    };
    rec.tables.gaps = Some(each().flat_map(|row| vec![gap(row); 6]).collect());
    let by_delay = vec![1, 1, 1, 0, 0, 0, 3, 3, 0, 0];
    let of_cpu = |cpu| IrqLatency {
        cpu,
        state,
        count: 9,
        late: 6,
        late_ns: 90 * MS,
        by_delay: by_delay.clone(),
        ..IrqLatency::default()
    };
    rec.tables.irq_latencies = Some((0..2).map(of_cpu).collect());
}

fn refused(rec: &mut Recording, rows: &[Row]) {
    let connect = |(pid, row): (u32, &Row)| Connect {
        pid,
        tgid: pid,
        comm: format!("task{pid}"),
        netns: 1,
        peer: "127.0.0.1:80".into(),
        count: 9,
        done: 9,
        retried: 3,
        prompt: 6,
        prompt_ns: MS,
        retried_ns: row.4 * MS,
        worst_ns: row.4 * MS,
        blocked_ns: row.4 * MS,
        ..Connect::default()
    };
    rec.tables.connects = Some((1u32..).zip(rows).map(connect).collect());
    let full = Listener {
        netns: 1,
        local: "127.0.0.1:80".into(),
        queue: 9,
        limit: 8,
        tgid: 1,
        comm: "task1".into(),
        overflows: 9,
    };
    rec.tables.listeners = Some(vec![full]);
}

/// In ticks of 10 ms, as the kernel counts: a window of one tick may hold two.
fn stat(at: Duration, ticks: [u64; 2]) -> FileSnapshot {
    let [user, steal] = ticks;
    let cpu = |name: &str| format!("{name} {user} 0 0 0 0 0 0 {steal} 0 0\n");
    let text = ["cpu ", "cpu0", "cpu1"].map(cpu).concat();
    FileSnapshot { at, name: "proc/stat".into(), bytes: text.into_bytes() }
}

fn host(rows: &[Row], window: u64, ticks: [u64; 2], watched: &[u32], state: Option<u32>) -> Recording {
    let mut rec = Recording {
        meta: Meta { window_ns: window, cpus: 2, clock_ticks: 100, privileged: true, ..Meta::default() },
        snapshots: vec![stat(Duration::ZERO, [0, 0]), stat(Duration::from_nanos(window), ticks)],
        ..Recording::default()
    };
    rec.tables.tasks = Some((1..).zip(rows).map(|(pid, row)| task_of(pid, row, window)).collect());
    late(&mut rec, rows, state);
    refused(&mut rec, rows);
    if !watched.is_empty() {
        rec.meta.watched =
            Some(Watched { subject: "it".into(), pids: watched.to_vec(), ..Watched::default() });
    }
    rec
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_report_of_a_short_window_holds_together(
        rows in prop::collection::vec((0..=1000u64, 0..=1000u64, 0..60u64, 0..60u64, 0..60u64), TASKS as usize),
        window in 1..400u64,
        ticks in [0..5u64, 0..5u64],
        watched in prop::collection::vec(1..=TASKS, 0..3),
        state in prop::option::of(1..3u32),
    ) {
        let rec = host(&rows, window * MS, ticks, &watched, state);
        let document = serde_json::to_value(examine(&rec)).unwrap();
        let mut broken = story::broken(&document);
        broken.retain(|wrong| !wrong.starts_with("it contradicts itself"));
        prop_assert!(broken.is_empty(), "{:#?}", broken);
    }
}
