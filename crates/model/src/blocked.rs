//! Tasks that wait in D state: samples, taken a few times a second.

use serde::{Deserialize, Serialize};

use crate::Share;
use crate::timeline::{LockWait, State, is_default};
use crate::wait::{Reason, TaskState, Who};

/// Samples of equal waits: a row of the table `blocked`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Blocked {
    /// Number of the row, from 1 on; 0: no task waited, and the row has the number of passes alone.
    pub id: u32,
    /// Thread id; 0: several, for which there was no room.
    pub pid: u32,
    /// Process id.
    pub tgid: u32,
    /// The thread's name.
    pub comm: String,
    /// [`State::Io`] or [`State::Blocked`].
    pub state: State,
    /// Passes in which a thread waited so.
    pub samples: u64,
    /// How many waits that were, as far as passes tell them apart.
    pub waits: u64,
    /// Passes over all tasks in the window; the same in each row.
    pub passes: u64,
    /// Where it waited (`Stack::id`).
    #[serde(skip_serializing_if = "is_default")]
    pub stack: Option<u32>,
    /// The function of the work item that it ran.
    #[serde(skip_serializing_if = "is_default")]
    pub work: Option<String>,
    /// The kernel lock that it waited for, with the holder that the lock named in the moment of the sample.
    #[serde(skip_serializing_if = "is_default")]
    pub lock: Option<LockWait>,
    /// Process of the holder.
    #[serde(skip_serializing_if = "is_default")]
    pub owner_tgid: u32,
    /// Name of the holder.
    #[serde(skip_serializing_if = "is_default")]
    pub owner_comm: String,
    /// What the holder did in that moment.
    #[serde(skip_serializing_if = "is_default")]
    pub owner_state: State,
    /// The row of the holder's own wait in that moment.
    #[serde(skip_serializing_if = "is_default")]
    pub behind: Option<u32>,
}

/// Tasks in D state, by what they waited for.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BlockedAccount {
    /// Passes over all tasks.
    pub passes: u64,
    /// Tasks that waited, summed over the passes.
    pub samples: u64,
    /// ... of which are idle kernel threads that the kernel does not mark as such; they are in no list.
    pub idle: u64,
    /// Tasks that waited at a time, on average.
    pub tasks: f64,
    /// By what they waited for, the most samples first.
    pub waits: Vec<BlockedWait>,
    /// By the end of the chains, the most samples first: the last wait that is known, or the holder that did not wait.
    pub roots: Vec<BlockedRoot>,
}

/// Waits for one thing.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BlockedWait {
    /// What for.
    pub what: String,
    /// Why.
    pub reason: Reason,
    /// Samples.
    pub samples: u64,
    /// Of all samples.
    pub share: Option<Share>,
    /// How many waits that were, as far as samples tell them apart.
    pub waits: u64,
    /// Threads; the several of a row without room count as one.
    pub threads: u64,
    /// Some of them, those with the most samples first: "runguard (812)".
    pub examples: Vec<String>,
    /// The functions that waited, in the most frequent stack.
    pub site: String,
    /// Behind which holders they waited, the most samples first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chains: Vec<BlockedChain>,
}

/// Samples with the same holders.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BlockedChain {
    /// Samples.
    pub samples: u64,
    /// The holder of what was waited for, then the holder of what that one waited for, and so on; empty: not known.
    pub holders: Vec<BlockedHolder>,
    /// A holder in it waited for a lock of one that stands before it.
    #[serde(skip_serializing_if = "is_default")]
    pub cycle: bool,
}

/// A task that held what another one waited for.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct BlockedHolder {
    /// Its name, with its work item.
    pub who: Who,
    /// Thread id; 0: several.
    pub pid: u32,
    /// The last reader that the lock noted: it may be gone, and others may hold the lock.
    #[serde(skip_serializing_if = "is_default")]
    pub reader: bool,
    /// What it did in that moment.
    pub did: TaskState,
    /// What it waited for, where it waited in D state.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub what: String,
}

/// The end of chains.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BlockedRoot {
    /// The last wait that is known; empty: the holder did not wait.
    pub what: String,
    /// The holder that did not wait in D state; empty: a wait is the end, because it has no holder, or none that is known.
    pub who: Who,
    /// Its thread id; 0: several, or none.
    pub pid: u32,
    /// What it did.
    pub did: TaskState,
    /// A holder on the way is the last reader that its lock noted: it may be gone, and this may not be the end.
    #[serde(skip_serializing_if = "is_default")]
    pub uncertain: bool,
    /// Samples that end here.
    pub samples: u64,
    /// ... of tasks that waited for a lock above it; the others waited for it themselves.
    pub behind: u64,
    /// Of all samples.
    pub share: Option<Share>,
}
