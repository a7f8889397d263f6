use whyslow_model::table::{CrossCall, LateTimer, Sample};
use whyslow_model::timeline::Watched;
use whyslow_model::{FileSnapshot, Kind, Recording};

use super::*;
use crate::irq::latency::fixture::{gap, host, irq_latency};

const SLOW: [u64; 8] = [1, 0, 0, 0, 0, 0, 0, 30];
const QUICK: [u64; 8] = [30, 0, 0, 0, 0, 0, 0, 1];

fn call(cpu: u32, state: Option<u32>, ms: u64) -> CrossCall {
    CrossCall {
        pid: 7,
        tgid: 7,
        comm: "poem".into(),
        cpu,
        function: "do_drv_read".into(),
        state,
        count: 10,
        total_ns: ms * 1_000_000,
        paid_ns: ms * 1_000_000,
        worst_ns: 25_000_000,
        ..CrossCall::default()
    }
}

fn reader(by_delay: &[u64], ms: u64) -> Recording {
    let mut rec = host();
    rec.tables.irq_latencies = Some(vec![irq_latency(1, Some(2), by_delay), irq_latency(0, Some(2), &QUICK)]);
    rec.tables.cross_calls = Some(vec![call(1, Some(2), ms)]);
    for (file, text) in [("name", "C3\n"), ("latency", "800\n")] {
        let name = format!("sys/devices/system/cpu/cpu1/cpuidle/state2/{file}");
        rec.snapshots.push(FileSnapshot { at: Duration::ZERO, name, bytes: text.into() });
    }
    let kernel =
        ["smp_call_function_single", "smp_call_function_any", "show_cpuinfo_cur_freq", "show", "vfs_read"];
    let kernel = kernel.map(str::to_owned).to_vec();
    rec.tables.samples =
        Some(vec![Sample { pid: 7, tgid: 7, count: 9, ns: 90_000_000, kernel, ..Sample::default() }]);
    rec
}

#[test]
fn fires_when_somebody_spins_for_a_cpu_that_wakes_slowly() {
    let rec = reader(&SLOW, 250);
    let found = check(&Evidence::of(&rec)).unwrap();
    assert_eq!(
        (found.len(), found[0].kind, found[0].lost),
        (1, Kind::Cause, Some(Duration::from_millis(250)))
    );
    assert_eq!(
        found[0].title,
        "reading cpuinfo_cur_freq, it waited for CPU 1, which wakes slowly from idle state C3 (800 us by its driver); the longest wait was 25 ms"
    );
    let culprit = found[0].culprit.as_ref().unwrap();
    assert_eq!((culprit.name.as_str(), culprit.file.as_deref()), ("CPU 1", Some("cpuinfo_cur_freq")));
    assert_eq!(found[0].victim.id, "7");
    let waits_for =
        "CPU 1 to run do_drv_read, spinning in smp_call_function_single, reading cpuinfo_cur_freq";
    assert_eq!(found[0].chain[0].detail.to_string(), waits_for);
    assert!(rules_out(&Evidence::of(&rec)).unwrap().is_none());
}

#[test]
fn watched_process_comes_before_others_that_lost_more() {
    let mut rec = reader(&SLOW, 250);
    let other =
        CrossCall { pid: 8, tgid: 8, comm: "lines".into(), paid_ns: 60_000_000, ..call(1, Some(2), 60) };
    rec.tables.cross_calls.as_mut().unwrap().push(other);
    assert!(check(&Evidence::of(&rec)).unwrap()[0].chain[0].who.to_string().starts_with("poem "));
    rec.meta.watched = Some(Watched { pids: vec![8], ..Watched::default() });
    let found = check(&Evidence::of(&rec)).unwrap();
    assert!(found[0].chain[0].who.to_string().starts_with("lines "), "{:?}", found[0].chain);
    assert_eq!((found[0].victim.id.as_str(), found[0].lost), ("8", Some(Duration::from_millis(60))));
    // The loss of the watched process is not worth a line, that of the others is.
    rec.tables.cross_calls.as_mut().unwrap()[1].paid_ns = 1_000_000;
    assert!(check(&Evidence::of(&rec)).unwrap()[0].chain[0].who.to_string().starts_with("poem "));
}

