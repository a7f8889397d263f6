//! Records a window of this host and shows the progress, until the window is over or the user ends it.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use whyslow_model::Recording;
use whyslow_probe::{Asking, Follow, OwnBudget, Plan, priority};

use crate::out::note;
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::{interrupt, watchdog};

/// What to record, and for how long.
#[derive(Debug)]
pub struct Look {
    /// Length of the window.
    pub window: Duration,
    /// The processes to follow in detail.
    pub follow: Option<Follow>,
    /// The window is over when this descriptor is readable.
    pub ends_with: Option<RawFd>,
    /// Also measure CPUs that are isolated or run real-time tasks.
    pub all_cpus: bool,
    /// The user requested the speed of CPUs.
    pub needs_speeds: bool,
    /// The user requested only waits.
    pub only_waits: bool,
    /// The user requested packets that wait.
    pub watches_packets: bool,
    /// The host that is asked meanwhile.
    pub asking: Option<Asking>,
}

impl Look {
    /// The whole host, with no process followed.
    #[must_use]
    pub fn at_the_host(window: Duration) -> Self {
        Look {
            window,
            follow: None,
            ends_with: None,
            all_cpus: false,
            needs_speeds: false,
            only_waits: false,
            watches_packets: false,
            asking: None,
        }
    }

    /// The plan for the probes.
    #[must_use]
    pub fn plan(self, budget: OwnBudget) -> Plan {
        Plan {
            budget,
            needs_speeds: self.needs_speeds,
            only_waits: self.only_waits,
            watches_packets: self.watches_packets,
            window: self.window,
            root: PathBuf::from("/"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            follow: self.follow,
            ends_with: self.ends_with,
            all_cpus: self.all_cpus,
            asking: self.asking,
        }
    }
}

/// Which probes fit into the limits (cgroup, ulimit) that whyslow itself runs under. Prints a warning if not all of them fit; an error if
/// not even the smallest set does.
pub fn budget(follows: bool) -> Result<OwnBudget> {
    let budget = OwnBudget::here(follows)?;
    if let Some(warning) = budget.warning() {
        note(&warning);
    }
    Ok(budget)
}

/// Records this host.
pub fn watch(look: Look) -> Result<Recording> {
    watchdog::begin(Outcome::CouldNotLook.status());
    let budget = budget(look.follow.is_some())?;
    if !is_root() {
        note("not root: data from BPF and from other users' files may be missing; use `sudo whyslow`");
    }
    let stop = interrupt::catch();
    priority::raise();
    let mut progress = Progress::of(look.asking.as_ref().map(|asking| Arc::clone(&asking.live)));
    let recording = whyslow_probe::record(&look.plan(budget), stop, &mut progress);
    progress.done();
    Ok(recording)
}

/// Whether whyslow runs as root.
#[must_use]
pub fn is_root() -> bool {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() == 0 }
}
