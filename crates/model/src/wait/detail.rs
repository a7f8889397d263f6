//! The thing that a task waits for, or its work on a CPU.

use std::fmt;

use serde::Serialize;

use super::{IoAbout, Operation, PeerAct, Spin, WaitTarget};
use crate::timeline::LockKind;

/// The thing that a task waits for, or its work on a CPU. [`fmt::Display`] is a noun phrase for a sentence.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Detail {
    /// There is nothing to say.
    #[default]
    Nothing,
    /// Something without a name of its own.
    #[serde(rename = "thing")]
    Target(WaitTarget),
    /// A kernel lock.
    Lock {
        #[serde(serialize_with = "crate::chain::as_word")]
        kind: LockKind,
        /// Its name: "cgroup_mutex", "taken by foo".
        name: String,
        /// Whether it is to be written, of locks that can be read.
        write: Option<bool>,
    },
    /// A lock on a file.
    FileLock {
        /// The file's name, where known.
        file: Option<String>,
        /// It was refused at once: the wait is a sleep before the next attempt.
        retried: bool,
    },
    /// A block device.
    Device {
        device: String,
        /// What is done there.
        operation: Operation,
        /// What about, of most of such waits of its process.
        #[serde(rename = "file", skip_serializing_if = "Option::is_none")]
        about: Option<IoAbout>,
    },
    /// A cgroup's limit on a device.
    IoLimit {
        /// The device's name.
        device: String,
    },
    /// The other end of a connection.
    Peer {
        /// Its address, where known.
        address: Option<String>,
        /// What it has to do.
        act: PeerAct,
    },
    /// Data to be written.
    Synced {
        /// The system call that waits for it.
        call: String,
    },
    /// A grace period of RCU.
    GracePeriod {
        /// The function that asked for it.
        caller: Option<String>,
    },
    /// A work item of the kernel.
    WorkItem {
        /// The function that asked for it.
        caller: Option<String>,
    },
    /// A completion of the kernel.
    Completion {
        /// The function that waits for it.
        function: Option<String>,
    },
    /// Kernel code that sleeps for a set time.
    Sleeps { function: Option<String> },
    /// Kernel code that sleeps until it is its turn again.
    NextTurn { function: Option<String> },
    /// Something in a function of the kernel.
    InFunction {
        /// The innermost function that says something.
        function: String,
    },
    /// Something in a system call.
    InCall {
        /// The system call.
        call: String,
    },
    /// Code of the kernel.
    KernelCode {
        /// The function at work.
        function: String,
        /// The function on whose behalf.
        inside: Option<String>,
    },
    /// The same, of several functions, each too small for a line of its own.
    KernelCodeIn {
        /// The function on whose behalf.
        inside: String,
    },
    /// Code of the kernel that burns CPU to wait.
    Spinning {
        /// The thing it spins for.
        whom: Spin,
        /// The function that spins.
        function: String,
    },
    /// Code of a program.
    UserCode {
        /// The function, where it has a name.
        function: Option<String>,
    },
    /// A CPU that answered an IPI late.
    WakeupLatency {
        /// Which, and why.
        why: String,
        /// The function that it was asked to run.
        function: String,
    },
    /// Many short waits.
    Short {
        /// Each of them.
        of: Box<Detail>,
        /// The task that ended them.
        woken_by: Option<String>,
    },
    /// Parts too small to be told apart.
    Smaller {
        /// How many.
        parts: usize,
    },
    /// A command that could not be traced.
    NotTraced {
        /// Why.
        why: String,
    },
    /// A rule's own words.
    Words(String),
}

impl Detail {
    /// For a peer outside this host: with the usual service of its port. `None`: nothing to add.
    #[must_use]
    pub fn with_usual_service(&self) -> Option<Self> {
        match self {
            Detail::Peer { address: Some(address), act } => {
                Some(Detail::Peer { address: Some(super::port::guessed(address)?), act: *act })
            }
            _ => None,
        }
    }

