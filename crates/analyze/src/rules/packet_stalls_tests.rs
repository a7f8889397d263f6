use whyslow_model::stall::{Stall, StallSeen};
use whyslow_model::table::{Gap, Run, Span, Task};
use whyslow_model::{FileSnapshot, Kind, Recording};

use super::*;
use crate::irq::latency::fixture;

const MS: u64 = 1_000_000;
const READS: [&str; 4] = ["css_rstat_flush", "memory_stat_show", "vfs_read", "do_syscall_64"];
const TICK: [&str; 2] = ["hrtimer_interrupt", "asm_sysvec_apic_timer_interrupt"];

fn seen(pid: u32, comm: &str, frames: &[&str]) -> StallSeen {
    let kernel = frames.iter().map(|frame| (*frame).to_owned()).collect();
    StallSeen { count: 4, pid, tgid: pid, comm: comm.to_owned(), kernel, ..StallSeen::default() }
}

fn host(stalls: Vec<Stall>, gaps: Vec<Gap>) -> Recording {
    let task = |pid, comm: &str| Task { pid, tgid: pid, comm: comm.into(), ..Task::default() };
    let mut rec = fixture::host();
    rec.tables.tasks = Some(vec![task(9, "agent"), task(30, "kworker/u8:1"), task(8, "player")]);
    (rec.tables.stalls, rec.tables.gaps) = (Some(stalls), Some(gaps));
    rec.tables.cpus = Some(vec![]);
    rec
}

fn stall(at: u64, ms: u64, kind: StallKind, seen: Vec<StallSeen>) -> Stall {
    Stall { cpu: 1, at_ns: at * MS, ns: ms * MS, kind: kind.word().to_owned(), seen, ..Stall::default() }
}

/// `pid` keeps interrupts off for 20 ms; `at` says when it was over, in ms.
fn off(pid: u32, comm: &str, call: Option<u32>, at: u64) -> (Stall, Gap) {
    let file = call.map(|_| "memory.stat".to_owned());
    let end = StallSeen { syscall: call, file, ..seen(pid, comm, &READS) };
    let frames = [&TICK[1..], &READS[..]].concat();
    let gap = Gap { at_ns: at * MS, comm: comm.to_owned(), ..fixture::gap(1, pid, &frames) };
    (stall(at, 20, StallKind::IrqsOff, vec![end]), gap)
}

fn reader_and_worker(reads: u64) -> Recording {
    let reads = (0..reads).map(|n| off(9, "agent", Some(0), 100 + n * 100));
    let all = reads.chain([off(30, "kworker/u8:1", None, 900)]);
    let (stalls, gaps) = all.unzip();
    host(stalls, gaps)
}

/// A thread before ksoftirqd, for `ms`.
fn deferred(ms: u64) -> Recording {
    let ticks = seen(8, "player", &TICK);
    let end = seen(20, "ksoftirqd/1", &["handle_softirqs", "run_ksoftirqd", "kthread"]);
    host(vec![stall(500, ms, StallKind::Deferred, vec![ticks, end])], vec![])
}

fn told(rec: &Recording) -> Vec<Finding> {
    check(&Evidence::of(rec)).unwrap()
}

#[test]
fn fires_when_a_reader_and_the_worker_keep_interrupts_off() {
    let rec = reader_and_worker(3);
    let [found] = &told(&rec)[..] else { panic!("one function is one finding") };
    assert_eq!(
        found.title,
        "agent (pid 9) kept the packets of CPU 1 waiting for 60 ms, 3 times, worst 20 ms: css_rstat_flush in read(memory.stat); \
         kworker/u8:1 (pid 30) did the same for 20 ms"
    );
    assert_eq!(
        (found.kind, found.lost, found.victim.id.as_str()),
        (Kind::Cause, Some(Duration::from_millis(80)), "cpu1")
    );
    assert_eq!(
        found.culprit.as_ref().map(|one| (one.id.as_str(), one.function.as_deref())),
        Some(("9", Some("css_rstat_flush")))
    );
    assert_eq!(
        found.chain.iter().map(|hop| hop.reason).collect::<Vec<_>>(),
        [Reason::IrqsOff, Reason::IrqsOff]
    );
    let advice: Vec<&str> = found.fixes.iter().map(|fix| fix.text.as_str()).collect();
    assert_eq!(advice[0], "let agent read memory.stat less often (its interval; undo: the old one)");
    assert_eq!(
        advice[2],
        "stopping agent alone helps in part: kworker/u8:1 does the same, in css_rstat_flush"
    );
}

