//! Tasks that ended in the window: those that lived longest one by one, the others by parent and name.
//!
//! A build makes thousands of tasks a second, and a window may last a day: the kept rows are limited, and no time is lost.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ffi::c_char;

use super::sched::{NONE, RUNNING, STATES, sched_exit, sched_slot};

/// Ended tasks with a row of their own: 700 bytes each here, as much again as a row.
pub const MOST: usize = 20_000;
/// Rows that stand for more than one task. When there are more, the smallest are reported with fewer details.
const MOST_FAMILIES: usize = 4_096;
/// Name of tasks whose names are not reported.
const OTHERS: &[u8] = b"[others]";

/// include/linux/sched.h, PF_FORKNOEXEC: begin_new_exec clears it (fs/exec.c).
pub const NEVER_EXECUTED: u32 = 0x40;

type Comm = [c_char; 16];

/// The common properties of tasks that are reported as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Family {
    /// The process of a thread, else the parent; 0: several.
    of: u32,
    thread: bool,
    parent: Comm,
    comm: Comm,
    cgroup: u64,
}

impl Family {
    fn of(exit: &sched_exit) -> Self {
        let thread = exit.pid != exit.tgid;
        Family {
            of: if thread { exit.tgid } else { exit.ppid },
            thread,
            parent: exit.parent,
            comm: exit.comm,
            cgroup: exit.cpu_cgroup,
        }
    }

    /// With fewer details: first any one parent of that name, then any parent, then any name, then any cgroup.
    fn compacted(self, step: u32) -> Self {
        let mut family = Family { of: 0, ..self };
        if step >= 2 {
            family.parent = Comm::default();
        }
        if step >= 3 {
            family.comm = others();
        }
        if step >= 4 {
            (family.cgroup, family.thread) = (0, false);
        }
        family
    }
}

fn others() -> Comm {
    let mut comm = Comm::default();
    comm.iter_mut().zip(OTHERS).for_each(|(to, from)| *to = *from as c_char);
    comm
}

/// A task, by how long it lived.
struct LongLived {
    ns: u64,
    exit: Box<sched_exit>,
}

impl LongLived {
    fn rank(&self) -> (u64, u64, u32) {
        (self.ns, self.exit.start_ns, self.exit.pid)
    }
}

impl PartialEq for LongLived {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for LongLived {}

impl PartialOrd for LongLived {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LongLived {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// All that ended.
#[derive(Default)]
pub struct Exits {
    /// Tasks that existed before the window: no more than there were then. The CPU time that they had used by then is not part of it.
    older: Vec<sched_exit>,
    kept: BinaryHeap<Reverse<LongLived>>,
    folded: HashMap<Family, (sched_exit, u64)>,
    /// How often families were put together.
    compactions: u64,
    /// Tasks whose end was reported since [`Exits::mark`], also those without a row of their own.
    late: Option<Vec<Late>>,
}

/// A task that ended when the tasks were about to be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late {
    /// Its number, and when it began.
    pub key: (u32, u64),
    /// Its address; 0: it had no slot.
    pub task: u64,
    /// CPU time that it had used.
    pub exec_ns: u64,
}

impl Exits {
    /// The tasks are about to be listed: tasks that end from here on are noted in `late`.
    pub fn mark(&mut self) {
        self.late = Some(Vec::new());
    }

    /// Tasks that ended since then.
    pub fn late(&self) -> &[Late] {
        self.late.as_deref().unwrap_or_default()
    }

    /// Whether some are reported together.
    pub fn has_folded(&self) -> bool {
        !self.folded.is_empty()
    }

    /// One more.
    pub fn note(&mut self, exit: sched_exit) {
        if let Some(late) = &mut self.late {
            let key = (exit.pid, exit.start_ns);
            late.push(Late { key, task: exit.slot.task, exec_ns: exit.exec_ns });
        }
        if exit.slot.creator == 0 {
            self.older.push(exit);
            return;
        }
        self.kept.push(Reverse(LongLived { ns: lived(&exit.slot), exit: Box::new(exit) }));
        if self.kept.len() > MOST
            && let Some(Reverse(least)) = self.kept.pop()
        {
            self.fold(*least.exit);
        }
    }

    /// Tasks that are reported one by one, in the order of their births.
    pub fn single(&self) -> Vec<&sched_exit> {
        let kept = self.kept.iter().map(|Reverse(kept)| &*kept.exit);
        let mut all: Vec<_> = self.older.iter().chain(kept).collect();
        all.sort_by_key(|exit| (exit.start_ns, exit.pid));
        all
    }

