use proptest::prelude::*;
use whyslow_model::table::Sample;
use whyslow_model::timeline::{Context, Hold, LockWait, Stack, State, StateTimes, Waker};

use super::*;

const MS: u64 = 1_000_000;
const LOCK: u64 = 0xffff_8881_0000_0010;

fn stack(id: u32, text: &str) -> Stack {
    Stack { id, kernel: text.split_whitespace().map(str::to_owned).collect(), user: Vec::new() }
}

/// `pid` waits for the lock from `from` to `to` (ms); the word says `owner`.
fn waiter(pid: u32, from: u64, to: u64, owner: u32) -> Span {
    let lock = LockWait {
        address: LOCK,
        kind: LockKind::Mutex,
        write: true,
        since_ns: from * MS,
        owner,
        ..LockWait::default()
    };
    Span {
        pid,
        tgid: pid,
        comm: format!("w{pid}"),
        from_ns: from * MS,
        at_ns: from * MS,
        woken_ns: to * MS,
        to_ns: to * MS,
        state: State::Blocked,
        stack: Some(1),
        lock: Some(lock),
        ..Span::default()
    }
}

/// `pid` runs from `from` to `at`, then sleeps until `to`.
fn worked(pid: u32, from: u64, at: u64, to: u64) -> Span {
    Span {
        pid,
        comm: format!("h{pid}"),
        from_ns: from * MS,
        at_ns: at * MS,
        woken_ns: to * MS,
        to_ns: to * MS,
        mixed: StateTimes { running_ns: (at - from) * MS, ..StateTimes::default() },
        state: State::Sleep,
        stack: Some(2),
        ..Span::default()
    }
}

fn recording(spans: Vec<Span>) -> Recording {
    let mut recording = Recording::default();
    recording.tables.stacks = Some(vec![
        stack(
            1,
            "__schedule schedule schedule_preempt_disabled __mutex_lock.constprop.0 cgroup_kn_lock_live cgroup_mkdir kernfs_iop_mkdir vfs_mkdir",
        ),
        stack(2, "__schedule schedule do_nanosleep hrtimer_nanosleep"),
        stack(
            3,
            "try_to_wake_up wake_up_q __mutex_unlock_slowpath mutex_unlock cgroup_kn_unlock cgroup_rmdir",
        ),
    ]);
    recording.tables.spans = Some(spans);
    recording
}

