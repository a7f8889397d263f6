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
