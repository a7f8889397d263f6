//! The task or thing that waits, runs or holds a lock.

use std::fmt;

use serde::{Serialize, Serializer};

/// The task or thing that waits, runs or holds a lock.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// No task, or the task of the part above.
    #[default]
    Nobody,
    /// A task, or several of one name.
    Task {
        /// Its name, numbers folded where several are meant: "kworker/*:*".
        comm: String,
        /// The function of the work item that it ran, of kernel workers.
        work: Option<String>,
    },
    /// As a rule names its subject: a cgroup, a CPU, a process with its number.
    Named(String),
}

impl Who {
    /// A task of this name.
    pub fn task(comm: impl Into<String>) -> Self {
        Who::Task { comm: comm.into(), work: None }
    }

    /// A task's name; empty for anything else.
    #[must_use]
    pub fn comm(&self) -> &str {
        match self {
            Who::Task { comm, .. } => comm,
            Who::Nobody | Who::Named(_) => "",
        }
    }

    /// The function of its work item, where it ran one.
    #[must_use]
    pub fn work(&self) -> Option<&str> {
        match self {
            Who::Task { work, .. } => work.as_deref(),
            Who::Nobody | Who::Named(_) => None,
        }
    }

    /// Whether it names nothing.
    #[must_use]
    pub fn is_nobody(&self) -> bool {
        match self {
            Who::Nobody => true,
            Who::Task { comm, work } => comm.is_empty() && work.is_none(),
            Who::Named(name) => name.is_empty(),
        }
    }
}

/// "kworker/1:2 (css_killed_work_fn)"; empty for [`Who::Nobody`].
impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Nobody => Ok(()),
            Who::Task { comm, work: None } => f.write_str(comm),
            Who::Task { comm, work: Some(work) } => write!(f, "{comm} ({work})"),
            Who::Named(name) => f.write_str(name),
        }
    }
}

impl From<String> for Who {
    fn from(name: String) -> Self {
        Who::Named(name)
    }
}

impl From<&String> for Who {
    fn from(name: &String) -> Self {
        Who::Named(name.clone())
    }
}

impl From<&str> for Who {
    fn from(name: &str) -> Self {
        Who::Named(name.to_owned())
    }
}

impl Serialize for Who {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
