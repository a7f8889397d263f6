//! Who or what is at the end of a chain, and how often it does what it does there.

use std::rc::Rc;
use std::time::Duration;

use whyslow_model::table::Cgroup;
use whyslow_model::timeline::State;
use whyslow_model::wait::{Detail, Reason, TaskState};
use whyslow_model::{Culprit, Hop, SubjectKind};

use super::facts::Graph;
use super::node::{Key, Node, Sort};
use crate::MAX_DEPTH;
use crate::cpu::quota;
use crate::names::Names as GroupNames;
use crate::wait_reasons::Class;

/// The id of a culprit that nobody saw.
pub const UNKNOWN: &str = "unknown";

/// One step of a chain: a node, by what it is called in it.
#[derive(Clone, Copy)]
pub(super) struct Step<'n> {
    pub key: Key,
    pub node: &'n Node,
}

impl<'n> Step<'n> {
    /// Of a node. Time on a CPU is called by what most of it was; a program's own code alike, whatever its function.
    pub fn of(graph: &Graph<'_>, node: &'n Node) -> Self {
        let runs = node.key.sort == Sort::Ran && node.key.reason != Reason::Spinning;
        let most = node.parts.first().filter(|_| runs);
        let mut what = most.map_or(node.key.what, |most| most.key.what);
        if node.key.sort == Sort::Ran && matches!(*graph.details.of(what), Detail::UserCode { .. }) {
            what = graph.details.id(Detail::UserCode { function: None });
        }
        Step { key: Key { what, ..node.key }, node }
    }
}

/// Why a task stands still until somebody lets it go on.
pub(crate) const HALTED: &[Reason] = &[Reason::Stopped, Reason::Frozen, Reason::Traced];

impl Graph<'_> {
    /// Who or what a chain ends with.
    pub fn culprit(&self, step: Step<'_>) -> Culprit {
        let node = step.node;
        let (who, what) =
            (self.names.who(node.shown).to_string(), self.details.of(step.key.what).to_string());
        let task = |function: Option<String>| {
            let culprit = Culprit::new(SubjectKind::Task, node.pid.to_string(), &who);
            Culprit { function, ..culprit }
        };
        let function = node.function.map(|name| self.names.text(name).to_string());
        let thing = |kind| Culprit::new(kind, &what, &what);
        match (step.key.sort, node.row.map(|row| self.kind(row).class)) {
            (Sort::Ran, _) | (Sort::Cycle, _) => task(function),
            (Sort::HadCpu, _) if node.pid != 0 => task(function),
            (Sort::HadCpu, _) => Culprit::new(SubjectKind::Cpu, "cpu", "a CPU that others use, too"),
            (Sort::Ready, _) => self.cpu(node),
            (Sort::Quota, _) => self.quota(node.pid),
            (Sort::Event, _) => thing(SubjectKind::Kernel),
            (Sort::WakeupLatency, _) => thing(SubjectKind::Cpu),
            (Sort::Wait | Sort::Short, Some(Class::Device)) => self.device(node, &what),
            // Somebody stopped it: it is this task that must go on.
            (Sort::Wait | Sort::Short, _) if HALTED.contains(&step.key.reason) => task(None),
            (Sort::Wait | Sort::Short, Some(Class::Limit)) => thing(SubjectKind::Limit),
            (Sort::Wait | Sort::Short, Some(Class::Peer)) => thing(SubjectKind::Socket),
            (Sort::Wait | Sort::Short, Some(Class::Timer | Class::Idle)) => task(None),
            // It sleeps for a set time while others wait for it.
            (Sort::Wait, _) if step.key.reason == Reason::Sleep => task(None),
            (Sort::Wait, _) if step.key.reason == Reason::Rcu => thing(SubjectKind::Kernel),
            _ => self.nobody(),
        }
    }

    /// Nobody that was seen.
    pub fn nobody(&self) -> Culprit {
        Culprit::new(SubjectKind::Kernel, UNKNOWN, "not known")
    }

    fn cpu(&self, node: &Node) -> Culprit {
        let cpu = node.row.and_then(|row| self.spans.get(row)).map(|span| span.cpu.to_string());
        let id = cpu.unwrap_or_else(|| UNKNOWN.to_owned());
        Culprit::new(SubjectKind::Cpu, id.clone(), format!("CPU {id}"))
    }

    fn device(&self, node: &Node, what: &str) -> Culprit {
        let dev = node.row.and_then(|row| self.spans.get(row)).and_then(|span| span.device.clone());
        Culprit::new(SubjectKind::Device, dev.unwrap_or_else(|| what.to_owned()), what)
    }

    /// The quota of a task's cgroup, or of one above it. Of several the one that binds first, as findings name it; where that
    /// cannot be known, the nearest that ran out.
    fn quota(&self, pid: u32) -> Culprit {
        let own = self.tasks.get(&pid).map_or(0, |task| task.cpu_cgroup);
        let mut above: Vec<&Cgroup> = Vec::new();
        let mut id = own;
        for _ in 0..MAX_DEPTH {
            let Some(group) = self.groups.get(&id) else { break };
            above.extend(group.cpu.as_ref().filter(|cpu| cpu.quota_ns.is_some()).map(|_| *group));
            id = group.parent;
        }
        let ran_out = |group: &&&Cgroup| group.cpu.as_ref().is_some_and(|cpu| cpu.throttled_periods > 0);
        let group = match &above[..] {
            [] => return Culprit::new(SubjectKind::Quota, "cpu", "a CPU quota"),
            [only] => *only,
            [nearest, ..] => {
                let first = self.binding_quota(own);
                let named = above.iter().find(|group| Some(group.id) == first);
                named.or_else(|| above.iter().find(ran_out)).unwrap_or(nearest)
            }
        };
        let name = format!(
            "CPU quota of {}",
            self.group_names.get_or_init(|| Rc::new(GroupNames::of(self.rec))).cgroup(group).name
        );
        Culprit::new(SubjectKind::Quota, group.path.clone(), name)
    }

    fn binding_quota(&self, group: u64) -> Option<u64> {
        let binding =
            self.binding.get_or_init(|| quota::binding(&crate::Evidence::of(self.rec)).unwrap_or_default());
        binding.get(&group).copied()
    }

    /// The state of the waiter, or of the leaf.
    pub fn state(&self, node: &Node) -> TaskState {
        match node.key.sort {
            Sort::Ran | Sort::HadCpu => TaskState::Running,
            Sort::Ready | Sort::Quota => TaskState::Runnable,
            _ => match node.row.and_then(|row| self.spans.get(row)).map(|span| span.state) {
                Some(state @ (State::Io | State::Blocked | State::Sleep)) => state.into(),
                _ => TaskState::Unknown,
            },
        }
    }

    /// How often a worker at the end of a chain ran its function, and what one time costs.
    pub fn calls_of(&self, hop: &mut Hop) {
        let Some(work) = hop.who.work() else { return };
        let works = self.rec.tables.works.as_deref().unwrap_or_default();
        if let Some(work) = works.iter().find(|row| row.count > 0 && row.function == work) {
            hop.count = Some(work.count);
            hop.per_call = Some(Duration::from_nanos(work.ran_ns / work.count));
            hop.worst = Some(Duration::from_nanos(work.ran_worst_ns));
        }
    }
}