#[test]
fn file_read_by_one_task_is_not_attributed_to_another() {
    let mut rec = reader(&SLOW, 250);
    let flush = |pid: u32, comm: &str, state: u32, count: u64| CrossCall {
        pid,
        tgid: pid,
        comm: comm.into(),
        function: "flush_tlb_func".into(),
        count,
        ..call(1, Some(state), 60)
    };
    let more = [flush(8, "lines", 2, 1), flush(8, "lines", 3, 1), flush(9, "verse", 2, 1)];
    rec.tables.cross_calls.as_mut().unwrap().extend(more);
    let found = check(&Evidence::of(&rec)).unwrap();
    assert!(
        found[0].title.starts_with("poem (pid 7), reading cpuinfo_cur_freq, and others waited for CPU 1"),
        "{}",
        found[0].title
    );
    let hop = |hop: &Hop| format!("{}: {}, {}", hop.who, hop.detail, hop.count.unwrap());
    let hops: Vec<String> = found[0].chain.iter().map(hop).collect();
    let reads = "CPU 1 to run do_drv_read, spinning in smp_call_function_single, reading cpuinfo_cur_freq";
    let state = "idle state C3 (800 us by its driver)";
    assert_eq!(
        hops,
        [
            format!("poem (pid 7): {reads}, 10"),
            "lines (pid 8): CPU 1 to run flush_tlb_func, 2".to_owned(),
            format!("CPU 1: {state}, 13"),
        ],
        "verse waited only once: its wait is in the sum"
    );
}

#[test]
fn a_late_timer_is_a_loss_that_may_be_none() {
    let mut rec = reader(&SLOW, 0);
    rec.tables.cross_calls = None;
    let timer = LateTimer {
        pid: 9,
        comm: "clock".into(),
        cpu: 1,
        state: Some(3),
        paid_ns: 300_000_000,
        ..LateTimer::default()
    };
    rec.tables.late_timers = Some(vec![timer]);
    let found = check(&Evidence::of(&rec)).unwrap();
    assert_eq!(
        found[0].lost_range,
        Some((Duration::ZERO, Duration::from_millis(300))),
        "a deeper state counts, too"
    );
    assert!(found[0].title.starts_with("its timers were late on CPU 1, which wakes"), "{}", found[0].title);
}

#[test]
fn is_a_risk_if_nobody_pays() {
    let found = check(&Evidence::of(&reader(&SLOW, 5))).unwrap();
    assert_eq!((found[0].kind, found[0].lost), (Kind::Risk, None));
    assert_eq!(found[0].victim.name, "CPU 1");
    let title =
        "it wakes slowly from idle state C3 (800 us by its driver); no thread was seen to wait for it";
    assert_eq!(found[0].title, title);
}

#[test]
fn is_quiet_when_most_wakes_are_quick_or_the_cpu_ran() {
    assert_eq!(check(&Evidence::of(&reader(&QUICK, 250))), Ok(vec![]));
    let mut rec = reader(&QUICK, 0);
    rec.tables.cross_calls = Some(vec![call(1, None, 500)]);
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
    let mut calm = host();
    calm.tables.irq_latencies = Some(vec![irq_latency(0, None, &[1000])]);
    assert_eq!(rules_out(&Evidence::of(&calm)).unwrap().unwrap().what, "IRQ latency");
}

#[test]
fn whyslow_is_no_victim() {
    let mut rec = reader(&SLOW, 250);
    rec.meta.own_pids = vec![7];
    assert_eq!(check(&Evidence::of(&rec)).unwrap()[0].kind, Kind::Risk);
}

#[test]
fn a_cpu_that_stands_still_in_programs_is_reported_without_a_name() {
    let mut rec = reader(&QUICK, 0);
    let snapshots = ["hrtimer_interrupt", "asm_sysvec_apic_timer_interrupt"];
    rec.tables.gaps = Some(vec![gap(0, 5, &snapshots); 6]);
    let found = check(&Evidence::of(&rec)).unwrap();
    assert_eq!((found[0].kind, found[0].victim.name.as_str()), (Kind::Risk, "CPU 0"));
    assert!(found[0].title.starts_with("it stood still 6 times"), "{}", found[0].title);
    assert_eq!(found[0].check[0].command.as_deref(), Some("rtla hwnoise -c 0 -d 10s"));
    rec.tables.gaps = Some(vec![gap(0, 5, &snapshots); 2]);
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
}

#[test]
fn says_so_when_it_cannot_tell() {
    assert_eq!(check(&Evidence::of(&host())).unwrap_err().to_string(), "IRQ latency was not recorded");
}
