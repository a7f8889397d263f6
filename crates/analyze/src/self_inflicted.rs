//! Waits that a task caused itself: the work of its own children, its own data on their way to a disk. They are spending,
//! no loss: on a host without other tasks they would have been as long.
//!
//! Kernel threads serve a wait for a journal or for writeback: they write what all tasks have dirtied. No row names the owner of that
//! data: the owner is taken from the tasks that wrote to file systems meanwhile (waits for disks and journals, CPU time in file
//! systems' writing functions, requests by cgroup), and only from these.

mod written;

use std::cell::OnceCell;
use std::collections::BTreeMap;

use whyslow_model::chain::Chain;
use whyslow_model::syscall::PID_MAX_LIMIT;
use whyslow_model::table::{Tables, Task};
use whyslow_model::timeline::Span;
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Culprit, Hop, SubjectKind};

use self::written::{Bytes, Wrote};
use crate::graph::HostChain;
use crate::hashing::{Seed, Set, Table};
use crate::stacks::symbol;
use crate::{Evidence, MAX_DEPTH};

/// If others wrote less than this part of all, they change no wait by a tenth: such waits are the task's own.
const OTHERS: f64 = 0.1;
/// The names of kernel threads that write what tasks have dirtied: fs/jbd2/journal.c, kernel/workqueue.c,
/// fs/xfs/xfs_trans_ail.c, fs/btrfs/disk-io.c.
const WRITERS: &[&str] = &["jbd2/", "kworker/", "xfsaild/", "btrfs-"];
/// Work of such workers: writing dirty data, and the work that is left when that is done. fs/fs-writeback.c, fs/ext4/page-io.c,
/// fs/xfs (xfs_aops.c, xfs_log.c, xfs_log_cil.c, xfs_buf.c, xfs_icache.c), fs/btrfs (async-thread.c, space-info.c), fs/direct-io.c,
/// fs/iomap/direct-io.c.
const FLUSHES: &[&str] = &[
    "wb_workfn",
    "ext4_end_io_rsv_work",
    "xfs_end_io",
    "xlog_cil_push_work",
    "xlog_ioend_work",
    "xfs_log_worker",
    "xfs_buf_ioend_work",
    "xfs_inodegc_worker",
    "xfs_reclaim_worker",
    "btrfs_work_helper",
    "btrfs_async_reclaim_metadata_space",
    "btrfs_async_reclaim_data_space",
    "btrfs_preempt_reclaim_metadata_space",
    "dio_aio_complete_work",
    "iomap_dio_complete_work",
];
/// Waits for children and threads.
const CHILDREN: &[Reason] = &[Reason::Child, Reason::Vfork, Reason::Thread];
/// Waits that kernel threads end by writing what tasks have dirtied.
const WRITTEN: &[Reason] = &[Reason::Journal, Reason::Writeback];
/// Waits that are no work of the waiting task, though its own child or writer has them: a lock, a limit, a fault.
const NOT_WORK: &[Reason] = &[
    Reason::Lock,
    Reason::FileLock,
    Reason::Quota,
    Reason::CpuQuota,
    Reason::IoThrottle,
    Reason::MemoryLimit,
    Reason::DirtyThrottling,
    Reason::Reclaim,
    Reason::SwapIn,
    Reason::Cycle,
    Reason::Open,
    Reason::Stopped,
    Reason::Frozen,
    Reason::Traced,
    Reason::WakeupLatency,
];
/// Whether a kernel thread of this name writes what tasks have dirtied.
pub(crate) fn is_writers_name(comm: &str) -> bool {
    WRITERS.iter().any(|begin| comm.starts_with(begin))
}

/// The owner of the work that a chain of waits shows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Whose {
    /// The waiter's own work.
    Own,
    /// In part the work of others.
    Shared(Foreign),
    /// Another process's work, or not known to be the waiter's own.
    Others,
    /// The ids of the tasks that ended the waits belonged to several tasks in the window, or to tasks that are reported together.
    Unclear,
}

