//! Tasks wait in the kernel for a lock, or for work that another task does. The end of the chain is the culprit.
//!
//! Signal: chains of the wait-for graph that begin with a wait for a kernel lock, or with an uninterruptible wait for another
//! task, and whose end has a name. Lost: the part of the waits that the chain explains, less what the waiters' sleeps absorb.
//! Not this rule: waits for a device, a CPU or a limit themselves; locks of programs (futexes).
//!
//! The edges of the graph: the owner in the lock's word, read when a wait began and while it lasted; the tasks that acquired the
//! lock after waiting; the waker of the waiter. The waiter's time is divided over what the holder did meanwhile, and so on down
//! to the task that ran, slept or waited for a device. Work of a task's own children is its own work, and no loss. A journal or
//! a writeback that no other process wrote to meanwhile is its own work, too. Where other processes wrote to it as well, their
//! part is a loss.

use std::borrow::Cow;
use std::time::Duration;

use whyslow_model::chain::Chain;
use whyslow_model::table::Task;
use whyslow_model::timeline::State;
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Finding, Missing, RuledOut, SubjectKind, seconds};

use super::Rule;
use super::expedite::{expedite, shortens_waits};
use super::one_end::{Cause, circle, victim};
use crate::Evidence;
use crate::cpu::spread;
use crate::graph::{CHAIN_THRESHOLD, HostChain, is_cycle};
use crate::self_inflicted::{SelfInflicted, Whose, blamed};
use crate::wait_reasons;

pub const RULE: Rule = Rule {
    id: "lock-wait",
    question: "Do tasks wait in the kernel for a lock, or for work that another task does?",
    what: "A task holds a lock of the kernel for long, or is slow to do what other tasks must wait for (a work item, an exit). The \
           waiters sleep in D state: they use no CPU and no disk, and no counter says which task they wait for.",
    how: "The wait-for graph follows each waiter to the lock holder or waker, and on to the task or device at the end of the chain. \
          Counterfactual: had the end of the chain been done at once, the waiters would have gone on. Time lost = the part of the \
          waits that the chain explains, less what the waiters' sleeps absorb, from 5 % of the waiters' time and 1 % of the window on. \
          A vicious circle: each hold got longer in the window (1.5 times from its first to its last third, or more) with a count of cgroups, mounts or \
          namespaces, and tasks that remove some of these wait for it.",
    limits: "Spinlocks: not seen, because a task that spins is on a CPU. A lock holder that is known only from what readers leave in \
             the lock's word, or that was not seen: not accused. A lock that was released and acquired again unseen: the first holder \
             is reported. Semaphores: they have no owner, so the waker counts as the holder. Work of a task's own children, and of a \
             journal or writeback that only it wrote to: no loss. Writers to a journal: known from waits, CPU samples and requests by \
             cgroup; for a wait for data also from the bytes that tasks made dirty, where the kernel counts them and nearly all went \
             to one disk. A task that writes a little and never waits: not seen.",
    sources: "kernel/locking/mutex.c, rwsem.c (owner word, contention_begin and _end since 5.19); kernel/sched/core.c \
              (try_to_wake_up, sched_waking).",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: |reason, _| reason == Reason::Lock,
};

