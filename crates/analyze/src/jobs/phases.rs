//! Set-up, program and teardown of jobs, and what they waited for in each.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::job::{Phase, PhaseAccount};
use whyslow_model::table::Task;
use whyslow_model::timeline::{Span, State, StateTimes};
use whyslow_model::wait::Reason;
use whyslow_model::work::InnerWait;

use super::makers::{Act, Makers};
use super::{Jobs, Key};
use crate::Evidence;
use crate::hashing::Table;
use crate::wait_reasons;
use crate::works::what;

/// What jobs waited for in one phase: the costliest few are nearly all of it.
const INSIDE: usize = 8;

/// Time in one phase.
#[derive(Debug, Clone, Default)]
struct Sum {
    cpu_ns: u64,
    ready_ns: u64,
    waited_ns: u64,
    waits: BTreeMap<String, (u64, u64, u64)>,
}

impl Sum {
    fn add(&mut self, times: &StateTimes) {
        self.cpu_ns = self.cpu_ns.saturating_add(times.running_ns);
        self.ready_ns = self.ready_ns.saturating_add(times.runnable_ns);
        let waited = times.io_ns.saturating_add(times.blocked_ns).saturating_add(times.sleep_ns);
        self.waited_ns = self.waited_ns.saturating_add(waited);
    }

    fn wait(&mut self, what: String, ns: u64, worst: u64) {
        let (count, sum, longest) = self.waits.entry(what).or_default();
        (*count, *sum) = (count.saturating_add(1), sum.saturating_add(ns));
        *longest = worst.max(*longest);
    }
}

/// The phases of all jobs of one starter.
#[derive(Debug, Clone, Default)]
pub(super) struct Phases {
    setup: Sum,
    program: Sum,
    teardown: Sum,
    known: u64,
}

impl Phases {
    /// A process that ended. Of its other threads the CPU time counts: they wait for each other.
    pub fn add(&mut self, task: &Task) {
        if task.tgid != 0 && task.pid != task.tgid {
            self.program.cpu_ns = self.program.cpu_ns.saturating_add(task.traced_ns);
            return;
        }
        let Some(phases) = task.phases.as_deref() else { return };
        self.known = self.known.saturating_add(task.folded).saturating_add(1);
        self.setup.add(&phases.setup);
        self.teardown.add(&phases.teardown);
        let rest = |all: u64, of: fn(&StateTimes) -> u64| {
            all.saturating_sub(of(&phases.setup)).saturating_sub(of(&phases.teardown))
        };
        self.program.add(&StateTimes {
            running_ns: rest(task.traced_ns, |times| times.running_ns),
            runnable_ns: rest(task.runnable_ns, |times| times.runnable_ns),
            io_ns: rest(task.io_ns, |times| times.io_ns),
            blocked_ns: rest(task.blocked_ns, |times| times.blocked_ns),
            sleep_ns: rest(task.sleep_ns, |times| times.sleep_ns),
            unknown_ns: 0,
        });
    }

    pub fn known(&self) -> u64 {
        self.known
    }

    fn of(&mut self, phase: Phase) -> &mut Sum {
        match phase {
            Phase::SetUp => &mut self.setup,
            Phase::Program => &mut self.program,
            Phase::Teardown => &mut self.teardown,
        }
    }

    /// A wait whose time is in the sums of `own`, and belongs to `phase`.
    fn wait(&mut self, ev: &Evidence<'_>, span: &Span, own: Phase, phase: Phase, length: u64) {
        let is_for_a_child = own != Phase::Teardown && waits_for_a_child(ev, span);
        if is_for_a_child || own != phase {
            let from = self.of(own);
            from.waited_ns = from.waited_ns.saturating_sub(length);
        }
        if is_for_a_child {
            return;
        }
        if own != phase {
            let to = self.of(phase);
            to.waited_ns = to.waited_ns.saturating_add(length);
        }
        if span.sampled_wait_ns > 0 {
            self.of(phase).wait(what(span, ev.stacks()), span.sampled_wait_ns, length);
        }
    }

