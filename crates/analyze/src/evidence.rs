//! Typed facts of one window. Every accessor is a `Result`: `?` in a rule means "cannot tell", never "fine".

mod net;

pub use net::Netns;
use std::time::Duration;

use whyslow_model::{Missing, Recording, table};

/// The facts of a recording.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'r> {
    rec: &'r Recording,
}

impl<'r> Evidence<'r> {
    /// The facts of `rec`.
    #[must_use]
    pub fn of(rec: &'r Recording) -> Self {
        Evidence { rec }
    }

    /// The recording itself.
    #[must_use]
    pub fn recording(&self) -> &'r Recording {
        self.rec
    }

    /// Length of the window.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.rec.window()
    }

    /// All tasks of the window.
    pub fn tasks(&self) -> Result<&'r [table::Task], Missing> {
        self.rec.tables.tasks.as_deref().ok_or_else(|| self.rec.why_missing("task list"))
    }

    /// All cgroups that had a task.
    pub fn cgroups(&self) -> Result<&'r [table::Cgroup], Missing> {
        self.rec.tables.cgroups.as_deref().ok_or_else(|| self.rec.why_missing("task list"))
    }

    /// Time that the hypervisor took from the online CPUs.
    pub fn steal(&self) -> Result<Duration, Missing> {
        Err(Missing::not_recorded("proc/stat"))
    }

    /// The host's CPU time by state.
    pub fn cpu_time(&self) -> Result<CpuTime, Missing> {
        Err(Missing::not_recorded("proc/stat"))
    }
}

/// CPU time by state, all CPUs together.
#[derive(Debug, Clone, Copy, Default)]
#[expect(missing_docs, reason = "the kernel's own words")]
pub struct CpuTime {
    pub user: Duration,
    pub nice: Duration,
    pub system: Duration,
    pub idle: Duration,
    pub iowait: Duration,
    pub irq: Duration,
    pub softirq: Duration,
    pub steal: Duration,
}
