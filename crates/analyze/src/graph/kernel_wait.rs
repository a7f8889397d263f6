//! Which chains say who made somebody wait in the kernel.

use whyslow_model::chain::Chain;
use whyslow_model::timeline::State;
use whyslow_model::wait::{Detail, Note, Reason, WaitTarget};
use whyslow_model::{Hop, SubjectKind};

use super::{HostChain, UNKNOWN, WITHOUT_A_BREAK};
use crate::wait_reasons::Class;

impl HostChain<'_> {
    /// It says who made somebody wait in the kernel.
    pub fn blames_for_kernel_wait(&self) -> bool {
        let HostChain { chain, head, class, leaf, .. } = self;
        let uninterruptible = matches!(head.state, State::Blocked | State::Io);
        let of_others = matches!(class, Class::Lock | Class::Dependency | Class::Unknown);
        let kernel = head.lock.is_some() || (uninterruptible && of_others);
        let hint = chain.notes.contains(&Note::StaleOwner);
        let by_somebody = match (chain.leaf.kind, leaf) {
            // Who was waiting for something to do held nobody up; who sleeps does so only if it has the lock meanwhile.
            (SubjectKind::Task, Some(Class::Idle)) => false,
            (SubjectKind::Task, Some(Class::Timer)) => head.lock.is_some(),
            (SubjectKind::Task | SubjectKind::Device | SubjectKind::Quota | SubjectKind::Limit, _) => true,
            // Its holder needs a grace period, and keeps the lock meanwhile.
            (SubjectKind::Kernel, _) => {
                head.lock.is_some() && chain.hops.last().is_some_and(|last| last.reason == Reason::Rcu)
            }
            // A timer, a packet, a CPU that all want: nobody is to blame.
            _ => false,
        };
        // Who had a CPU that the holder wanted took his turn.
        let a_turn = |last: &Hop| {
            last.detail == Detail::Target(WaitTarget::HadCpu) && last.worst < Some(WITHOUT_A_BREAK)
        };
        let by_somebody = by_somebody && !chain.hops.last().is_some_and(a_turn);
        // Nor does who waits for the waiter by way of somebody who had nothing to do: that is a hand-over, not a deadlock.
        let idle = |hop: &Hop| hop.reason == Reason::Idle;
        let by_somebody = by_somebody && !(is_cycle(chain) && chain.hops.iter().any(idle));
        // Its sleep was over, and it was ready: a wait for a CPU is no wait in the kernel, whatever the sleep before it was for.
        let for_cpu = chain.hops.first().is_some_and(|hop| hop.reason == Reason::Runnable);
        kernel && !for_cpu && !hint && by_somebody && chain.hops.len() > 1 && chain.leaf.id != UNKNOWN
    }
}

/// Its end waits for its beginning.
pub(crate) fn is_cycle(chain: &Chain) -> bool {
    chain.hops.last().is_some_and(|hop| hop.reason == Reason::Cycle)
}
