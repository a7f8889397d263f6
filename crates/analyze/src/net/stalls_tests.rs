use whyslow_model::table::{Gap, Stall, StallSeen, Task};

use super::*;

const MS: u64 = 1_000_000;
const TICK: [&str; 3] = ["tick_nohz_handler", "hrtimer_interrupt", "asm_sysvec_apic_timer_interrupt"];
const READS: [&str; 4] = ["css_rstat_flush", "memory_stat_show", "vfs_read", "do_syscall_64"];

fn row(pid: u32, comm: &str, count: u32, kernel: &[&[&str]]) -> StallSeen {
    let kernel = kernel.iter().copied().flatten().map(|frame| (*frame).to_owned()).collect();
    StallSeen { at_ns: 90 * MS, count, pid, tgid: pid, comm: comm.to_owned(), kernel, ..StallSeen::default() }
}

/// ksoftirqd begins to serve the softirq.
fn ksoftirqd() -> StallSeen {
    row(20, "ksoftirqd/1", 1, &[&["handle_softirqs", "run_ksoftirqd", "kthread"]])
}

fn stall(kind: StallKind, ms: u64, seen: Vec<StallSeen>) -> Stall {
    Stall { cpu: 1, at_ns: 100 * MS, ns: ms * MS, kind: kind.word().to_owned(), seen, ..Stall::default() }
}

/// CPU 1 took no interrupt until just before 100 ms.
fn gap(pid: u32, ms: u64) -> Gap {
    let kernel = ["handle_softirqs", "irq_exit_rcu", "asm_common_interrupt"].iter().chain(&READS);
    Gap {
        cpu: 1,
        at_ns: 100 * MS - 200_000,
        ns: ms * MS,
        pid,
        tgid: pid,
        comm: "agent".to_owned(),
        kernel: kernel.map(|frame| (*frame).to_owned()).collect(),
        ..Gap::default()
    }
}

fn told_with(stalls: Vec<Stall>, gaps: Vec<Gap>) -> Vec<StallAccount> {
    let mut rec = crate::irq::latency::fixture::host();
    rec.tables.tasks = Some(vec![Task { pid: 9, tgid: 9, comm: "agent".into(), ..Task::default() }]);
    (rec.tables.stalls, rec.tables.gaps) = (Some(stalls), Some(gaps));
    accounts(&Evidence::of(&rec))
}

fn told(stalls: Vec<Stall>) -> Vec<StallAccount> {
    told_with(stalls, vec![])
}

/// Interrupts were off for 80 ms, and this gap was recorded.
fn behind(gap: Gap) -> StallAccount {
    let end =
        StallSeen { syscall: Some(0), file: Some("memory.stat".into()), ..row(9, "agent", 1, &[&READS]) };
    let innocent = row(7, "innocent", 3, &[&TICK, &["sort_rows"]]);
    let [account] = &told_with(vec![stall(StallKind::IrqsOff, 80, vec![innocent, end])], vec![gap])[..]
    else {
        panic!("one stall is one account")
    };
    account.clone()
}

fn only(one: Stall) -> StallAccount {
    let [account] = &told(vec![one])[..] else { panic!("one stall is one account") };
    account.clone()
}

/// A hypervisor that reports no steal time stops the CPU three times, for 10 ms, in user code. `kept` times interrupts were off for 20 ms.
fn beside_stops_of_the_hypervisor(kept: u64) -> StallAccount {
    let stopped = |at| Gap {
        at_ns: at * MS,
        ns: 10 * MS,
        kernel: vec!["asm_sysvec_apic_timer_interrupt".into()],
        ..gap(7, 10)
    };
    let behind = |at| Gap { at_ns: at * MS - 200_000, ..gap(9, 20) };
    let gaps = (1..=kept).map(|n| behind(n * 100)).chain([210, 310, 410].map(stopped)).collect();
    let end = || row(9, "agent", 1, &[&READS]);
    let stalls =
        (1..=kept).map(|n| Stall { at_ns: n * 100 * MS, ..stall(StallKind::IrqsOff, 20, vec![end()]) });
    let [account] = &told_with(stalls.collect(), gaps)[..] else { panic!("one cause is one account") };
    account.clone()
}

#[test]
fn stops_of_the_hypervisor_are_weighed_against_all_gaps_of_a_function() {
    let many = beside_stops_of_the_hypervisor(8);
    assert_eq!((many.count, many.culprit.map(|culprit| culprit.pid)), (8, Some(9)));
    let few = beside_stops_of_the_hypervisor(2);
    assert!(
        few.unknown
            .is_some_and(|why| why.contains("CPU 1 stood still where interrupts are on, too, 3 times"))
    );
}

