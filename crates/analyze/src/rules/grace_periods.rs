//! Threads wait for RCU grace periods that their own system calls need.
//!
//! Signal: waits in D state inside synchronize_rcu and its kin, outside of work items, by the function that needed the grace period. Lost: these
//! waits, less what the sleeps of threads that live on absorb. Not this rule: threads that wait for a lock whose holder waits for a grace period (`lock-wait`);
//! work items (`ipc-namespaces`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::table::Task;
use whyslow_model::timeline::{Span, State};
use whyslow_model::wait::{Detail, Reason, TaskState, Who};
use whyslow_model::{Culprit, Finding, Hop, Missing, RuledOut, Share, SubjectKind, command, seconds};

use super::Rule;
use super::expedite::{expedite, shortens};
use super::one_end::victim;
use crate::Evidence;
use crate::cpu::spread::{self, Loss};
use crate::works::{for_grace_periods, grace_periods};

#[cfg(test)]
#[path = "grace_periods_tests.rs"]
mod tests;

pub const RULE: Rule = Rule {
    id: "grace-periods",
    question: "Do threads wait for RCU grace periods that their own calls need?",
    what: "Some system calls free or switch what other CPUs may still read: moving a thread into a cgroup, unmounting, removing an interface, a filter or \
           a module. They wait until all CPUs have passed through the scheduler (an RCU grace period): 5 to 40 ms, on an idle host, too. Once, no one \
           notices it. A host that does it for every short-lived job pays for it in every job.",
    how: "Waits inside synchronize_rcu and the functions like it, by the function that needed the grace period; work items do not count. \
          Counterfactual: no wait for a grace period; time lost = these waits, less what the sleeps of threads that lived longer absorb. Reported from 10 grace periods, 5 % of the \
          waiters' time and 1 % of the window on.",
    limits: "Threads that are summed up because many ended: their waits are divided by the time that they were blocked, and are lost where so many lives have to be summed up \
             that their timelines are dropped. Waits of less than a millisecond share a stack: the number of grace periods is a lower bound. A wait for the same lock as a \
             waiter for a grace period: lock-wait. Whether a reader held a grace period up: not known on most kernels.",
    sources: "kernel/rcu/tree.c (synchronize_rcu), kernel/rcu/sync.c (rcu_sync_enter), kernel/locking/percpu-rwsem.c; kernel/cgroup/cgroup.c \
              (cgroup_attach_lock; favordynmods: 6a010a49b63a, v6.0; a lock for each process: 0568f89d4fb8, v6.18); CLONE_INTO_CGROUP: v5.7.",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: |reason, _| reason == Reason::Rcu,
};

/// Fewer are no habit of a program.
const FEW: u64 = 10;
/// Less than this part of the window is not worth a line that says what the host does not do.
const WORTH_IT: Share = Share::percent(1);

/// Waits for one function.
#[derive(Default)]
struct Needed {
    count: u64,
    total_ns: u64,
    worst_ns: u64,
    /// Of `total_ns`, in grace periods that the kernel's switch makes short.
    helped_ns: u64,
    by_pid: BTreeMap<u32, u64>,
    /// How long threads of each name waited.
    by_comm: BTreeMap<String, u64>,
}

/// What a thread does when it needs one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Attach,
    Unmount,
    Other,
}

impl Act {
    fn of(frames: &[String]) -> Act {
        let any = |is: fn(&str) -> bool| frames.iter().any(|frame| is(frame));
        // cgroup_procs_write, cgroup_threads_write, cgroup1_tasks_write; a controller that is enabled takes the same lock, and moves nothing by hand.
        let moves = |frame: &str| {
            ["procs_write", "threads_write", "tasks_write"].iter().any(|part| frame.contains(part))
        };
        if any(|frame| frame.contains("cgroup")) && frames.iter().any(|frame| moves(frame)) {
            return Act::Attach;
        }
        if any(|frame| frame == "path_umount" || frame == "do_umount" || frame.ends_with("sys_umount")) {
            return Act::Unmount;
        }
        Act::Other
    }

