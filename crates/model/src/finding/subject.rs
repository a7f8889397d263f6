//! Victims and culprits.

use serde::Serialize;

/// The kind of a victim or culprit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the variants are their own words")]
pub enum SubjectKind {
    Host,
    Cgroup,
    Task,
    Cpu,
    Device,
    Socket,
    Quota,
    Limit,
    Kernel,
    Hypervisor,
}

/// A victim: it lost time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Subject {
    /// What sort of thing.
    pub kind: SubjectKind,
    /// A stable id: a cgroup's path, a task's pid, a device's name.
    pub id: String,
    /// As people call it.
    pub name: String,
    /// The systemd unit, where the cgroup path gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// `Description=` of that unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The container or pod, where the cgroup path gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The pod: "shop/web-0", or its uid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The container's image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

impl Subject {
    /// A subject known by `id`, called `name`.
    pub fn new(kind: SubjectKind, id: impl Into<String>, name: impl Into<String>) -> Self {
        Subject {
            kind,
            id: id.into(),
            name: name.into(),
            unit: None,
            description: None,
            container: None,
            pod: None,
            image: None,
        }
    }

    /// The machine as a whole.
    #[must_use]
    pub fn host() -> Self {
        Subject::new(SubjectKind::Host, "host", "this host")
    }
}

/// A culprit: it cost the victims that time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Culprit {
    /// What sort of thing.
    pub kind: SubjectKind,
    /// A stable id.
    pub id: String,
    /// As people call it.
    pub name: String,
    /// The kernel or user function at work, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The file concerned, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl Culprit {
    /// A culprit known by `id`, called `name`.
    pub fn new(kind: SubjectKind, id: impl Into<String>, name: impl Into<String>) -> Self {
        Culprit { kind, id: id.into(), name: name.into(), function: None, file: None }
    }

    /// With the file concerned.
    #[must_use]
    pub fn at_file(mut self, file: impl Into<String>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// With the function at work.
    #[must_use]
    pub fn in_function(mut self, function: impl Into<String>) -> Self {
        self.function = Some(function.into());
        self
    }
}