#[test]
fn thread_at_the_end_of_the_gap_kept_interrupts_off() {
    let culprit = behind(gap(9, 79)).culprit.unwrap();
    assert_eq!((culprit.pid, culprit.who.as_str()), (9, "agent"));
    assert_eq!(culprit.function.as_deref(), Some("css_rstat_flush"));
    assert_eq!((culprit.call.as_deref(), culprit.file.as_deref()), (Some("read"), Some("memory.stat")));
    assert_eq!(culprit.stack, READS);
    // The softirq began in another thread than the gap ended in, or in a later call of the same thread.
    let end =
        StallSeen { syscall: Some(1), ..row(9, "agent", 1, &[&["handle_softirqs", "tun_chr_write_iter"]]) };
    let later = told_with(vec![stall(StallKind::IrqsOff, 80, vec![end])], vec![gap(9, 79)]);
    assert_eq!(later[0].culprit.as_ref().map(|culprit| (culprit.pid, culprit.call.clone())), Some((9, None)));
    let other = behind(gap(8, 79)).culprit.unwrap();
    assert_eq!((other.pid, other.call, other.file), (8, None, None));
}

/// The row of a queue spans the waits of several packets, and the times between them: a gap within it is not all of these waits.
#[test]
fn gap_made_the_wait_of_one_packet_and_not_the_waits_of_several() {
    let queued = |waits| {
        let stall = Stall { waits, ..stall(StallKind::Queued, 80, vec![row(9, "agent", 1, &[&READS])]) };
        let [account] = &told_with(vec![stall], vec![gap(9, 79)])[..] else {
            panic!("one row is one account")
        };
        account.clone()
    };
    assert_eq!((queued(1).kind, queued(1).culprit.map(|one| one.pid)), (StallKind::IrqsOff, Some(9)));
    assert_eq!((queued(2).kind, queued(2).culprit), (StallKind::Queued, None));
}

#[test]
fn hypervisor_firmware_and_idle_cpus_accuse_no_thread() {
    let why = |gap: Gap| behind(gap).unknown.unwrap_or_else(|| panic!("a thread was accused"));
    assert_eq!(why(Gap { stolen_ns: Some(70 * MS), ..gap(9, 79) }), "the hypervisor did not run this CPU");
    assert!(why(Gap { let_in: Some(false), ..gap(9, 79) }).starts_with("interrupts were on"));
    assert!(why(Gap { state: Some(2), ..gap(9, 79) }).starts_with("the CPU idled"));
    assert!(why(gap(0, 79)).starts_with("the CPU idled"));
    let ends_in =
        |frames: &[&str]| Gap { kernel: frames.iter().map(|f| (*f).to_owned()).collect(), ..gap(9, 79) };
    for frames in [&["asm_common_interrupt"][..], &["asm_common_interrupt", "finish_task_switch", "schedule"]]
    {
        assert!(
            why(ends_in(frames)).contains("shows no code"),
            "{frames:?}: user code, or switched in just now"
        );
    }
    assert!(why(Gap { cpu: 0, ..gap(9, 79) }).contains("was not recorded"));
    assert!(why(gap(9, 30)).contains("was not recorded"), "a gap of less than half");
    assert!(why(Gap { at_ns: 50 * MS, ..gap(9, 79) }).contains("was not recorded"), "an older gap");
    assert!(behind(Gap { stolen_ns: Some(7 * MS), let_in: Some(true), ..gap(9, 79) }).culprit.is_some());
    let outside = Gap { at_ns: 300 * MS, let_in: Some(false), ..gap(5, 70) };
    let gaps = vec![gap(9, 79), outside.clone(), outside.clone(), outside];
    let all = told_with(vec![stall(StallKind::IrqsOff, 80, vec![row(9, "agent", 1, &[&READS])])], gaps);
    assert_eq!(all[0].culprit, None, "something else stops this CPU, too: {all:?}");
}

#[test]
fn thread_with_most_ticks_deferred_the_softirq() {
    let ran = row(9, "agent", 6, &[&TICK, &["sort_rows", "do_syscall_64"]]);
    let other = row(8, "beside", 2, &[&TICK, &["walk_tree", "do_syscall_64"]]);
    let account = only(stall(StallKind::Deferred, 80, vec![other.clone(), ran.clone(), ksoftirqd()]));
    assert_eq!(
        account.culprit.map(|culprit| (culprit.pid, culprit.function)),
        Some((9, Some("sort_rows".into())))
    );
    let even = only(stall(StallKind::Deferred, 80, vec![other, StallSeen { count: 2, ..ran }, ksoftirqd()]));
    assert_eq!((even.culprit, even.unknown.as_deref()), (None, Some("several tasks ran there in turn")));
}

#[test]
fn thread_that_enables_bottom_halves_deferred_them_and_ksoftirqd_did_not() {
    let end = row(
        9,
        "agent",
        1,
        &[&["handle_softirqs", "do_softirq", "__local_bh_enable_ip", "sort_rows", "do_syscall_64"]],
    );
    let account = only(stall(StallKind::Deferred, 8, vec![end]));
    assert_eq!(account.culprit.map(|culprit| culprit.pid), Some(9));
    for (ms, end) in [
        (8, ksoftirqd()),
        (80, row(9, "agent", 1, &[&["handle_softirqs", "__local_bh_enable_ip"], &READS])),
        (8, row(9, "agent", 1, &[&["handle_softirqs", "asm_common_interrupt"], &READS])),
    ] {
        let unseen = only(stall(StallKind::Deferred, ms, vec![end]));
        assert_eq!((unseen.culprit, unseen.unknown.is_some()), (None, true), "{ms} ms without a tick");
    }
    let few = only(stall(StallKind::Deferred, 80, vec![row(9, "agent", 1, &[&TICK, &READS]), ksoftirqd()]));
    assert_eq!((few.culprit, few.unknown.as_deref()), (None, Some("few ticks of this CPU came meanwhile")));
    let bare = only(stall(StallKind::Deferred, 8, vec![]));
    assert_eq!((bare.culprit, bare.unknown.as_deref()), (None, Some("no stack was taken")));
}