#[test]
fn dying_cgroups_are_freed_where_their_statistics_are_folded() {
    let advised = |dying: u64, mut rec: Recording| {
        let bytes = format!("nr_descendants 10\nnr_dying_descendants {dying}\n").into_bytes();
        rec.snapshots.push(FileSnapshot {
            name: "sys/fs/cgroup/cgroup.stat".into(),
            bytes,
            at: Duration::ZERO,
        });
        let found = told(&rec);
        let fix = found[0].fixes.iter().find(|fix| fix.text.starts_with("free what keeps"));
        fix.map(|fix| fix.text.contains(&format!("{dying} dying cgroups")))
    };
    assert_eq!(advised(25_000, reader_and_worker(3)), Some(true));
    assert_eq!(advised(900, reader_and_worker(3)), None, "too few to keep a CPU");
    assert_eq!(advised(25_000, deferred(60)), None, "another mechanism");
}

#[test]
fn one_thread_is_one_account_whether_or_not_its_file_is_known() {
    let all = [off(9, "agent", None, 100), off(9, "agent", Some(0), 300), off(9, "agent", None, 500)];
    let (stalls, gaps) = all.into_iter().unzip();
    let [found] = &told(&host(stalls, gaps))[..] else { panic!("one function is one finding") };
    assert_eq!(
        found.title,
        "agent (pid 9) kept the packets of CPU 1 waiting for 60 ms, 3 times, worst 20 ms: css_rstat_flush in read(memory.stat)"
    );
    assert_eq!((found.chain.len(), found.fixes.len()), (1, 2));
}

#[test]
fn fires_when_a_thread_runs_before_ksoftirqd() {
    let found = told(&deferred(60));
    assert_eq!(
        found[0].title,
        "player (pid 8) kept the packets of CPU 1 waiting for 60 ms, once, worst 60 ms"
    );
    assert_eq!((found[0].lost, found[0].chain[0].reason), (Some(Duration::from_millis(60)), Reason::Running));
}

#[test]
fn fires_when_a_softirq_takes_long() {
    let tick = StallSeen {
        softirq: true,
        ..seen(0, "swapper/1", &[&TICK[..], &["nft_do_chain", "net_rx_action", "handle_softirqs"]].concat())
    };
    let end = seen(0, "swapper/1", &["net_rx_action", "handle_softirqs"]);
    let found = told(&host(vec![stall(500, 60, StallKind::Poll, vec![tick, end])], vec![]));
    assert_eq!(
        found[0].title,
        "nft_do_chain in a softirq kept the packets of CPU 1 waiting for 60 ms, once, worst 60 ms"
    );
    let culprit = found[0].culprit.as_ref().unwrap();
    assert_eq!((culprit.kind, culprit.function.as_deref()), (SubjectKind::Kernel, Some("nft_do_chain")));
}

#[test]
fn is_quiet_about_short_and_rare_stalls() {
    let mut rec = deferred(20);
    rec.meta.window_ns = 10_000 * MS;
    assert_eq!(told(&rec), []);
    let ruled_out = rules_out(&Evidence::of(&rec)).unwrap().unwrap();
    assert_eq!(ruled_out.evidence, "packets waited for their CPU for 20 ms at most");
    let none = rules_out(&Evidence::of(&host(vec![], vec![]))).unwrap().unwrap();
    assert_eq!(none.evidence, "no packet waited for its CPU for 5 ms or more");
}

fn untold(rec: &Recording) -> String {
    check(&Evidence::of(rec)).unwrap_err().to_string()
}

#[test]
fn cannot_tell_by_a_function_that_ended_a_single_gap() {
    let (stall, gap) = off(9, "agent", Some(0), 300);
    assert_eq!(
        untold(&host(vec![stall], vec![gap])),
        "cannot tell what kept CPU 1 from its packets: they waited for 20 ms, once, but css_rstat_flush, which ran at the end, is not \
         known to keep interrupts off: it was seen too rarely"
    );
}

