use whyslow_model::table::{CrossCall, Gap, LateTimer, Sample};
use whyslow_model::timeline::Span;
use whyslow_model::{Kind, Recording};

use super::*;
use crate::irq::latency::fixture::{gap, host};

const OFF: [&str; 4] = ["hrtimer_interrupt", "asm_sysvec_apic_timer_interrupt", "sort_rows", "kthread"];
const MS: u64 = 1_000_000;

/// Thread 9 keeps interrupts off on CPU 1 for 5 x 20 ms; the sleeper 7 on that CPU wakes up `ms` late.
fn kept(ms: u64) -> Recording {
    let mut rec = host();
    let at = |n: u64| Gap { at_ns: (100 + n * 100) * MS, ..gap(1, 9, &OFF) };
    rec.tables.gaps = Some((0..5).map(at).collect());
    let kernel = ["sort_rows", "kthread"].map(str::to_owned).to_vec();
    rec.tables.samples = Some(vec![Sample { pid: 9, count: 5, ns: 50 * MS, kernel, ..Sample::default() }]);
    let timer = |pid, cpu| LateTimer {
        pid,
        tgid: pid,
        comm: "clock".into(),
        cpu,
        paid_ns: ms * MS,
        ..LateTimer::default()
    };
    rec.tables.late_timers = Some(vec![timer(7, 1), timer(9, 1), timer(0, 1), timer(7, 0)]);
    rec
}

#[test]
fn fires_when_sleepers_of_that_cpu_are_late() {
    let rec = kept(90);
    let found = check(&Evidence::of(&rec)).unwrap();
    assert_eq!(
        (found.len(), found[0].kind, found[0].lost),
        (1, Kind::Cause, Some(Duration::from_millis(90)))
    );
    assert_eq!(
        found[0].title,
        "t9 kept interrupts off on CPU 1 in sort_rows for 100 ms, 5 times, worst 20 ms"
    );
    let culprit = found[0].culprit.as_ref().unwrap();
    assert_eq!((culprit.id.as_str(), culprit.function.as_deref()), ("9", Some("sort_rows")));
    assert_eq!(found[0].victim.id, "7");
    assert_eq!(found[0].lost_range, Some((Duration::ZERO, Duration::from_millis(90))));
}

#[test]
fn ready_tasks_and_cross_call_senders_count_in_the_loss() {
    let mut rec = kept(0);
    let call = CrossCall { pid: 5, comm: "asks".into(), cpu: 1, paid_ns: 30 * MS, ..CrossCall::default() };
    rec.tables.cross_calls = Some(vec![call]);
    // The thread is ready from 190 ms on, and on its CPU at 205 ms. The second gap is from 180 to 200 ms.
    let row = Span { pid: 6, cpu: 1, woken_ns: 190 * MS, to_ns: 205 * MS, ..Span::default() };
    rec.tables.spans = Some(vec![row]);
    let found = check(&Evidence::of(&rec)).unwrap();
    assert_eq!(found[0].lost, Some(Duration::from_millis(40)));
    assert!(found[0].title.ends_with("; asks (pid 5) lost most by it"), "{}", found[0].title);
    assert_eq!(found[0].chain.last().unwrap().reason.word(), "irqs-off");
}

#[test]
fn is_a_risk_if_nobody_pays() {
    let found = check(&Evidence::of(&kept(1))).unwrap();
    assert_eq!((found[0].kind, found[0].lost), (Kind::Risk, None));
    assert!(found[0].title.ends_with("; no task was seen to lose time by it"), "{}", found[0].title);
}

#[test]
fn is_quiet_when_cpus_take_their_interrupts() {
    let mut rec = host();
    rec.tables.gaps = Some(vec![]);
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
    assert_eq!(rules_out(&Evidence::of(&rec)).unwrap().unwrap().what, "interrupts kept off");
    assert!(rules_out(&Evidence::of(&kept(1))).unwrap().is_none());
}

#[test]
fn says_so_when_it_cannot_tell() {
    assert_eq!(check(&Evidence::of(&host())).unwrap_err().to_string(), "IRQ latency was not recorded");
}

#[test]
fn cannot_tell_where_the_hypervisor_took_as_much() {
    let mut rec = kept(90);
    rec.meta.clock_ticks = 100;
    let stat = |ticks: u64| format!("cpu 0 0 0 9 0 0 0 {ticks}\ncpu1 0 0 0 9 0 0 0 {ticks}\n").into_bytes();
    for (second, ticks) in [(0, 5), (1, 72)] {
        let at = Duration::from_secs(second);
        rec.snapshots.push(whyslow_model::FileSnapshot { at, name: "proc/stat".into(), bytes: stat(ticks) });
    }
    assert_eq!(
        check(&Evidence::of(&rec)).unwrap_err().to_string(),
        "cannot tell whether a thread kept interrupts off on CPU 1: the CPU took no interrupt for 100 ms in all, 5 times, each ending \
         in sort_rows, but the hypervisor took 67 % of CPU 1 in the window, and when is not known"
    );
}