#[test]
fn softirq_at_work_is_the_culprit_and_not_the_thread_below_it() {
    let rules: &[&str] = &["nft_do_chain", "nf_hook_slow", "ip_rcv", "net_rx_action", "handle_softirqs"];
    let below: &[&str] = &["irq_exit_rcu", "asm_common_interrupt", "sort_rows"];
    for kind in [StallKind::Poll, StallKind::Deferred] {
        let tick = StallSeen { softirq: true, ..row(9, "agent", 6, &[&TICK, rules, below]) };
        let account = only(stall(kind, 30, vec![tick.clone(), ksoftirqd()]));
        let culprit = account.culprit.unwrap();
        assert_eq!((culprit.pid, culprit.function.as_deref()), (0, Some("nft_do_chain")), "{kind}");
        let cut = StallSeen { kernel: TICK.map(str::to_owned).into(), ..tick };
        let account = only(stall(kind, 30, vec![cut, ksoftirqd()]));
        let why = "a softirq ran there, whose function is not known";
        assert_eq!(
            (account.culprit, account.unknown.as_deref()),
            (None, Some(why)),
            "{kind}: a stack that ends in a BPF program"
        );
    }
    // Where the CPU's count is not known, the stack shows the softirq.
    let unmarked = row(9, "agent", 6, &[&TICK, rules, below]);
    let culprit = only(stall(StallKind::Deferred, 30, vec![unmarked, ksoftirqd()])).culprit.unwrap();
    assert_eq!((culprit.pid, culprit.function.as_deref()), (0, Some("nft_do_chain")));
    // The hypervisor did not run the CPU for most of the poll.
    let tick = StallSeen { softirq: true, ..row(9, "agent", 1, &[&TICK, rules, below]) };
    let stolen = Gap { stolen_ns: Some(78 * MS), ..gap(9, 79) };
    let account = told_with(vec![stall(StallKind::Poll, 80, vec![tick, ksoftirqd()])], vec![stolen]);
    assert_eq!(account[0].culprit, None, "{account:?}");
    let unseen = only(stall(StallKind::Poll, 6, vec![ksoftirqd()]));
    assert_eq!((unseen.culprit, unseen.unknown.is_some()), (None, true), "no tick");
}

#[test]
fn nobody_deferred_what_the_hypervisor_may_have_taken() {
    let told_beside = |stolen_ticks: u64| {
        let mut rec = crate::irq::latency::fixture::host();
        rec.meta.clock_ticks = 100;
        let ticks = row(9, "agent", 6, &[&TICK, &READS]);
        rec.tables.stalls = Some(vec![stall(StallKind::Deferred, 30, vec![ticks, ksoftirqd()])]);
        for (second, ticks) in [(0, 5), (1, 5 + stolen_ticks)] {
            let bytes = format!("cpu 0 0 0 9 0 0 0 {ticks}\ncpu1 0 0 0 9 0 0 0 {ticks}\n").into_bytes();
            let at = Duration::from_secs(second);
            rec.snapshots.push(whyslow_model::FileSnapshot { at, name: "proc/stat".into(), bytes });
        }
        let [account] = &accounts(&Evidence::of(&rec))[..] else { panic!("one stall is one account") };
        account.clone()
    };
    assert_eq!(told_beside(1).culprit.map(|culprit| culprit.pid), Some(9));
    let doubtful = told_beside(2);
    assert_eq!(doubtful.culprit, None);
    assert_eq!(
        doubtful.unknown.as_deref(),
        Some("the hypervisor took as much time of this CPU, and when is not known")
    );
}

#[test]
fn stalls_of_one_cause_are_one_account_and_the_longest_time_comes_first() {
    let of =
        |pid, ms| stall(StallKind::Deferred, ms, vec![row(pid, "agent", 2, &[&TICK, &READS]), ksoftirqd()]);
    let all = told(vec![of(9, 10), of(8, 25), of(9, 12), of(9, 7)]);
    let sums: Vec<_> = all.iter().map(|one| (one.count, one.total, one.worst)).collect();
    let ms = Duration::from_millis;
    assert_eq!(sums, [(3, ms(29), ms(12)), (1, ms(25), ms(25))]);
    assert_eq!(all[0].at, ms(88), "the first began 12 ms before its end");
    assert_eq!(told(vec![Stall { kind: "of-tomorrow".into(), ..of(9, 9) }]), []);
    assert_eq!(told(vec![]), []);
}
