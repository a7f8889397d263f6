//! Names of cgroups, from files of container runtimes and of systemd on disk; and names of users.

use serde::{Deserialize, Serialize};

/// A cgroup with a name that a runtime or systemd gave it. Unknown fields are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    /// `Cgroup::path`.
    pub path: String,
    /// The runtime whose file named the container: "containerd", "cri-o", "docker", "podman".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// The container's whole id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
    /// The container's name; in a pod the one within it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Its image, as its owner asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The pod's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The pod's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The pod's uid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// `Description=` of the systemd unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The user whose slice it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The number of the login session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The session's terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tty: Option<String>,
    /// From which host it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_host: Option<String>,
    /// The machine (systemd-machined).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

impl Group {
    /// No file names it.
    #[must_use]
    pub fn is_nameless(&self) -> bool {
        *self == Group { path: self.path.clone(), ..Group::default() }
    }

    /// "shop/web-0".
    #[must_use]
    pub fn full_pod(&self) -> Option<String> {
        let pod = self.pod.as_ref()?;
        Some(self.namespace.as_ref().map_or_else(|| pod.clone(), |namespace| format!("{namespace}/{pod}")))
    }
}

/// A user that had a task in the window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct User {
    /// `Task::uid`.
    pub uid: u32,
    /// From /etc/passwd.
    pub name: String,
}