fn reported(recording: &Recording) -> LockAccount {
    let mut all = locks(recording);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn holders(account: &LockAccount) -> Vec<(u32, u64)> {
    account.holders.iter().map(|holder| (holder.pid, holder.caused.as_millis() as u64)).collect()
}

#[test]
fn contention_is_summed_by_mode_and_site_and_named() {
    let mut rec = recording(Vec::new());
    let row = |write, stack, count, total, worst| Lock {
        address: LOCK,
        kind: LockKind::Rwsem,
        write,
        stack,
        count,
        total_ns: total * MS,
        worst_ns: worst * MS,
    };
    rec.tables.stacks = Some(vec![
        stack(1, "down_write do_madvise __x64_sys_madvise"),
        stack(2, "down_read do_user_addr_fault"),
    ]);
    rec.tables.locks =
        Some(vec![row(true, Some(1), 2, 30, 20), row(false, Some(2), 5, 10, 4), row(false, None, 1, 1, 1)]);
    let account = reported(&rec);
    assert_eq!(
        (account.name.as_str(), account.named_by.to_string().as_str()),
        ("mmap_lock of a process", "call sites")
    );
    assert_eq!((account.kind.word(), account.address.as_str()), ("rwsem", "18446612686364999696"));
    assert_eq!(
        (account.write.count, account.write.total.as_millis(), account.write.worst.as_millis()),
        (2, 30, 20)
    );
    assert_eq!(
        (account.read.count, account.read.total.as_millis(), account.read.worst.as_millis()),
        (6, 11, 4)
    );
    let sites: Vec<_> = account.sites.iter().map(|site| (site.site.as_str(), site.count)).collect();
    assert_eq!(sites, [("do_madvise < __x64_sys_madvise", 2), ("do_user_addr_fault", 5), ("unknown", 1)]);
}

#[test]
fn the_owner_in_the_word_caused_the_wait_and_its_timeline_says_how() {
    let mut rec = recording(vec![waiter(1, 0, 40, 9), waiter(2, 20, 40, 9), worked(9, 0, 10, 40)]);
    let busy = Sample { pid: 9, count: 3, kernel: vec!["css_rstat_flush".into()], ..Sample::default() };
    rec.tables.samples = Some(vec![busy]);
    let account = reported(&rec);
    assert_eq!(account.name, "cgroup_mutex");
    assert_eq!(holders(&account), [(9, 60)]);
    assert_eq!(account.holders[0].who.to_string(), "h9");
    assert_eq!(did(&account.holders[0]), ["waited for its own sleep", "ran css_rstat_flush (kernel)"]);
    assert_eq!(account.write.count, 2, "without the table of contention the timeline counts");
}

#[test]
fn a_lock_that_changes_hands_is_shared_out_by_time() {
    let hold = |at_ns, pid| Hold { lock: LOCK, at_ns: at_ns * MS, pid, ..Hold::default() };
    let mut rec = recording(vec![waiter(1, 0, 100, 9)]);
    rec.tables.holds = Some(vec![hold(70, 8), hold(30, 7), hold(500, 6), hold(40, 7)]);
    assert_eq!(holders(&reported(&rec)), [(7, 40), (8, 30), (9, 30)]);
    // The waiter read the word again: the lock changed hands at a time that was not observed.
    let mut again = waiter(1, 0, 100, 9);
    again.lock.as_mut().unwrap().owner_again = 5;
    assert_eq!(holders(&reported(&recording(vec![again]))), [(5, 50), (9, 50)]);
}

#[test]
fn waker_counts_as_the_lock_holder_unless_it_is_an_interrupt() {
    let waker = |context| {
        Some(Waker {
            pid: 9,
            comm: "kworker/0:1".into(),
            context,
            work: Some("css_killed_work_fn".into()),
            stack: Some(3),
            ..Waker::default()
        })
    };
    let mut span = waiter(1, 0, 40, 0);
    span.waker = waker(Context::Task);
    let account = reported(&recording(vec![span.clone()]));
    assert_eq!(holders(&account), [(9, 40)]);
    assert_eq!(account.holders[0].who.to_string(), "kworker/0:1 (css_killed_work_fn)");
    assert_eq!(did(&account.holders[0]), ["released the lock in cgroup_kn_unlock"]);
    span.waker = waker(Context::Softirq);
    assert_eq!(holders(&reported(&recording(vec![span]))), [], "the waker is an interrupt");
}

#[test]
fn a_reader_in_the_word_may_be_gone_and_who_let_go_is_not() {
    let mut span = waiter(1, 0, 40, 7);
    span.lock.as_mut().unwrap().reader_owned = true;
    assert_eq!(holders(&reported(&recording(vec![span.clone()]))), [(7, 40)], "the best guess");
    span.waker = Some(Waker { pid: 9, context: Context::Task, ..Waker::default() });
    assert_eq!(holders(&reported(&recording(vec![span]))), [(9, 40)]);
}

#[test]
fn waiter_itself_and_an_unknown_owner_are_no_holders() {
    assert_eq!(holders(&reported(&recording(vec![waiter(1, 0, 40, 1)]))), []);
    assert_eq!(holders(&reported(&recording(vec![waiter(1, 0, 40, 0)]))), []);
    assert_eq!(locks(&Recording::default()), []);
}

#[test]
fn waits_in_the_contention_table_are_not_counted_twice() {
    let mut open = waiter(1, 0, 40, 9);
    open.open = true;
    let mut rec = recording(vec![open, waiter(2, 0, 10, 9)]);
    rec.tables.locks = Some(vec![Lock {
        address: LOCK,
        kind: LockKind::Mutex,
        write: true,
        stack: Some(1),
        count: 2,
        total_ns: 50 * MS,
        worst_ns: 40 * MS,
    }]);
    let account = reported(&rec);
    assert_eq!((account.write.count, account.write.total.as_millis()), (2, 50));
    assert_eq!(account.sites.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn holders_never_cause_more_than_was_waited(
        waits in prop::collection::vec((0..5_u32, 0..200_u64, 0..200_u64, 0..5_u32, 0..5_u32, any::<bool>()), 0..8),
        holds in prop::collection::vec((0..200_u64, 0..5_u32), 0..12),
    ) {
        let spans: Vec<Span> = waits.iter().map(|(pid, from, long, owner, again, reader)| {
            let mut span = waiter(*pid, *from, from + long, *owner);
            if let Some(lock) = span.lock.as_mut() {
                (lock.owner_again, lock.reader_owned) = (*again, *reader);
            }
            span
        }).collect();
        let waited: u64 = spans.iter().map(|span| span.woken_ns - span.at_ns).sum();
        let mut rec = recording(spans);
        rec.tables.holds =
            Some(holds.iter().map(|(at, pid)| Hold { lock: LOCK, at_ns: at * MS, pid: *pid, ..Hold::default() }).collect());
        for account in locks(&rec) {
            let caused: Duration = account.holders.iter().map(|holder| holder.caused).sum();
            prop_assert!(caused <= Duration::from_nanos(waited), "{caused:?} of {waited}");
        }
    }

    #[test]
    fn impossible_times_are_no_panic(times in any::<[u64; 6]>(), owner in any::<u32>(), hold in any::<(u64, u32)>()) {
        let mut span = waiter(1, 0, 0, owner);
        [span.from_ns, span.at_ns, span.woken_ns, span.to_ns, span.mixed.running_ns, span.mixed.sleep_ns] = times;
        span.open = true;
        let mut rec = recording(vec![span.clone(), Span { pid: owner, ..span }]);
        rec.tables.holds = Some(vec![Hold { lock: LOCK, at_ns: hold.0, pid: hold.1, ..Hold::default() }]);
        prop_assert!(locks(&rec).len() <= 1);
    }
}

fn did(holder: &whyslow_model::chain::Holder) -> Vec<String> {
    holder.did.iter().map(ToString::to_string).collect()
}

#[test]
fn a_wait_that_lasted_already_when_the_window_began_is_told_by_its_stack() {
    let begun = |at_ms: u64| Span { lock: None, open: true, ..waiter(9, at_ms, 80, 0) };
    let told = |spans: Vec<Span>, is_traced: bool| {
        let mut recording = recording(spans);
        (recording.meta.window_ns, recording.tables.locks) = (100 * MS, is_traced.then(Vec::new));
        locks(&recording)
    };
    let all = told(vec![begun(0), waiter(8, 20, 50, 0)], true);
    let [lock, other] = &all[..] else { panic!("{all:?}") };
    assert_eq!(
        (lock.name.as_str(), lock.kind, lock.address.as_str()),
        ("cgroup_mutex", LockKind::Mutex, "0")
    );
    assert_eq!((lock.write.count, lock.write.total), (1, Duration::from_millis(80)));
    assert!(lock.sites[0].site.starts_with("cgroup_kn_lock_live < cgroup_mkdir"), "{:?}", lock.sites);
    assert_eq!(other.write.total, Duration::from_millis(30), "which lock it is the kernel has said");
    assert_eq!(told(vec![begun(10)], true), [], "it is none that the kernel says");
    assert_eq!(told(vec![begun(0)], false), [], "one of many locks without a tracepoint");
}
