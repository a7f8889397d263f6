//! What was seen in one window: frames, tables, and what is missing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::table::Tables;
use crate::timeline::Watched;
use crate::{Missing, MissingNote, Probe};

/// Version of the recording's format on disk.
pub const FORMAT: u32 = 0;

/// Facts about a recording and the host that made it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// Version of the format.
    pub format: u32,
    /// Version of the whyslow that recorded it.
    pub whyslow: String,
    /// The host's name.
    pub host: String,
    /// The kernel's boot id, where readable.
    pub boot_id: Option<String>,
    /// The kernel's release.
    pub kernel: String,
    /// RFC 3339.
    pub started_at: String,
    /// Length of the window.
    pub window_ns: u64,
    /// Online CPUs.
    pub cpus: u32,
    /// Clock ticks per second of /proc (`sysconf(_SC_CLK_TCK)`).
    pub clock_ticks: u64,
    /// Size of a page.
    pub page_size: u64,
    /// Recorded as root (or with the capabilities that matter).
    pub privileged: bool,
    /// Pids of whyslow itself, so that it does not accuse itself.
    pub own_pids: Vec<u32>,
    /// CPU time of our processes.
    pub own_cpu_ns: u64,
    /// Our peak resident memory.
    pub own_rss_bytes: u64,
    /// Run time of our BPF programs, extrapolated from a sample.
    pub own_bpf_ns: Option<u64>,
    /// Events that the kernel half saw and could not note, by probe.
    pub lost_events: Vec<(String, u64)>,
    /// The user ended the window early.
    pub interrupted: bool,
    /// Whom the trace followed in detail; `None`: nobody in particular.
    pub watched: Option<Watched>,
}

/// One kernel file as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// When, since the window began.
    pub at: Duration,
    /// Path below the root: "proc/pressure/io".
    pub name: String,
    /// Its bytes, as read.
    pub bytes: Vec<u8>,
}

/// What was seen in one window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    /// Facts about it.
    pub meta: Meta,
    /// Kernel files, oldest first.
    pub frames: Vec<Frame>,
    /// What BPF told.
    pub tables: Tables,
    /// What could not be looked at: by name of file or probe.
    pub missing: Vec<MissingNote>,
    /// The file ended early: why, and where.
    pub torn: Option<String>,
}

impl Recording {
    /// Length of the window.
    #[must_use]
    pub fn window(&self) -> Duration {
        Duration::from_nanos(self.meta.window_ns)
    }

    /// The first frame of a file.
    pub fn first(&self, name: &str) -> Result<&Frame, Missing> {
        self.frames.iter().find(|f| f.name == name).ok_or_else(|| self.why_missing(name))
    }

    /// The last frame of a file.
    pub fn last(&self, name: &str) -> Result<&Frame, Missing> {
        self.frames.iter().rfind(|f| f.name == name).ok_or_else(|| self.why_missing(name))
    }

    /// Why what a probe fills is not here.
    #[must_use]
    pub fn why_untold(&self, probe: Probe) -> Missing {
        self.why_missing(probe.name())
    }

    /// Why a file is not here: by its name, or by a row of the table of files that it is one of.
    #[must_use]
    pub fn why_missing(&self, name: &str) -> Missing {
        let known = self.missing.iter().find(|note| note.missing.is_of(name));
        match (known, &self.torn) {
            (Some(note), _) => note.missing.clone(),
            (None, Some(torn)) => Missing::broken(name, format!("the recording is torn: {torn}")),
            (None, None) => Missing::not_recorded(name),
        }
    }
}