    /// Those with any time.
    pub fn accounts(self) -> Vec<PhaseAccount> {
        let ns = Duration::from_nanos;
        let all =
            [(Phase::SetUp, self.setup), (Phase::Program, self.program), (Phase::Teardown, self.teardown)];
        let account = |(phase, sum): (Phase, Sum)| PhaseAccount {
            phase,
            cpu: ns(sum.cpu_ns),
            ready: ns(sum.ready_ns),
            waited: ns(sum.waited_ns),
            waits: costliest(sum.waits),
        };
        let has_time = |one: &PhaseAccount| one.cpu + one.ready + one.waited > Duration::ZERO;
        all.into_iter().map(account).filter(has_time).collect()
    }
}

fn costliest(waits: BTreeMap<String, (u64, u64, u64)>) -> Vec<InnerWait> {
    let ns = Duration::from_nanos;
    let mut all: Vec<InnerWait> = waits
        .into_iter()
        .map(|(what, (count, sum, worst))| InnerWait { what, count, total: ns(sum), worst: ns(worst) })
        .collect();
    all.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.what.cmp(&b.what)));
    all.truncate(INSIDE);
    all
}

/// A process of a job, and when it lived.
pub(super) struct Owner<'r> {
    key: Key<'r>,
    /// The process at the top of its tree.
    top: u32,
    from_ns: u64,
    executed_ns: u64,
    ending_ns: u64,
    to_ns: u64,
}

impl<'r> Owner<'r> {
    /// Nothing for threads, and where the phases are not known.
    pub fn of(task: &Task, key: Key<'r>, top: u32) -> Option<Self> {
        let phases = task.phases.as_deref().filter(|_| task.folded == 0)?;
        let to_ns = phases.ending_at_ns.saturating_add(phases.teardown.total_ns());
        Some(Owner {
            key,
            top,
            from_ns: to_ns.saturating_sub(task.lived_ns),
            executed_ns: phases.executed_at_ns.unwrap_or(0),
            ending_ns: phases.ending_at_ns,
            to_ns,
        })
    }

    fn phase(&self, span: &Span) -> Phase {
        match span.at_ns {
            at if at < self.executed_ns => Phase::SetUp,
            at if at >= self.ending_ns => Phase::Teardown,
            _ => Phase::Program,
        }
    }
}

/// The waits of jobs by phase, and those of their trees in calls that make or remove something. The clocks of rows and of moments differ by
/// microseconds.
pub(super) fn add_waits<'r>(
    ev: &Evidence<'_>,
    (owners, tops): (&Table<u32, Vec<Owner<'r>>>, &Table<u32, Option<u32>>),
    all: &mut BTreeMap<Key<'r>, Jobs<'r>>,
    makers: &mut Makers<'_>,
) {
    const SLACK: u64 = 1_000_000;
    let is_wait = |span: &&Span| matches!(span.state, State::Io | State::Blocked | State::Sleep);
    for span in ev.spans().unwrap_or_default().iter().filter(is_wait) {
        let is_within = |owner: &&Owner<'_>| {
            span.at_ns.saturating_add(SLACK) >= owner.from_ns
                && span.at_ns < owner.to_ns.saturating_add(SLACK)
        };
        let owner = owners.get(&span.pid).and_then(|all| all.iter().rev().find(is_within));
        let of_tree = || tops.get(&span.pid).copied().flatten().unwrap_or(span.tgid);
        let top = owner.map_or_else(of_tree, |owner| owner.top);
        let length = span.woken_ns.saturating_sub(span.at_ns);
        let act = makers.act(ev, top, span);
        if let Some(act) = act {
            makers.waited(top, act, length);
        }
        let Some(owner) = owner else { continue };
        let Some(jobs) = all.get_mut(&owner.key) else { continue };
        let own = owner.phase(span);
        let phase = act.map(Act::phase).filter(|_| own != Phase::Teardown).unwrap_or(own);
        jobs.phases.wait(ev, span, own, phase, length);
    }
}

/// The child's own time counts. A process that is killed in wait4(2) ends with this call in its registers (orig_ax), and waits for others.
fn waits_for_a_child(ev: &Evidence<'_>, span: &Span) -> bool {
    matches!(wait_reasons::of(span, ev.stacks()).reason, Reason::Child | Reason::Vfork)
}