/// Less than this share of one task's window is reported among the chains, not as a cause: every task waits for a lock now and then.
const WORTH_IT: f64 = 0.01;
/// The same holds for less than this part of the waiters' own time: a cause costs its victims more than one twentieth of their time.
const FELT: f64 = 0.05;
/// Findings that are reported. The chains show the rest.
const MOST: usize = 5;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    ev.spans()?;
    // Without stacks a chain ends at a waiter whose own wait has no reason.
    ev.has_stacks()?;
    let tasks = ev.tasks()?;
    let own = SelfInflicted::of(ev);
    let (mut causes, mut unclear): (Vec<Cause>, Vec<Cause>) = (Vec::new(), Vec::new());
    for reported in ev.host_chains().iter().filter(|reported| reported.blames_for_kernel_wait()) {
        let mut heads: Vec<u32> = reported.heads.keys().copied().collect();
        let (chain, causes) = match own.whose(reported) {
            Whose::Own => continue,
            Whose::Shared(foreign) => {
                heads.clone_from(&foreign.heads);
                (Cow::Owned(blamed(reported.chain.clone(), &foreign)), &mut causes)
            }
            Whose::Others => (Cow::Borrowed(&reported.chain), &mut causes),
            Whose::Unclear => (Cow::Borrowed(&reported.chain), &mut unclear),
        };
        let at = causes.iter().position(|cause| cause.is_same(&chain)).unwrap_or(causes.len());
        if at == causes.len() {
            causes.push(Cause::of(&chain));
        }
        causes[at].add(&chain, &heads);
    }
    let is_beside = |cause: &Cause| {
        causes.iter().any(|other| cause.is_beside(other)) || cause.is_beside_another(ev, &own)
    };
    let found = causes.iter().filter(|cause| !is_beside(cause)).filter_map(|cause| finding(ev, tasks, cause));
    let mut found: Vec<Finding> = found.collect();
    super::first_few(&mut found, MOST);
    if unclear.iter().any(|cause| finding(ev, tasks, cause).is_some()) {
        let why =
            Missing::unclear("for which process some tasks did work", "ids of tasks that ended were reused");
        if found.is_empty() {
            return Err(why);
        }
        found.push(Finding::cannot_tell(RULE.id, why));
    }
    Ok(found)
}

fn finding(ev: &Evidence<'_>, tasks: &[Task], cause: &Cause) -> Option<Finding> {
    let victims: Vec<&Task> =
        tasks.iter().filter(|task| cause.victims.binary_search(&task.pid).is_ok()).collect();
    let blocked = |task: &Task| task.blocked_ns.saturating_add(task.io_ns).max(1);
    let loss = spread::lost(&victims, blocked, cause.time.as_nanos() as f64);
    let felt = loss.likely.as_secs_f64() >= FELT * loss.lived.as_secs_f64();
    if !felt || loss.likely.as_secs_f64() < WORTH_IT * ev.window().as_secs_f64() {
        return None;
    }
    let (head, leaf) = (cause.chain.hops.first()?, cause.chain.hops.last()?);
    let at = match leaf.state {
        TaskState::Running | TaskState::Runnable => format!("{} ({})", leaf.who, leaf.detail),
        _ if is_cycle(&cause.chain) => format!("{}, which {}", leaf.who, leaf.detail),
        _ => format!("{}, which waits for {}", leaf.who, leaf.detail),
    };
    let title = format!(
        "{} waited {} for {}; at the end: {at}{}",
        head.who,
        seconds(cause.time),
        head.detail,
        circle(&cause.chain)
    );
    let mut finding = Finding::cause(RULE.id, victim(ev, &victims), loss.likely)
        .titled(title)
        .share_of(loss.lived)
        .between(loss.low, loss.high)
        .raw_wait(cause.time)
        .by(cause.chain.leaf.clone())
        .check(
            "the tasks that wait in the kernel now, and in which function",
            "ps -eLo pid,lwp,state,wchan:40,comm | awk '$3 == \"D\"'",
        )
        .check("what each task waits for, over some seconds", "whyslow chains --for 10s");
    finding.chain = cause.chain.hops.clone();
    finding.paid_by.clone_from(&cause.victims);
    let finding = finding.advice(way_out(&cause.chain, &leaf.who.to_string()));
    let can_be_short = leaf.reason == Reason::Rcu
        && cause.chain.tasks.last().is_some_and(|holders| shortens_waits(ev, holders));
    Some(if can_be_short { expedite(finding) } else { finding })
}

