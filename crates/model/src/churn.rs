//! What is made and taken down again with each isolated job: cgroups, namespaces, mounts.

use serde::{Deserialize, Serialize};

use crate::timeline::is_default;
use crate::words::words;

words! {
    /// Something that a process makes or takes down. In the order of `enum churn_what` of the kernel half.
    ChurnKind {
        /// mkdir(2) on a cgroup file system.
        CgroupMade "cgroups made",
        /// rmdir(2) there.
        CgroupRemoved "cgroups removed",
        /// A process moved into a cgroup.
        CgroupJoined "moves into cgroups",
        /// mount(2), move_mount(2).
        Mounted "mounts made",
        /// umount2(2). Mounts that end with their namespace are not among them.
        Unmounted "mounts removed",
        /// setns(2).
        NamespaceJoined "namespaces entered",
        /// CLONE_NEWNS of clone(2), clone3(2), unshare(2).
        MountNamespace "mount namespaces made",
        /// CLONE_NEWUTS.
        UtsNamespace "UTS namespaces made",
        /// CLONE_NEWIPC.
        IpcNamespace "IPC namespaces made",
        /// CLONE_NEWUSER.
        UserNamespace "user namespaces made",
        /// CLONE_NEWPID.
        PidNamespace "PID namespaces made",
        /// CLONE_NEWNET.
        NetNamespace "network namespaces made",
        /// CLONE_NEWCGROUP.
        CgroupNamespace "cgroup namespaces made",
        /// CLONE_NEWTIME.
        TimeNamespace "time namespaces made",
    }
}

/// How often the processes of one tree did it: a row of the table `churn`. Namespaces have one for clone(2) and one for unshare(2).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Churn {
    /// The process at the top: the first one above those that did it that is older than the window, or that whyslow started.
    pub tgid: u32,
    /// When it began, on the kernel's monotonic clock.
    pub begun_ns: u64,
    /// Its name.
    pub comm: String,
    /// A word of [`ChurnKind`].
    pub what: String,
    /// How often.
    pub count: u64,
    /// Time of the window in which such calls were not counted: the host had too many system calls.
    #[serde(skip_serializing_if = "is_default")]
    pub away_ns: u64,
}

words! {
    /// Something of which a host has many, as counts name it.
    Thing {
        /// Of the hierarchy in which one was made or removed; those that are removed and not freed yet are among them.
        Cgroups "cgroups",
        /// In the mount namespace of a process that made or removed one: the largest.
        Mounts "mounts",
        /// Of a user, with those in user namespaces below (user_namespaces(7): what the files of /proc/sys/user limit).
        MountNamespaces "mount namespaces",
        UtsNamespaces "UTS namespaces",
        IpcNamespaces "IPC namespaces",
        UserNamespaces "user namespaces",
        PidNamespaces "PID namespaces",
        NetNamespaces "network namespaces",
        CgroupNamespaces "cgroup namespaces",
        TimeNamespaces "time namespaces",
    }
}

impl ChurnKind {
    /// The count that it changes.
    #[must_use]
    pub const fn thing(self) -> Option<Thing> {
        Some(match self {
            ChurnKind::CgroupMade | ChurnKind::CgroupRemoved => Thing::Cgroups,
            ChurnKind::Mounted | ChurnKind::Unmounted => Thing::Mounts,
            ChurnKind::MountNamespace => Thing::MountNamespaces,
            ChurnKind::UtsNamespace => Thing::UtsNamespaces,
            ChurnKind::IpcNamespace => Thing::IpcNamespaces,
            ChurnKind::UserNamespace => Thing::UserNamespaces,
            ChurnKind::PidNamespace => Thing::PidNamespaces,
            ChurnKind::NetNamespace => Thing::NetNamespaces,
            ChurnKind::CgroupNamespace => Thing::CgroupNamespaces,
            ChurnKind::TimeNamespace => Thing::TimeNamespaces,
            ChurnKind::CgroupJoined | ChurnKind::NamespaceJoined => return None,
        })
    }

    /// It makes the count smaller.
    #[must_use]
    pub const fn removes(self) -> bool {
        matches!(self, ChurnKind::CgroupRemoved | ChurnKind::Unmounted)
    }
}

/// How many of a thing there were: a row of the table `populations`. The kernel's own count, read where one is made or removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Population {
    /// A word of [`Thing`].
    pub what: String,
    /// Time of the window, some ms after the event.
    pub at_ns: u64,
    /// How many; of several events since the row before the largest.
    pub count: u64,
}
