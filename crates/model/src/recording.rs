//! What was seen in one window: snapshots, tables, and what is missing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ping::Pinged;
use crate::table::Tables;
use crate::timeline::Watched;
use crate::{Missing, MissingNote, Probe, pattern};

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
    /// The tasks that the trace followed in detail; `None`: the whole host.
    pub watched: Option<Watched>,
    /// The host that was asked, by the rows of `Tables::pings`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinged: Option<Pinged>,
}

/// One kernel file as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSnapshot {
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
    pub snapshots: Vec<FileSnapshot>,
    /// What BPF told.
    pub tables: Tables,
    /// What could not be looked at: by name of file or probe.
    pub missing: Vec<MissingNote>,
    /// The file ended early: why, and where.
    pub torn: Option<String>,
}

impl Meta {
    /// Whether a thread, or its process, is one of whyslow itself.
    #[must_use]
    pub fn is_own(&self, pid: u32, tgid: u32) -> bool {
        self.own_pids.contains(&tgid) || self.own_pids.contains(&pid)
    }
}

impl Recording {
    /// Length of the window.
    #[must_use]
    pub fn window(&self) -> Duration {
        Duration::from_nanos(self.meta.window_ns)
    }

    /// The first snapshot of a file.
    pub fn first(&self, name: &str) -> Result<&FileSnapshot, Missing> {
        self.snapshots.iter().find(|f| f.name == name).ok_or_else(|| self.why_missing(name))
    }

    /// The last snapshot of a file.
    pub fn last(&self, name: &str) -> Result<&FileSnapshot, Missing> {
        self.snapshots.iter().rfind(|f| f.name == name).ok_or_else(|| self.why_missing(name))
    }

    /// Why what a probe fills is not here.
    #[must_use]
    pub fn why_untold(&self, probe: Probe) -> Missing {
        self.why_missing(probe.word())
    }

    /// What is said of the first of these files of which something is: by its name, or by a row of the table of files that it is
    /// one of.
    #[must_use]
    pub fn said_of(&self, names: &[&str]) -> Option<&Missing> {
        let all = || self.missing.iter().map(|note| &note.missing);
        let exact = all().find(|missing| names.contains(&missing.what()));
        let mut left = pattern::STEPS;
        let mut is_row =
            |missing: &&Missing| names.iter().any(|name| pattern::names(missing.what(), name, &mut left));
        exact.or_else(|| all().find(&mut is_row))
    }

    /// Why a file is not here: by its name, or by a row of the table of files that it is one of.
    #[must_use]
    pub fn why_missing(&self, name: &str) -> Missing {
        match (self.said_of(&[name]), &self.torn) {
            (Some(missing), _) => missing.clone(),
            (None, Some(torn)) => Missing::broken(name, format!("the recording is torn: {torn}")),
            (None, None) => Missing::not_recorded(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(notes: impl IntoIterator<Item = Missing>) -> Recording {
        Recording { missing: notes.into_iter().map(MissingNote::from).collect(), ..Recording::default() }
    }

    #[test]
    fn why_a_file_is_missing_is_said_of_it_or_of_its_row() {
        let row = Missing::skipped("sys/{a,b}/c", "no time was left");
        let own = Missing::broken("sys/b/c", "it is empty");
        let rec = with([row.clone(), own.clone()]);
        assert_eq!((rec.why_missing("sys/a/c"), rec.why_missing("sys/b/c")), (row, own));
        assert_eq!(rec.why_missing("sys/d/c"), Missing::not_recorded("sys/d/c"));
    }

    #[test]
    fn its_own_are_its_processes_and_their_threads() {
        let meta = Meta { own_pids: vec![7, 9], ..Meta::default() };
        assert_eq!(
            [(7, 7), (8, 7), (9, 9), (3, 3)].map(|(pid, tgid)| meta.is_own(pid, tgid)),
            [true, true, true, false]
        );
    }

    #[test]
    fn a_hostile_recording_has_one_budget() {
        let rec = with((0..20_000).map(|n| Missing::skipped(format!("{{a}}{{a}}{{a}}{{a}}{{a}}{n}!"), "x")));
        let path = "sys/devices/system/cpu/cpu0/cpuidle/state0/name";
        assert_eq!(rec.why_missing(path), Missing::not_recorded(path));
    }

    #[test]
    fn a_search_that_was_cut_short_says_where() {
        let cut = Missing::cut_short("sys/fs/cgroup/memory", "5 were left");
        assert_eq!(cut.below(), Some("sys/fs/cgroup/memory"));
        assert_eq!(Missing::skipped("sys/fs", "x").below(), None);
    }
}