/// A process or cgroup that wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Writer {
    pub tgid: u32,
    pub name: String,
}

/// What others wrote while tasks waited.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Foreign {
    /// The one that wrote most of it.
    pub writer: Writer,
    /// The share of all others.
    pub share: f64,
    /// The waiters for which the writers are others, and these waiters' part of the chain's time.
    pub heads: Vec<u32>,
    pub part: f64,
}

/// Relations between tasks, and what each wrote, in one recording.
pub(crate) struct SelfInflicted<'e, 'r> {
    ev: &'e Evidence<'r>,
    /// By id; `None`: several tasks with different owners had the id.
    tasks: Table<u32, Option<&'r Task>>,
    /// Kernel threads that have rows but no task here: from within a pid namespace they are not visible.
    outside: Set<u32>,
    /// Some tasks that ended have no id any more.
    folded: bool,
    /// Pid 1 is the host's init, which adopts all orphans: kernel threads are beside it. In a pid namespace pid 1 is the first
    /// process that was started there, and there are no kernel threads.
    init: bool,
    wrote: OnceCell<Wrote>,
    bytes: OnceCell<Bytes>,
}

impl<'e, 'r> SelfInflicted<'e, 'r> {
    pub fn of(ev: &'e Evidence<'r>) -> Self {
        let all = ev.recording().tables.tasks.as_deref().unwrap_or_default();
        let mut tasks: Table<u32, Option<&Task>> =
            Table::with_capacity_and_hasher(all.len(), Seed::default());
        let whose = |task: &Task| (task.tgid, task.ppid, task.kthread);
        for task in all {
            let known = tasks.entry(task.pid).or_insert(Some(task));
            *known = known.filter(|other| whose(other) == whose(task));
        }
        let outside = ev.recording().tables.spans.iter().flatten();
        let outside = outside.filter(|span| {
            // Ids above the kernel's limit stand for tasks outside our pid namespace.
            span.pid > PID_MAX_LIMIT && WRITERS.iter().any(|begin| span.comm.starts_with(begin))
        });
        SelfInflicted {
            ev,
            outside: outside.map(|span| span.pid).filter(|pid| !tasks.contains_key(pid)).collect(),
            tasks,
            folded: all.iter().any(|task| task.folded > 0),
            init: all.iter().any(|task| task.kthread),
            wrote: OnceCell::new(),
            bytes: OnceCell::new(),
        }
    }

    /// A parent that shows which tasks belong together.
    fn is_parent(&self, ppid: u32) -> bool {
        ppid > u32::from(self.init)
    }

