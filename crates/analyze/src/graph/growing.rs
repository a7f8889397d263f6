//! How chains grow in the window: a holder that has its lock the longer the more there is of something, and the vicious circle: those that
//! would make it fewer wait in the same chain.

use whyslow_model::Hop;
use whyslow_model::churn::{ChurnKind, Thing};

use super::chains::HopFold;
use super::facts::Graph;
use super::names::Called;
use super::node::Key;
use super::turns::LockId;
use crate::growth::{Call, Growth, Risen};
use crate::hashing::Table;

/// Functions that make them fewer, as a work item or in a stack: kernel/cgroup/cgroup.c, fs/namespace.c, ipc/namespace.c,
/// net/core/net_namespace.c, kernel/nsproxy.c. A namespace ends when the last task leaves it.
const REMOVE: &[(Thing, &[&str])] = &[
    (Thing::Cgroups, &["cgroup_rmdir", "css_killed_work_fn", "css_release_work_fn", "css_free_rwork_fn"]),
    (Thing::Mounts, &["path_umount", "cleanup_mnt", "put_mnt_ns", "free_mnt_ns"]),
    (Thing::IpcNamespaces, &["free_ipc", "free_nsproxy"]),
    (Thing::NetNamespaces, &["cleanup_net", "free_nsproxy"]),
    (Thing::MountNamespaces, &["put_mnt_ns", "free_nsproxy"]),
    (Thing::UtsNamespaces, &["free_nsproxy"]),
    (Thing::CgroupNamespaces, &["free_nsproxy"]),
    (Thing::TimeNamespaces, &["free_nsproxy"]),
    (Thing::PidNamespaces, &["zap_pid_ns_processes", "free_nsproxy"]),
    (Thing::UserNamespaces, &["free_user_ns"]),
];

/// Counts that rose, and what processes removed.
#[derive(Debug)]
pub(super) struct Growing {
    risen: Risen,
    /// Processes that removed some, or whose young children did: rows of the table `churn`.
    removers: Table<u32, Vec<Thing>>,
}

impl Growing {
    fn of(graph: &Graph<'_>) -> Self {
        let tables = &graph.rec.tables;
        let mut removers: Table<u32, Vec<Thing>> = Table::default();
        for row in tables.churn.iter().flatten().filter(|row| row.count > 0) {
            let kind = ChurnKind::ALL.iter().find(|kind| kind.removes() && kind.word() == row.what);
            if let Some(thing) = kind.and_then(|kind| kind.thing()) {
                removers.entry(row.tgid).or_default().push(thing);
            }
        }
        let rows = tables.populations.as_deref().unwrap_or_default();
        Growing { risen: Risen::of(rows, graph.window), removers }
    }
}

impl Graph<'_> {
    /// Notes on the hops of a chain what they grow with.
    pub fn note_growth(&self, hops: &mut [Hop], folds: &[HopFold], keys: &[Key]) {
        let growing = self.growing.get_or_init(|| Growing::of(self));
        if growing.risen.is_empty() {
            return;
        }
        // Of several hops behind one lock the last one had it: the others stood before it in the queue.
        let mut told: Vec<LockId> = Vec::new();
        for at in (1..hops.len().min(folds.len())).rev() {
            let above = folds.get(..at).unwrap_or_default();
            let (Some(hop), Some(key)) = (hops.get_mut(at), keys.get(at)) else { continue };
            let lock = above.last().and_then(|waiters| self.lock_of(waiters.row?));
            let Some(lock) = lock.filter(|lock| !told.contains(lock)) else { continue };
            if let Some(growth) = self.growth(growing, &lock, key) {
                hop.per_call = Some(growth.per_call);
                hop.grows_with = Some(growth.to_string());
                hop.circle = above.iter().any(|waiters| self.removes(growing, growth.thing, waiters));
            }
            told.push(lock);
        }
    }

    /// Of the turns at this lock of whoever is called so.
    fn growth(&self, growing: &Growing, lock: &LockId, key: &Key) -> Option<Growth> {
        // Not each row of a worker knows its work.
        let is_its = |who: Called| {
            who.comm == key.who.comm
                && (who.work == key.who.work || who.work.is_none() || key.who.work.is_none())
        };
        let turns = self.turns(lock).iter().filter(|turn| is_its(turn.who));
        growing.risen.grown(&turns.map(|turn| turn.call).collect::<Vec<Call>>())
    }

    /// Some of these make the count smaller, when they do not wait.
    fn removes(&self, growing: &Growing, thing: Thing, waiters: &HopFold) -> bool {
        let functions =
            REMOVE.iter().find(|(of, _)| *of == thing).map_or(&[][..], |(_, functions)| functions);
        let row = waiters.row.and_then(|row| self.spans.get(row));
        let frames = row.map_or(&[][..], |span| self.stacks.kernel(span.stack));
        let works = waiters.tasks.iter().filter_map(|(_, called)| called.work);
        functions.iter().any(|function| frames.iter().any(|frame| frame.contains(function)))
            || works.map(|work| self.names.text(work)).any(|work| functions.contains(&&*work))
            || waiters.tasks.iter().any(|(pid, _)| {
                // Of its children, one may remove them and another wait.
                let process = self.tasks.get(pid).map_or(*pid, |task| task.tgid);
                growing.removers.get(&process).is_some_and(|things| things.contains(&thing))
            })
    }
}