    /// Whether there is nothing to say.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        matches!(self, Detail::Nothing) || matches!(self, Detail::Words(words) if words.is_empty())
    }

    /// The block device that is waited for.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        match self {
            Detail::Device { device, .. } | Detail::IoLimit { device } => Some(device),
            Detail::Short { of, .. } => of.device(),
            _ => None,
        }
    }

    /// Whether it is data, and not a rule's words: JSON then has it as a field of its own.
    pub(crate) fn is_typed(&self) -> bool {
        !matches!(self, Detail::Nothing | Detail::Words(_))
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernels = |function: &Option<String>| function.clone().unwrap_or_else(|| "the kernel".to_owned());
        match self {
            Detail::Nothing => Ok(()),
            Detail::Target(thing) => thing.fmt(f),
            Detail::Lock { kind, name, write } => {
                let mode = match write {
                    Some(true) => ", to write",
                    Some(false) => ", to read",
                    None => "",
                };
                write!(f, "{kind} {name}{mode}")
            }
            Detail::FileLock { file, retried } => {
                f.write_str("a file lock")?;
                file.iter().try_for_each(|file| write!(f, " on {file}"))?;
                f.write_str(if *retried { " (retried)" } else { "" })
            }
            Detail::Device { device, operation, about } => match (operation.words(), about) {
                ("", None) => f.write_str(device),
                ("", Some(about)) => write!(f, "{device} ({about})"),
                (words, None) => write!(f, "{device} ({words})"),
                (words, Some(about)) => write!(f, "{device} ({words} of {about})"),
            },
            Detail::IoLimit { device } => write!(f, "its cgroup's limit on {device}"),
            Detail::Peer { address, act } => {
                let peer = address.as_deref().unwrap_or("its peer");
                match act {
                    PeerAct::Send => write!(f, "data from {peer}"),
                    PeerAct::Accept => write!(f, "{peer} to accept a connection"),
                    PeerAct::Take => write!(f, "{peer} to take data"),
                    PeerAct::TakeAtClose => write!(f, "{peer} to take what was left at close"),
                }
            }
            Detail::Synced { call } => write!(f, "its data to be written ({call}())"),
            Detail::GracePeriod { caller } => {
                write!(f, "an RCU grace period{} (reporter: cannot tell)", For(caller))
            }
            Detail::WorkItem { caller } => write!(f, "a work item{}", For(caller)),
            Detail::Completion { function } => write!(f, "a completion in {}", kernels(function)),
            Detail::Sleeps { function } => write!(f, "{}, which sleeps", kernels(function)),
            Detail::NextTurn { function } => write!(f, "its next turn ({})", kernels(function)),
            Detail::InFunction { function } => write!(f, "something in {function}"),
            Detail::InCall { call } => write!(f, "something in {call}()"),
            Detail::UserCode { function: Some(function) } => write!(f, "user code ({function})"),
            Detail::UserCode { function: None } => f.write_str("user code"),
            Detail::KernelCode { function, inside: Some(inside) } => {
                write!(f, "{function} in {inside} (kernel)")
            }
            Detail::KernelCode { function, inside: None } => write!(f, "{function} (kernel)"),
            Detail::KernelCodeIn { inside } => write!(f, "other functions in {inside} (kernel)"),
            Detail::Spinning { whom, function } => write!(f, "spinning for {} ({function})", whom.words()),
            Detail::WakeupLatency { why, function } => write!(f, "{why}, to run {function}"),
            Detail::Short { of, woken_by: Some(waker) } => {
                write!(f, "{of}, in short waits (woken by {waker})")
            }
            Detail::Short { of, woken_by: None } => write!(f, "{of}, in short waits"),
            Detail::Smaller { parts } => write!(f, "other ({parts} parts)"),
            Detail::NotTraced { why } => write!(f, "not traced: {why}"),
            Detail::Words(words) => f.write_str(words),
        }
    }
}

/// " for FUNCTION".
struct For<'a>(&'a Option<String>);

impl fmt::Display for For<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(function) => write!(f, " for {function}"),
            None => Ok(()),
        }
    }
}

impl From<WaitTarget> for Detail {
    fn from(thing: WaitTarget) -> Self {
        Detail::Target(thing)
    }
}

impl From<String> for Detail {
    fn from(words: String) -> Self {
        Detail::Words(words)
    }
}

impl From<&str> for Detail {
    fn from(words: &str) -> Self {
        Detail::Words(words.to_owned())
    }
}