    fn when(self) -> &'static str {
        match self {
            Act::Attach => " at moves into cgroups",
            Act::Unmount => " at unmounts",
            Act::Other => "",
        }
    }
}

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let spans = ev.spans()?;
    ev.has_stacks()?;
    let tasks = ev.tasks()?;
    let threads: BTreeSet<u32> = tasks.iter().filter(|task| task.kthread).map(|task| task.pid).collect();
    let mut by_function: BTreeMap<(String, Act), Needed> = BTreeMap::new();
    let own_calls =
        |span: &&Span| span.work.is_none() && !threads.contains(&span.pid) && !ev.is_own(span.pid, span.tgid);
    for (span, caller) in for_grace_periods(spans.iter().filter(own_calls), ev.stacks()) {
        let frames = ev.stacks().kernel(span.stack);
        by_function.entry((caller.unwrap_or_default(), Act::of(frames))).or_default().add(span, frames);
    }
    let found =
        by_function.iter().filter_map(|((function, act), needed)| finding(ev, tasks, function, *act, needed));
    Ok(found.collect())
}

impl Needed {
    fn add(&mut self, span: &Span, frames: &[String]) {
        let ns = span.sampled_wait_ns;
        self.count = self.count.saturating_add(1);
        self.total_ns = self.total_ns.saturating_add(ns);
        self.worst_ns = self.worst_ns.max(ns);
        if shortens(frames) {
            self.helped_ns = self.helped_ns.saturating_add(ns);
        }
        let of_pid = self.by_pid.entry(span.pid).or_default();
        *of_pid = of_pid.saturating_add(ns);
        let of_comm = self.by_comm.entry(span.comm.clone()).or_default();
        *of_comm = of_comm.saturating_add(ns);
    }

    fn waited(&self, task: &Task) -> u64 {
        self.by_pid.get(&task.pid).copied().unwrap_or(0)
    }

    /// Threads of the name that waited the longest time.
    fn who(&self) -> Who {
        let most = self.by_comm.iter().max_by_key(|(_, ns)| **ns).map_or("", |(comm, _)| comm);
        let others = if self.by_comm.len() > 1 { " and others" } else { "" };
        match self.by_pid.len() {
            0 | 1 => Who::task(most),
            many => Who::task(format!("{most}{others} ({many} threads)")),
        }
    }

    /// What was lost by waiting, and the tasks that lost it.
    fn loss<'t>(&self, tasks: &'t [Task]) -> (Loss, Vec<&'t Task>) {
        let (summed, single): (Vec<&Task>, Vec<&Task>) =
            tasks.iter().filter(|task| !task.kthread).partition(|task| task.folded > 0);
        let single: Vec<&Task> = single.into_iter().filter(|task| self.waited(task) > 0).collect();
        // Several tasks may have had one number.
        let known =
            single.iter().map(|task| self.waited(task)).fold(0, u64::saturating_add).min(self.total_ns);
        // Waits of threads without a row of their own are those of rows that stand for many, in proportion to the time that these were blocked.
        let summed: Vec<&Task> = summed.into_iter().filter(|task| task.blocked_ns > 0).collect();
        let sum = |of: fn(&Task) -> u64| summed.iter().map(|task| of(task)).fold(0, u64::saturating_add);
        let (blocked, lived) = (sum(|task| task.blocked_ns), sum(|task| task.lived_ns));
        let rest = self.total_ns.saturating_sub(known).min(blocked);
        let of_rest = lived as f64 * (rest as f64 / blocked.max(1) as f64);
        // Threads that lost little count here, too: many of them together lose more than a part of the window.
        let lived = single.iter().map(|task| task.lived_ns).fold(of_rest as u64, u64::saturating_add);
        let lost = |as_waiter: fn(&Task) -> Task| self.lost(&single, known, &summed, rest, as_waiter);
        let low = lost(Task::clone).low;
        let loss = Loss { lived: Duration::from_nanos(lived), low, ..lost(as_waiter) };
        let victims = if rest > 0 { [single, summed].concat() } else { single };
        (loss, victims)
    }

    /// ... of the time `known` by tasks with a row of their own, and of the `rest` by rows that stand for many.
    fn lost(
        &self,
        single: &[&Task],
        known: u64,
        summed: &[&Task],
        rest: u64,
        as_waiter: fn(&Task) -> Task,
    ) -> Loss {
        let [single, summed] =
            [single, summed].map(|rows| rows.iter().map(|task| as_waiter(task)).collect::<Vec<_>>());
        let of_single =
            spread::lost(&single.iter().collect::<Vec<_>>(), |task| self.waited(task), known as f64);
        of_single.and(spread::lost(&summed.iter().collect::<Vec<_>>(), |task| task.blocked_ns, rest as f64))
    }
}