fn way_out(chain: &Chain, who: &str) -> String {
    match chain.leaf.kind {
        SubjectKind::Task | SubjectKind::Kernel => format!(
            "let {who} do this less often, in smaller steps, or when no task waits for it; stop it for a moment to see the waits \
             end (undo: start it again)"
        ),
        SubjectKind::Device => {
            format!(
                "the chain ends at a wait for {}: use a faster device, or do less I/O on it",
                chain.leaf.name
            )
        }
        SubjectKind::Quota | SubjectKind::Limit => {
            format!(
                "{} stops a task that other tasks wait for: raise it (undo: the old value)",
                chain.leaf.name
            )
        }
        _ => format!("let {} not do this while other tasks wait for it", chain.leaf.name),
    }
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    ev.spans()?;
    ev.has_stacks()?;
    let is_shown = |reported: &HostChain<'_>| {
        reported.chain.hops.iter().any(|hop| (RULE.shows)(hop.reason, &hop.detail))
    };
    let any = ev.host_chains().iter().any(|reported| reported.head.lock.is_some() || is_shown(reported));
    let rows = ev.recording().tables.locks.as_deref();
    let all = rows.map(|rows| rows.iter().map(|row| row.total_ns).fold(0, u64::saturating_add));
    let all = all.map(Duration::from_nanos);
    let little = all.is_none_or(|all| all.as_secs_f64() <= WORTH_IT * ev.window().as_secs_f64());
    let together = all.map_or_else(String::new, |all| format!(" (all waits together: {})", seconds(all)));
    let evidence = format!("no task waited for one for {} or longer{together}", seconds(CHAIN_THRESHOLD));
    Ok((!any && little && !were_file_locks(ev))
        .then(|| RuledOut { what: "a lock of the kernel".into(), evidence }))
}