    /// The only task with this id.
    fn task(&self, pid: u32) -> Option<&'r Task> {
        self.tasks.get(&pid).copied().flatten()
    }

    fn tables(&self) -> &'r Tables {
        &self.ev.recording().tables
    }

    /// The owner of the work in this chain's waits.
    pub fn whose(&self, reported: &HostChain<'_>) -> Whose {
        let chain = &reported.chain;
        let Some(head) = chain.hops.first() else { return Whose::Others };
        let heads: Vec<u32> = chain.tasks.first().into_iter().flatten().map(|(pid, _)| *pid).collect();
        // They write for others, whatever they wait for: a task that waits for them has a chain of its own.
        if !heads.is_empty() && heads.iter().all(|pid| self.is_writer(*pid)) && self.writes(reported.head) {
            return Whose::Own;
        }
        if chain.hops.iter().any(|hop| NOT_WORK.contains(&hop.reason)) || reported.head.lock.is_some() {
            return Whose::Others;
        }
        let below = || chain.tasks.iter().skip(1).flatten().map(|(pid, _)| *pid);
        let is_own = |pid: u32| any(heads.iter().map(|head| self.is_below(pid, *head)));
        // A wait whose end the tracer missed has no stack: if a child ended its parent's wait, the wait was for the child.
        let of_others = |pid: u32| heads.iter().all(|head| self.sure_tgid(pid) != self.sure_tgid(*head));
        let untold = head.reason == Reason::Unknown
            && reported.head.stack.is_none()
            && reported.head.syscall.is_none();
        let missed = untold && below().next().is_some() && below().all(of_others);
        if (missed || CHILDREN.contains(&head.reason)) && !heads.is_empty() {
            match all(below().map(is_own)) {
                Some(true) => return Whose::Own,
                Some(false) => {}
                None => return Whose::Unclear,
            }
        }
        let written = WRITTEN.contains(&head.reason);
        if !written || heads.is_empty() || chain.leaf.id == crate::graph::UNKNOWN {
            return Whose::Others;
        }
        let served = |pid: u32| if self.is_kernels(pid) { Some(true) } else { is_own(pid) };
        match all(below().map(served)) {
            Some(true) => {}
            Some(false) => return Whose::Others,
            None => return Whose::Unclear,
        }
        // Kernel threads write for others: a task that waits for them has a chain of its own.
        if heads.iter().all(|pid| self.is_kernels(*pid)) {
            return Whose::Own;
        }
        self.foreign(&heads, chain, self.is_for_data(reported)).map_or(Whose::Own, Whose::Shared)
    }

    /// Waiters of one name are reported together, whatever their cgroup: for the waiters of one cgroup those of another are others.
    fn foreign(&self, heads: &[u32], chain: &Chain, data: bool) -> Option<Foreign> {
        let waited = |pids: &[u32]| -> f64 {
            let tasks = pids.iter().filter_map(|pid| self.task(*pid));
            tasks.map(|task| task.blocked_ns.saturating_add(task.io_ns) as f64).sum()
        };
        let all = waited(heads);
        let of_one = |own: Vec<u32>| {
            let (writer, share) = self.others(&own, chain, data).filter(|(_, share)| *share >= OTHERS)?;
            let part = if own.len() == heads.len() || all <= 0.0 { 1.0 } else { waited(&own) / all };
            Some(Foreign { writer, share, heads: own, part })
        };
        let foreign = self.set_apart(heads).into_iter().filter_map(of_one);
        foreign.max_by(|a, b| (a.share * a.part).total_cmp(&(b.share * b.part)))
    }

    /// Waiters by cgroup; all together if the cgroup of one is not known.
    fn set_apart(&self, heads: &[u32]) -> Vec<Vec<u32>> {
        let mut apart: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for pid in heads {
            let Some(task) = self.task(*pid) else { return vec![heads.to_vec()] };
            apart.entry(cgroups(task)).or_default().push(*pid);
        }
        let mut apart: Vec<Vec<u32>> = apart.into_values().collect();
        // A process and the one that started it are not others to each other, whatever their cgroups.
        let mut at = 0;
        while at < apart.len() {
            let is_one = |other: &Vec<u32>| {
                let pairs = apart[at].iter().flat_map(|one| other.iter().map(move |two| (*one, *two)));
                any(pairs.map(|(one, two)| self.is_family(one, two))) != Some(false)
            };
            match (at + 1..apart.len()).find(|other| is_one(&apart[*other])) {
                Some(other) => {
                    let more = apart.remove(other);
                    apart[at].extend(more);
                }
                None => at += 1,
            }
        }
        apart
    }

    fn is_kernels(&self, pid: u32) -> bool {
        self.task(pid).is_some_and(|task| task.kthread) || self.outside.contains(&pid)
    }

    /// One of the kernel threads that write what tasks have dirtied.
    fn is_writer(&self, pid: u32) -> bool {
        self.task(pid).is_some_and(|task| task.kthread && is_writers_name(&task.comm))
            || self.outside.contains(&pid)
    }

    /// A kernel worker does any kind of work: its work item or its stack shows which. Without both it counts as a writer, as
    /// most workers that wait are.
    fn writes(&self, head: &Span) -> bool {
        let flushes = |frame: &String| FLUSHES.contains(&symbol(frame));
        let stack = || self.ev.stacks().kernel(head.stack).iter().any(flushes);
        let untold = head.work.is_none() && head.stack.is_none();
        !head.comm.starts_with("kworker/") || untold || head.work.as_ref().is_some_and(flushes) || stack()
    }

    fn tgid(&self, pid: u32) -> u32 {
        self.task(pid).map_or(pid, |task| task.tgid)
    }

    /// ... if the process is known.
    fn sure_tgid(&self, pid: u32) -> Option<u32> {
        match self.tasks.get(&pid) {
            Some(known) => known.map(|task| task.tgid),
            None => (!self.folded).then_some(pid),
        }
    }

    /// Whether `pid` is a thread of the process of `of`, or of a process that it started. `None`: an id on the way belonged to
    /// several tasks, or may belong to a task that is reported together with others.
    fn is_below(&self, pid: u32, of: u32) -> Option<bool> {
        if pid == of {
            return Some(true);
        }
        let (mut at, of) = (self.sure_tgid(pid)?, self.sure_tgid(of)?);
        for _ in 0..MAX_DEPTH {
            if at == of {
                return Some(true);
            }
            match self.tasks.get(&at) {
                Some(Some(task)) if self.is_parent(task.ppid) && task.ppid != at => at = task.ppid,
                Some(Some(_)) => return Some(false),
                Some(None) => return None,
                None => return (!self.folded).then_some(false),
            }
        }
        Some(false)
    }

    /// One process tree: one started the other, or both have one parent and no cgroup or session separates them.
    fn is_family(&self, one: u32, other: u32) -> Option<bool> {
        let above = any([self.is_below(one, other), self.is_below(other, one)].into_iter());
        if above != Some(false) {
            return above;
        }
        Some(match (self.task(one), self.task(other)) {
            (Some(a), Some(b)) => a.ppid == b.ppid && self.is_parent(a.ppid) && !are_set_apart(a, b),
            _ => false,
        })
    }
}