#[test]
fn cannot_tell_by_many_short_stalls_of_many_threads() {
    let of = |pid| {
        let ticks = StallSeen { syscall: Some(0), ..seen(pid, "job", &[&TICK[..], &["sort_rows"]].concat()) };
        let end = seen(20, "ksoftirqd/1", &["handle_softirqs", "run_ksoftirqd", "kthread"]);
        stall(u64::from(pid), 8, StallKind::Deferred, vec![ticks, end])
    };
    let rec = host((100..150).map(of).collect(), vec![]);
    assert!(
        untold(&rec).ends_with("they waited for 400 ms, 50 times, but by 50 causes, none of which is large")
    );
    // Beside a cause that is named it is said, too.
    let mut both = reader_and_worker(3);
    both.tables.stalls.as_mut().unwrap().extend((100..150).map(of).map(|one| Stall { cpu: 0, ..one }));
    let kinds: Vec<Kind> = told(&both).iter().map(|found| found.kind).collect();
    assert_eq!(kinds, [Kind::Cause, Kind::CannotTell]);
}

#[test]
fn ordinary_threads_that_take_turns_with_ksoftirqd_are_no_cause() {
    let turns = |task: Task| {
        let mut rec = deferred(30);
        rec.tables.tasks.as_mut().unwrap().retain(|one| one.pid != 8);
        rec.tables.tasks.as_mut().unwrap().push(Task { pid: 8, tgid: 8, comm: "player".into(), ..task });
        rec
    };
    let ordinary = turns(Task { weight: 1024, ..Task::default() });
    assert!(untold(&ordinary).ends_with("ksoftirqd took turns with an ordinary thread: this CPU is full"));
    let urgent = told(&turns(Task { policy: 1, ..Task::default() }));
    assert_eq!(urgent[0].culprit.as_ref().map(|one| one.id.as_str()), Some("8"));
    assert!(urgent[0].fixes[0].text.starts_with("give player ordinary priority (chrt -o -p 0 8;"));
    let favoured = told(&turns(Task { weight: 88761, ..Task::default() }));
    assert_eq!(favoured[0].kind, Kind::Cause);
    // In the kernel the scheduler may have to wait for it.
    let mut call = ordinary.clone();
    let first = &mut call.tables.stalls.as_mut().unwrap()[0].seen[0];
    (first.syscall, first.file) = (Some(0), Some("memory.stat".into()));
    assert!(told(&call)[0].title.ends_with("worst 30 ms: read(memory.stat)"), "{}", told(&call)[0].title);
}

#[test]
fn whyslow_itself_is_not_accused() {
    let mut rec = deferred(60);
    rec.meta.own_pids = vec![8];
    assert!(untold(&rec).ends_with("but whyslow itself ran there"));
}

#[test]
fn kernel_thread_alone_gets_no_advice_that_it_cannot_follow() {
    let (stalls, gaps) = (1..5).map(|n| off(30, "kworker/u8:1", None, n * 100)).unzip();
    let mut rec = host(stalls, gaps);
    let tasks = rec.tables.tasks.as_mut().unwrap();
    tasks.iter_mut().for_each(|task| task.kthread = task.pid == 30);
    let advice =
        |rec: &Recording| -> Vec<String> { told(rec)[0].fixes.iter().map(|fix| fix.text.clone()).collect() };
    assert_eq!(
        advice(&rec),
        ["keep the packets off its CPU (/proc/irq/NUMBER/smp_affinity, rps_cpus; undo: the old masks)"]
    );
    rec.meta.cpus = 1;
    assert!(advice(&rec).is_empty());
}

#[test]
fn where_the_hooks_were_removed_nothing_is_ruled_out() {
    let mut rec = host(vec![], vec![]);
    rec.missing
        .push(Missing::skipped("long polls of packets", "a CPU had too many softirqs to check each").into());
    assert_eq!((told(&rec), rules_out(&Evidence::of(&rec))), (vec![], Ok(None)));
    let what = whyslow_model::Probe::PacketStalls.word();
    rec.missing.push(Missing::skipped(what, "a CPU had too many softirqs to check each").into());
    assert!(untold(&rec).contains("a CPU had too many softirqs to check each"));
    assert_eq!(
        told(&{
            let mut some = deferred(60);
            some.missing = rec.missing;
            some
        })
        .len(),
        1
    );
}