/// Whether a task waited for a file lock (flock, fcntl). Such a wait is no loss of this rule, but a reader of "not a lock of the
/// kernel" would think that it was ruled out.
fn were_file_locks(ev: &Evidence<'_>) -> bool {
    let stacks = ev.stacks().clone();
    let mut slept = ev.spans().unwrap_or_default().iter().filter(|span| span.state == State::Sleep);
    slept.any(|span| wait_reasons::WaitContext::of(span, &stacks).passes(wait_reasons::FILE_LOCKS))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use whyslow_model::timeline::{Context, LockKind, LockWait, Run, Span, Stack, StateTimes, Waker};
    use whyslow_model::wait::Note;
    use whyslow_model::{Culprit, Hop, Kind, Meta, Recording};

    use super::*;
    use crate::wait_reasons::Class;

    const MS: u64 = 1_000_000;

    fn row(pid: u32, comm: &str, from: u64, to: u64) -> Span {
        let (from_ns, to_ns) = (from * MS, to * MS);
        let mixed = StateTimes { running_ns: to_ns - from_ns, ..StateTimes::default() };
        Span {
            pid,
            comm: comm.into(),
            from_ns,
            at_ns: to_ns,
            woken_ns: to_ns,
            to_ns,
            mixed,
            ..Span::default()
        }
    }

    /// Two tasks wait for a lock that the worker 9 holds for `held` ms of a second.
    fn host(held: u64) -> Recording {
        let mut spans = vec![row(9, "kworker/1:2", 0, 1000)];
        for pid in [1, 2] {
            let lock =
                LockWait { address: 7, kind: LockKind::Mutex, write: true, owner: 9, ..LockWait::default() };
            let waker =
                Waker { pid: 9, context: Context::Task, work: Some("free_fn".into()), ..Waker::default() };
            let wait = row(pid, "mkdir", 0, 10);
            spans.push(Span {
                woken_ns: (10 + held) * MS,
                to_ns: (10 + held) * MS,
                state: State::Blocked,
                lock: Some(LockWait { since_ns: 10 * MS, ..lock }),
                waker: Some(waker),
                ..wait
            });
            spans.push(row(pid, "mkdir", 10 + held, 1000));
        }
        let task = |pid, comm: &str| Task { pid, comm: comm.into(), lived_ns: 1000 * MS, ..Task::default() };
        let blocked = |pid| Task { blocked_ns: held * MS, ..task(pid, "mkdir") };
        let mut rec =
            Recording { meta: Meta { window_ns: 1000 * MS, ..Meta::default() }, ..Recording::default() };
        rec.tables.tasks = Some(vec![blocked(1), blocked(2), task(9, "kworker/1:2")]);
        rec.tables.spans = Some(spans);
        rec.tables.stacks = Some(Vec::new());
        rec
    }

    #[test]
    fn fires_when_a_worker_holds_a_lock_for_long() {
        let rec = host(400);
        let found = check(&Evidence::of(&rec)).unwrap();
        assert_eq!((found.len(), found[0].kind), (1, Kind::Cause));
        assert_eq!(found[0].lost, Some(Duration::from_millis(800)));
        let culprit = found[0].culprit.clone().unwrap();
        assert_eq!((culprit.id.as_str(), culprit.name.as_str()), ("9", "kworker/1:2 (free_fn)"));
        assert_eq!(found[0].chain.len(), 2);
        assert!(rules_out(&Evidence::of(&rec)).unwrap().is_none());
    }

    /// Its holder waits for a grace period meanwhile: that is made short, if it is long.
    #[test]
    fn fires_when_the_holder_waits_for_a_grace_period() {
        for (waits_in, is_made_short) in [
            ("synchronize_rcu", true),
            ("synchronize_rcu_expedited", false),
            ("synchronize_rcu_tasks", false),
        ] {
            holder_waits_in(waits_in, is_made_short);
        }
    }

    fn holder_waits_in(function: &str, is_made_short: bool) {
        let mut rec = host(400);
        let kernel = ["schedule", function, "cgroup_procs_write_start"].map(str::to_owned).to_vec();
        rec.tables.stacks = Some(vec![Stack { id: 5, kernel, user: Vec::new() }]);
        for span in rec.tables.spans.iter_mut().flatten().filter(|span| span.pid == 9) {
            (span.state, span.at_ns, span.woken_ns) = (State::Blocked, 5 * MS, 990 * MS);
            (span.stack, span.sampled_wait_ns) = (Some(5), 985 * MS);
        }
        let found = check(&Evidence::of(&rec)).unwrap();
        let title = &found[0].title;
        assert!(
            title.contains("which waits for an RCU grace period for cgroup_procs_write_start"),
            "{title}"
        );
        let offered = found[0]
            .fixes
            .iter()
            .any(|fix| fix.command.as_ref().is_some_and(|line| line.to_string().contains("rcu_expedited")));
        assert_eq!(offered, is_made_short, "{function}");
    }

    #[test]
    fn is_quiet_when_waits_are_short() {
        let rec = host(8);
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
        assert_eq!(rules_out(&Evidence::of(&rec)).unwrap().unwrap().what, "a lock of the kernel");
    }

    /// The waiters are kernel threads that write back dirty pages, and no task waits for them. Other workers do work that a task
    /// waits for.
    #[test]
    fn is_quiet_about_waits_of_the_kernels_writers() {
        let waiters = [
            ("kworker/u8:2", Some("wb_workfn"), 0),
            ("kworker/u8:2", Some("ext4_end_io_rsv_work"), 0),
            ("kworker/u8:2", Some("loop_workfn"), 1),
            ("kworker/u8:2", None, 0),
            ("jbd2/vda-8", None, 0),
            ("nfsd", None, 1),
        ];
        for (comm, work, causes) in waiters {
            let mut rec = host(400);
            for task in rec.tables.tasks.iter_mut().flatten().filter(|task| task.pid != 9) {
                (task.kthread, task.comm) = (true, comm.into());
            }
            for span in rec.tables.spans.iter_mut().flatten().filter(|span| span.pid != 9) {
                (span.comm, span.work) = (comm.into(), work.map(str::to_owned));
            }
            assert_eq!(check(&Evidence::of(&rec)).unwrap().len(), causes, "{comm} {work:?}");
        }
    }

    /// A wait for direct I/O on the same file has no lock's word, but the chains call it a wait for a lock.
    #[test]
    fn where_a_stack_tells_of_a_lock_none_is_ruled_out() {
        let mut rec = host(400);
        let kernel = ["schedule", "inode_dio_wait", "ext4_truncate"].map(str::to_owned).to_vec();
        rec.tables.stacks = Some(vec![Stack { id: 5, kernel, user: Vec::new() }]);
        let waits = |ev: &Evidence<'_>| {
            ev.host_chains().iter().any(|reported| reported.chain.hops[0].reason == Reason::Lock)
        };
        for span in rec.tables.spans.iter_mut().flatten().filter(|span| span.lock.is_some()) {
            (span.lock, span.stack) = (None, Some(5));
        }
        assert!(waits(&Evidence::of(&rec)));
        assert!(rules_out(&Evidence::of(&rec)).unwrap().is_none());
    }

    #[test]
    fn where_a_file_was_locked_no_lock_is_ruled_out() {
        let mut rec = host(8);
        let kernel = ["schedule", "locks_lock_inode_wait", "__do_sys_flock"].map(str::to_owned).to_vec();
        rec.tables.stacks = Some(vec![Stack { id: 3, kernel, user: Vec::new() }]);
        let wait = Span { state: State::Sleep, woken_ns: 900 * MS, stack: Some(3), ..row(5, "php", 0, 10) };
        rec.tables.spans.as_mut().unwrap().push(Span { to_ns: 1000 * MS, ..wait });
        assert_eq!(rules_out(&Evidence::of(&rec)), Ok(None));
    }

    #[test]
    fn accuses_nobody_on_what_readers_leave_in_a_lock_or_when_nobody_was_seen() {
        for owner in [9, 0] {
            let mut rec = host(400);
            for span in rec.tables.spans.iter_mut().flatten() {
                span.waker = None;
                if let Some(lock) = &mut span.lock {
                    (lock.reader_owned, lock.owner) = (true, owner);
                }
            }
            assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]), "owner {owner}");
        }
    }

    /// The worker sleeps for an unknown reason.
    #[test]
    fn cannot_tell_of_a_holder_that_slept_where_all_stacks_are_lost() {
        let mut rec = host(400);
        for span in rec.tables.spans.iter_mut().flatten().filter(|span| span.pid == 9) {
            (span.state, span.at_ns, span.woken_ns) = (State::Sleep, 5 * MS, 990 * MS);
        }
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]), "its stack does not show why it sleeps");
        rec.tables.stacks = None;
        let why = check(&Evidence::of(&rec)).unwrap_err().to_string();
        assert_eq!(why, "off-CPU stacks was not recorded");
    }

    /// The holder is runnable all the time, and other tasks run on its CPU for `turn` ms each.
    fn behind_others(turn: u64) -> Recording {
        let mut rec = host(400);
        for span in rec.tables.spans.iter_mut().flatten().filter(|span| span.pid == 9) {
            (span.at_ns, span.woken_ns, span.to_ns) = (5 * MS, 5 * MS, 1000 * MS);
            (span.state, span.mixed) = (State::Runnable, StateTimes::default());
        }
        let run = |at: u64| Run { cpu: 0, pid: 5, from_ns: at * turn * MS, to_ns: (at + 1) * turn * MS };
        rec.tables.runs = Some((0..1000 / turn).map(run).collect());
        rec
    }

    #[test]
    fn accuses_nobody_who_took_his_turn_on_a_cpu() {
        let found = |turn| check(&Evidence::of(&behind_others(turn))).unwrap();
        assert_eq!(found(40), vec![]);
        let hog = found(500);
        assert_eq!(hog.first().and_then(|f| f.culprit.clone()).map(|c| c.id).as_deref(), Some("5"));
    }

    /// A writer waits for an idle worker, which waits for work from the writer; and two tasks that hold one lock each.
    #[test]
    fn a_circle_by_way_of_an_idle_worker_is_no_deadlock() {
        let hop = |reason, who| {
            Hop::new(
                reason,
                whyslow_model::wait::Who::task(who),
                "",
                TaskState::Uninterruptible,
                Duration::from_secs(1),
            )
        };
        let head = Span { state: State::Blocked, ..row(1, "writer", 0, 1000) };
        let reported = |between| {
            let chain = Chain {
                time: Duration::from_secs(1),
                count: 1,
                worst: Duration::from_secs(1),
                hops: vec![
                    hop(Reason::Unknown, "writer"),
                    hop(between, "kworker/0:1"),
                    hop(Reason::Cycle, "writer"),
                ],
                tasks: vec![vec![(1, "writer".into())]],
                leaf: Culprit::new(SubjectKind::Task, "1", "writer"),
                notes: vec![Note::Cycle],
            };
            HostChain {
                chain,
                head: &head,
                class: Class::Unknown,
                leaf: Some(Class::Unknown),
                at_work: 0.0,
                heads: BTreeMap::new(),
                service: None,
            }
            .blames_for_kernel_wait()
        };
        assert!(reported(Reason::Lock) && !reported(Reason::Idle));
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        let mut rec = host(400);
        rec.tables.spans = None;
        assert_eq!(check(&Evidence::of(&rec)).unwrap_err().to_string(), "off-CPU stacks was not recorded");
    }
}