    /// The sums of tasks that are reported together, and how many tasks each stands for.
    pub fn together(&self) -> Vec<(&sched_exit, u64)> {
        let mut all: Vec<_> = self.folded.iter().collect();
        all.sort_by_key(|(family, _)| **family);
        all.into_iter().map(|(_, (sum, count))| (sum, *count)).collect()
    }

    fn fold(&mut self, exit: sched_exit) {
        self.add(Family::of(&exit), &exit, 1);
        if self.folded.len() <= MOST_FAMILIES {
            return;
        }
        self.compactions += 1;
        // Down to half: if it were done for one place, the next family would have all of them sorted again.
        for step in 1..=4 {
            if self.folded.len() <= MOST_FAMILIES / 2 {
                break;
            }
            self.compact(step);
        }
    }

    fn add(&mut self, family: Family, exit: &sched_exit, count: u64) {
        match self.folded.get_mut(&family) {
            Some((sum, known)) => {
                add(sum, exit);
                *known += count;
            }
            None => drop(self.folded.insert(family, (*exit, count))),
        }
    }

    /// The families with the most time stay as they are.
    fn compact(&mut self, step: u32) {
        let mut all: Vec<_> = std::mem::take(&mut self.folded).into_iter().collect();
        all.sort_by_key(|(family, (sum, _))| (Reverse(lived(&sum.slot)), *family));
        for (at, (family, (mut sum, count))) in all.into_iter().enumerate() {
            let family = if at < MOST_FAMILIES / 4 { family } else { family.compacted(step) };
            (sum.parent, sum.comm, sum.cpu_cgroup) = (family.parent, family.comm, family.cgroup);
            if family.of == 0 {
                sum.ppid = 0;
            }
            self.add(family, &sum, count);
        }
    }
}

/// Time in which the task existed, by state.
fn lived(slot: &sched_slot) -> u64 {
    slot.sum.iter().skip(RUNNING).map(|sum| sum.ns).fold(slot.unknown_ns, u64::saturating_add)
}

/// Add `more` to `sum`; fields in which they differ become empty.
fn add(sum: &mut sched_exit, more: &sched_exit) {
    keep_if_same(&mut sum.ppid, more.ppid);
    keep_if_same(&mut sum.tgid, more.tgid);
    keep_if_same(&mut sum.slot.creator, more.slot.creator);
    keep_if_same(&mut sum.memory_cgroup, more.memory_cgroup);
    keep_if_same(&mut sum.io_cgroup, more.io_cgroup);
    keep_if_same(&mut sum.unified_cgroup, more.unified_cgroup);
    keep_if_same(&mut sum.autogroup, more.autogroup);
    keep_if_same(&mut sum.session, more.session);
    keep_if_same(&mut sum.tracer, more.tracer);
    let (to, from) = (&mut sum.slot, &more.slot);
    for (to, from) in to.sum.iter_mut().zip(&from.sum) {
        to.ns = to.ns.saturating_add(from.ns);
        to.count = to.count.saturating_add(from.count);
        to.worst_ns = to.worst_ns.max(from.worst_ns);
    }
    let sums = [
        (&mut to.unknown_ns, from.unknown_ns),
        (&mut to.cycles, from.cycles),
        (&mut to.awake, from.awake),
        (&mut to.rest, from.rest),
        (&mut to.awake_awake, from.awake_awake),
        (&mut to.awake_rest, from.awake_rest),
        (&mut to.rest_rest, from.rest_rest),
        (&mut sum.exec_ns, more.exec_ns),
        (&mut sum.run_delay_ns, more.run_delay_ns),
        (&mut sum.switches_in, more.switches_in),
        (&mut sum.voluntary, more.voluntary),
        (&mut sum.involuntary, more.involuntary),
        (&mut sum.written, more.written),
    ];
    for (to, from) in sums {
        *to = to.saturating_add(from);
    }
    sum.flags &= more.flags | !NEVER_EXECUTED;
    add_marks(&mut sum.executed, &more.executed);
    add_marks(&mut sum.ending, &more.ending);
}

/// The place of NONE holds when that was: of several tasks, whether it was known of all.
fn add_marks(sum: &mut [u64; STATES], more: &[u64; STATES]) {
    let known = sum[NONE].min(more[NONE]);
    sum.iter_mut().zip(more).for_each(|(to, from)| *to = to.saturating_add(*from));
    sum[NONE] = known;
}

fn keep_if_same<T: PartialEq + Default>(known: &mut T, other: T) {
    if *known != other {
        *known = T::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(pid: u32, ppid: u32, name: u8, ns: u64) -> sched_exit {
        let mut exit =
            sched_exit { pid, tgid: pid, ppid, exec_ns: ns, start_ns: u64::from(pid), ..Default::default() };
        exit.slot.creator = ppid;
        exit.comm[0] = name as c_char;
        exit.parent[0] = b'p' as c_char;
        exit.slot.sum[RUNNING].ns = ns;
        exit.slot.sum[RUNNING].count = 1;
        exit
    }

    /// Number of tasks and time, of all.
    fn all(exits: &Exits) -> (u64, u64) {
        let single = exits.single().into_iter().map(|exit| (exit, 1));
        single
            .chain(exits.together())
            .fold((0, 0), |sum, (exit, count)| (sum.0 + count, sum.1 + exit.exec_ns))
    }

    #[test]
    fn two_hours_of_a_hundred_births_a_second_have_a_bound_and_lose_no_time() {
        const BIRTHS: u32 = 720_000;
        let mut exits = Exits::default();
        let (mut reported, mut longest) = (0, 0);
        for n in 0..BIRTHS {
            // Three commands of one parent; and now and then one with a parent of its own.
            let (ppid, name) = if n % 10 == 0 { (n, b'x') } else { (7, b'a' + (n % 3) as u8) };
            let ns = if n % 90_000 == 89_999 { 50_000_000_000 } else { 1_000 + u64::from(n % 977) };
            longest += u64::from(ns == 50_000_000_000);
            exits.note(exit(n + 1, ppid + 1, name, ns));
            reported += ns;
        }
        assert_eq!(all(&exits), (u64::from(BIRTHS), reported));
        assert!(exits.kept.len() <= MOST && exits.folded.len() <= MOST_FAMILIES);
        let single = exits.single();
        assert_eq!(single.iter().filter(|e| e.exec_ns == 50_000_000_000).count() as u64, longest);
        let of_seven: u64 =
            exits.together().iter().filter(|(sum, _)| sum.ppid == 8).map(|(_, count)| count).sum();
        assert!(
            of_seven >= u64::from(BIRTHS) / 10 * 9 - MOST as u64,
            "a task with a living parent is reported by that parent: {of_seven}"
        );
        let size = size_of::<LongLived>() + size_of::<sched_exit>();
        let bytes = exits.kept.len() * size + exits.folded.capacity() * (size + 64);
        assert!(bytes < 40 << 20, "{} MiB", bytes >> 20);
    }

    #[test]
    fn folded_rows_are_bounded_when_every_name_differs() {
        let mut exits = Exits::default();
        let mut reported = 0;
        for n in 0..60_000u32 {
            let mut one = exit(n + 1, n + 1, b'x', 10);
            one.comm[1..5].iter_mut().zip(n.to_ne_bytes()).for_each(|(to, from)| *to = from as c_char);
            one.parent[1..5].iter_mut().zip(n.to_ne_bytes()).for_each(|(to, from)| *to = from as c_char);
            one.cpu_cgroup = u64::from(n);
            reported += one.exec_ns;
            exits.note(one);
            assert!(exits.folded.len() <= MOST_FAMILIES);
        }
        assert_eq!(all(&exits), (60_000, reported));
    }

    /// One name in as many cgroups as leave no place free, and parents that are all different.
    #[test]
    fn where_families_just_fill_their_room_not_each_exit_makes_it_anew() {
        let mut exits = Exits::default();
        for n in 0..60_000u32 {
            let mut one = exit(n + 1, 1, b'x', 10);
            one.parent[1..5].iter_mut().zip(n.to_ne_bytes()).for_each(|(to, from)| *to = from as c_char);
            one.cpu_cgroup = u64::from(n) % (MOST_FAMILIES as u64 - 5);
            exits.note(one);
        }
        assert_eq!(all(&exits), (60_000, 600_000));
        assert!(exits.compactions <= 2 * 60_000 / MOST_FAMILIES as u64, "{} times", exits.compactions);
    }

    #[test]
    fn task_older_than_the_window_is_never_folded() {
        let mut exits = Exits::default();
        for n in 0..30_000 {
            let mut one = exit(n + 1, 1, b'a', 5);
            one.slot.creator = 0;
            exits.note(one);
        }
        assert_eq!((exits.single().len(), exits.together().len()), (30_000, 0));
    }
}
