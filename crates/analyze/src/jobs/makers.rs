//! Process trees that make and remove cgroups, namespaces and mounts, and how long they waited in the calls that do it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whyslow_model::churn::ChurnKind;
use whyslow_model::job::{ChurnAccount, Phase};
use whyslow_model::table::{Churn, Task};
use whyslow_model::timeline::Span;

use super::the_only;
use crate::Evidence;
use crate::process_names;

/// Rows that are listed.
const LISTED: usize = 100;

/// Calls that make or remove one kind of thing (arch/x86/entry/syscalls/syscall_64.tbl).
const CALLS: [(ChurnKind, &[u32]); 5] = [
    (ChurnKind::CgroupMade, &[83, 258]),    // mkdir, mkdirat
    (ChurnKind::CgroupRemoved, &[84, 263]), // rmdir, unlinkat
    (ChurnKind::Mounted, &[165, 429]),      // mount, move_mount
    (ChurnKind::Unmounted, &[166]),         // umount2
    (ChurnKind::NamespaceJoined, &[308]),   // setns
];
/// unshare: all kinds of namespaces.
const UNSHARE: u32 = 272;
/// clone, clone3: namespaces where these functions are in the stack (kernel/nsproxy.c, kernel/user_namespace.c).
const CLONES: [u32; 2] = [56, 435];
const MAKES_NAMESPACES: [&str; 3] = ["copy_namespaces", "create_new_namespaces", "create_user_ns"];
/// Where the VFS is in a file system, or removes a plain file: a wait below these is one for a cgroup only in functions of cgroups.
const BELOW_VFS: [&str; 4] = ["vfs_mkdir", "vfs_rmdir", "vfs_unlink", "do_unlinkat"];
const OF_CGROUPS: [&str; 2] = ["cgroup", "kernfs"];
/// The hook of failing calls is attached for a twentieth of the time, where calls are many.
const LEAST_PART: u32 = 20;
/// Parts of names of functions by which a write moves a task into a cgroup (kernel/cgroup: cgroup_procs_write, __cgroup1_procs_write).
const JOINS: [&str; 3] = ["procs_write", "tasks_write", "threads_write"];

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Act {
    One(ChurnKind),
    /// It makes namespaces, of one kind or several.
    Namespaces,
}

impl Act {
    /// Taking down is teardown; everything else prepares a job.
    pub fn phase(self) -> Phase {
        match self {
            Act::One(ChurnKind::CgroupRemoved | ChurnKind::Unmounted) => Phase::Teardown,
            _ => Phase::SetUp,
        }
    }
}

fn is_namespace(what: &str) -> bool {
    let first = ChurnKind::MountNamespace;
    ChurnKind::ALL.iter().filter(|kind| **kind >= first).any(|kind| kind.word() == what)
}

/// One tree.
#[derive(Default)]
struct Maker<'r> {
    rows: Vec<&'r Churn>,
    waits: BTreeMap<Act, (u64, u64)>,
}

/// All trees, by the process at the top.
#[derive(Default)]
pub(super) struct Makers<'r>(BTreeMap<u32, Maker<'r>>);

impl<'r> Makers<'r> {
    pub fn of(ev: &Evidence<'r>) -> Self {
        let mut makers: BTreeMap<u32, Maker<'r>> = BTreeMap::new();
        let rows = ev.churn().unwrap_or_default().iter().filter(|row| row.count > 0);
        for row in rows.filter(|row| !ev.is_own(row.tgid, row.tgid)) {
            makers.entry(row.tgid).or_default().rows.push(row);
        }
        Makers(makers)
    }