/// The life of a task that began and ended in the window was most likely as much longer as it waited, whatever it slept for afterwards.
fn as_waiter(task: &Task) -> Task {
    match task.born && task.ended {
        true => Task { sleep_ns: 0, cycles: 0, ..task.clone() },
        false => task.clone(),
    }
}

fn finding(ev: &Evidence<'_>, tasks: &[Task], function: &str, act: Act, needed: &Needed) -> Option<Finding> {
    let (loss, victims) = needed.loss(tasks);
    if needed.count < FEW || !loss.is_felt(ev.window()) {
        return None;
    }
    let total = Duration::from_nanos(needed.total_ns);
    let average = Duration::from_nanos(needed.total_ns / needed.count);
    let (who, when) = (needed.who(), act.when());
    let inside = if function.is_empty() { String::new() } else { format!(" in {function}") };
    let title = format!(
        "{who} waited {} for {} RCU grace periods{inside}{when}, {} on average",
        seconds(total),
        needed.count,
        seconds(average)
    );
    let detail = Detail::GracePeriod { caller: (!function.is_empty()).then(|| function.to_owned()) };
    let hop = Hop::new(Reason::Rcu, who, detail, TaskState::Uninterruptible, total)
        .times(needed.count, Duration::from_nanos(needed.worst_ns));
    let culprit = format!("the kernel, which needs RCU grace periods{inside}{when}");
    let found = Finding::cause(RULE.id, victim(ev, &victims), loss.likely)
        .titled(title)
        .share_of(loss.lived)
        .between(loss.low, loss.high)
        .raw_wait(total)
        .by(Culprit::new(SubjectKind::Kernel, function, culprit))
        .hop(hop)
        .check(
            "the grace periods that threads wait for, by function",
            command!("whyslow work --for {}", "10s"),
        )
        .check(
            "the jobs that wait for them, and how long before their program begins",
            command!("whyslow jobs --for {}", "10s"),
        );
    let found = ways_out(found, act);
    if needed.helped_ns < needed.total_ns / 2 {
        return Some(found);
    }
    Some(expedite(found).advice("more CPUs will not help: a grace period waits for all of them"))
}

fn ways_out(found: Finding, act: Act) -> Finding {
    match act {
        Act::Attach => found
            .advice(
                "start processes in their cgroup, with clone3 and CLONE_INTO_CGROUP (cgroup v2, Linux 5.7 or newer): no thread is moved then",
            )
            .advice("keep cgroups and the processes in them, and use them for several jobs")
            .advice(
                "mount an empty cgroup hierarchy with favordynmods (Linux 6.0 or newer; mount -t cgroup -o none,name=favor,favordynmods none DIRECTORY): moves \
                 into cgroups of all hierarchies wait for no grace period then, and forks and exits become a little slower; undo: umount DIRECTORY, but from \
                 Linux 6.18 on the kernel keeps its other lock until the host boots again",
            ),
        Act::Unmount => {
            found.advice("unmount trees at once (umount -R, or the end of a mount namespace): one grace period is enough for all of it")
        }
        Act::Other => found.advice("do it for many objects in one call, or less often"),
    }
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let spans = ev.spans()?;
    ev.has_stacks()?;
    // Waits for a lock whose holder waits for one are waits for it, too.
    let ends_there = |hop: &Hop| hop.reason == Reason::Rcu;
    if ev.host_chains().iter().any(|reported| reported.chain.hops.iter().any(ends_there)) {
        return Ok(None);
    }
    let share = |ns: u64| Share::of(ns as f64 / 1e9, ev.window().as_secs_f64());
    // Where rows are many, short lives have none, and are known by their sums alone.
    let blocked = ev.tasks()?.iter().map(|task| task.blocked_ns).fold(0, u64::saturating_add);
    let waits = spans.iter().filter(|span| span.state == State::Blocked);
    let seen = waits.map(|span| span.sampled_wait_ns).fold(0, u64::saturating_add);
    let all = grace_periods(ev.recording(), ev.stacks());
    let all = all.iter().map(|one| one.total).fold(Duration::ZERO, Duration::saturating_add);
    let all_ns = u64::try_from(all.as_nanos()).unwrap_or(u64::MAX);
    let evidence = format!("threads waited for RCU grace periods for {}, all together", seconds(all));
    let is_little = share(all_ns) < WORTH_IT && share(blocked.saturating_sub(seen)) < WORTH_IT;
    Ok(is_little.then(|| RuledOut { what: "RCU grace periods".into(), evidence }))
}