#[test]
fn risk_of_the_same_thread_and_cpu_is_folded() {
    let rec = reader_and_worker(3);
    let all = super::super::ask_all(&Evidence::of(&rec)).findings;
    let rules =
        |kind| all.iter().filter(|one| one.kind == kind).map(|one| one.rule.as_str()).collect::<Vec<_>>();
    assert_eq!((rules(Kind::Cause), rules(Kind::Risk)), (vec!["packet-stalls"], vec![]));
    // The worker has most of the gaps, but not most of the stalls.
    let mut other = reader_and_worker(3);
    let more = (0..5).map(|n| off(30, "kworker/u8:1", None, 150 + n * 100).1);
    other.tables.gaps.as_mut().unwrap().extend(more);
    let all = super::super::ask_all(&Evidence::of(&other)).findings;
    assert!(all.iter().all(|one| one.rule != "irqs-off"), "{all:?}");
    // Alone, the interrupts that are off are a risk.
    let alone =
        super::super::ask_all(&Evidence::of(&host(vec![], rec.tables.gaps.clone().unwrap()))).findings;
    assert!(alone.iter().any(|one| one.rule == "irqs-off" && one.kind == Kind::Risk));
}

#[test]
fn cannot_tell_when_the_culprit_is_not_known() {
    let end = seen(20, "ksoftirqd/1", &["handle_softirqs", "run_ksoftirqd", "kthread"]);
    let rec = host(vec![stall(500, 60, StallKind::Deferred, vec![end])], vec![]);
    assert_eq!(
        check(&Evidence::of(&rec)).unwrap_err().to_string(),
        "cannot tell what kept CPU 1 from its packets: they waited for 60 ms, once, but no tick of this CPU came meanwhile"
    );
    assert_eq!(
        check(&Evidence::of(&fixture::host())).unwrap_err().to_string(),
        "packet stalls was not recorded"
    );
}

/// A real-time thread has CPU 1 for 40 ms at a time, while a thread that polls a device is ready; some rows are lost.
fn before_a_polling_thread() -> Recording {
    let mut rec = host(vec![], vec![]);
    let tasks = rec.tables.tasks.iter_mut().flatten();
    tasks.filter(|task| task.pid == 8).for_each(|task| task.policy = 1);
    let bound = Task { allowed: "1".into(), allowed_count: 1, ..Task::default() };
    let polls = Task { pid: 20, tgid: 20, comm: "napi/eth0-1".into(), kthread: true, ..bound };
    rec.tables.tasks.as_mut().unwrap().push(polls);
    let wait = |at: u64| Span {
        pid: 20,
        tgid: 20,
        comm: "napi/eth0-1".into(),
        cpu: 1,
        at_ns: at * MS,
        woken_ns: at * MS,
        to_ns: (at + 40) * MS,
        ..Span::default()
    };
    rec.tables.spans = Some(vec![wait(100), wait(300)]);
    let run = |at: u64| Run { cpu: 1, pid: 8, from_ns: at * MS, to_ns: (at + 40) * MS };
    rec.tables.runs = Some(vec![run(100), run(300)]);
    rec
}

#[test]
fn fires_when_a_thread_runs_before_a_polling_thread() {
    let rec = before_a_polling_thread();
    let [found] = &told(&rec)[..] else { panic!("one thread is one finding") };
    assert_eq!(
        found.title,
        "player (pid 8) kept the packets of CPU 1 waiting for 80 ms, 2 times, worst 40 ms: napi/eth0-1 (pid 20) was ready to poll and \
         did not run"
    );
    assert_eq!((found.lost, found.chain[0].reason), (Some(Duration::from_millis(80)), Reason::Running));
    let advice: Vec<&str> = found.fixes.iter().map(|fix| fix.text.as_str()).collect();
    assert!(advice[0].starts_with("give napi/eth0-1 (pid 20) a higher real-time priority than player has"));
    assert!(advice[1].starts_with("give player ordinary priority (chrt -o -p 0 8;"), "{advice:?}");
    assert!(advice[2].contains("or napi/eth0-1 (pid 20) off its CPU"), "{advice:?}");
    assert_eq!(
        rules_out(&Evidence::of(&rec)).unwrap().unwrap().evidence,
        "packets waited for their CPU for 40 ms at most"
    );
}

#[test]
fn cannot_tell_of_a_polling_thread_without_timelines() {
    let mut rec = before_a_polling_thread();
    rec.tables.spans = None;
    assert!(check(&Evidence::of(&rec)).is_err() && rules_out(&Evidence::of(&rec)).is_err());
    // Other stalls are told all the same.
    rec.tables.stalls = deferred(60).tables.stalls;
    let kinds: Vec<Kind> = told(&rec).iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [Kind::Cause, Kind::CannotTell]);
    // Where no thread polls, they are not asked for.
    rec.tables.stalls = Some(vec![]);
    rec.tables.tasks.as_mut().unwrap().retain(|task| task.pid != 20);
    assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
    assert!(rules_out(&Evidence::of(&rec)).unwrap().is_some());
}