    /// What the call of this wait does, if the tree did such things in the window: a tree that makes no cgroup makes other folders.
    pub fn act(&self, ev: &Evidence<'_>, top: u32, span: &Span) -> Option<Act> {
        let (call, maker) = (span.syscall?, self.0.get(&top)?);
        let did = |kind: ChurnKind| maker.rows.iter().any(|row| row.what == kind.word());
        if call == UNSHARE && maker.rows.iter().any(|row| is_namespace(&row.what)) {
            return Some(Act::Namespaces);
        }
        let stack = ev.stacks().kernel(span.stack);
        let passes = |parts: &[&str]| stack.iter().any(|frame| parts.iter().any(|part| frame.contains(part)));
        if CLONES.contains(&call) && passes(&MAKES_NAMESPACES) {
            return Some(Act::Namespaces);
        }
        let of = |(kind, calls): &&(ChurnKind, &[u32])| calls.contains(&call) && did(*kind);
        if let Some((kind, _)) = CALLS.iter().find(of) {
            let is_folder = matches!(kind, ChurnKind::CgroupMade | ChurnKind::CgroupRemoved);
            let is_elsewhere = is_folder && passes(&BELOW_VFS) && !passes(&OF_CGROUPS);
            return (!is_elsewhere).then_some(Act::One(*kind));
        }
        (did(ChurnKind::CgroupJoined) && passes(&JOINS)).then_some(Act::One(ChurnKind::CgroupJoined))
    }

    /// A thread of the tree waited in such a call.
    pub fn waited(&mut self, top: u32, act: Act, ns: u64) {
        if let Some(maker) = self.0.get_mut(&top) {
            let (sum, worst) = maker.waits.entry(act).or_default();
            (*sum, *worst) = (sum.saturating_add(ns), ns.max(*worst));
        }
    }

    /// What was done most often first; trees whose top processes have the same name together.
    pub fn accounts(self, tasks: &[Task], window: Duration) -> Vec<ChurnAccount> {
        let mut all: BTreeMap<(String, &str), Sum> = BTreeMap::new();
        for (top, maker) in &self.0 {
            for row in &maker.rows {
                let sum = all.entry((starter(tasks, row), row.what.as_str())).or_default();
                sum.tops.insert(*top);
                sum.add(row, maker.waits_of(&row.what), window);
            }
        }
        let account = |((starter, what), sum): ((String, &str), Sum)| ChurnAccount {
            starter,
            starters: sum.tops.len() as u64,
            tgid: the_only(&sum.tops),
            what: what.to_owned(),
            count: sum.count,
            rate: sum.rate,
            waited: (!sum.is_unknown).then_some(Duration::from_nanos(sum.waited_ns)),
            worst: Duration::from_nanos(if sum.is_unknown { 0 } else { sum.worst_ns }),
        };
        let mut accounts: Vec<ChurnAccount> = all.into_iter().map(account).collect();
        accounts.sort_by(|a, b| {
            b.count.cmp(&a.count).then_with(|| (&a.starter, &a.what).cmp(&(&b.starter, &b.what)))
        });
        accounts.truncate(LISTED);
        accounts
    }
}

/// The same done by trees of one name.
#[derive(Default)]
struct Sum {
    tops: BTreeSet<u32>,
    count: u64,
    rate: f64,
    waited_ns: u64,
    worst_ns: u64,
    is_unknown: bool,
}

impl Sum {
    fn add(&mut self, row: &Churn, (waited, worst): (Option<u64>, u64), window: Duration) {
        let counted = window.saturating_sub(Duration::from_nanos(row.away_ns)).max(window / LEAST_PART);
        self.count = self.count.saturating_add(row.count);
        self.rate += row.count as f64 / counted.as_secs_f64().max(1e-9);
        self.waited_ns = self.waited_ns.saturating_add(waited.unwrap_or(0));
        self.worst_ns = worst.max(self.worst_ns);
        self.is_unknown |= waited.is_none();
    }
}

impl Maker<'_> {
    fn waits_of(&self, what: &str) -> (Option<u64>, u64) {
        let act = if is_namespace(what) {
            Some(Act::Namespaces)
        } else {
            ChurnKind::ALL.iter().find(|kind| kind.word() == what).map(|kind| Act::One(*kind))
        };
        let (sum, worst) = act.and_then(|act| self.waits.get(&act)).copied().unwrap_or_default();
        let kinds = self.rows.iter().filter(|row| is_namespace(&row.what)).count();
        if act == Some(Act::Namespaces) && kinds > 1 { (None, 0) } else { (Some(sum), worst) }
    }
}

fn starter(tasks: &[Task], row: &Churn) -> String {
    let is_it = |task: &&Task| task.pid == row.tgid && (row.begun_ns == 0 || task.begun_ns == row.begun_ns);
    tasks.iter().find(is_it).map_or_else(|| row.comm.clone(), process_names::of_row)
}