/// A task that exits leaves its session's group before its last switch (kernel/sched/autogroup.c, sched_autogroup_exit_task): the group
/// that it had is not known.
fn are_set_apart(one: &Task, other: &Task) -> bool {
    let has_left = |task: &Task| task.ended && task.autogroup == 0;
    let sessions = one.autogroup != other.autogroup && !has_left(one) && !has_left(other);
    cgroups(one) != cgroups(other) || sessions
}

/// The cgroups of a task.
fn cgroups(task: &Task) -> [u64; 4] {
    [task.cpu_cgroup, task.memory_cgroup, task.io_cgroup, task.unified_cgroup]
}

/// At least one is true; `None`: that is not known.
fn any(all: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut unknown = false;
    for one in all {
        match one {
            Some(true) => return Some(true),
            Some(false) => {}
            None => unknown = true,
        }
    }
    (!unknown).then_some(false)
}

/// No one is false; `None`: that is not known.
fn all(all: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    any(all.map(|one| one.map(|one| !one))).map(|none| !none)
}

/// A chain that ends with the process that wrote what its waiter waited for, by the part of its time for which others wrote.
pub(crate) fn blamed(mut chain: Chain, foreign: &Foreign) -> Chain {
    let Foreign { writer, share, heads, part } = foreign;
    let share = *share;
    chain.time = chain.time.mul_f64((share * part).clamp(0.0, 1.0));
    if let Some(waiters) = chain.tasks.first_mut() {
        waiters.retain(|(pid, _)| heads.contains(pid));
    }
    let words = format!("wrote {} of what was written there meanwhile", whyslow_model::Share::of(share, 1.0));
    chain.hops.push(Hop::new(Reason::Writes, writer.name.clone(), words, TaskState::Running, chain.time));
    chain.tasks.push(vec![(writer.tgid, writer.name.clone().into())]);
    chain.leaf = match writer.tgid {
        0 => Culprit::new(SubjectKind::Cgroup, writer.name.clone(), writer.name.clone()),
        tgid => Culprit::new(SubjectKind::Task, tgid.to_string(), writer.name.clone()),
    };
    chain
}

#[cfg(test)]
#[path = "self_inflicted_tests.rs"]
mod tests;
