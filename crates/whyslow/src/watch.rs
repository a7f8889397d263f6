//! Record a window of this host, with progress, until it is over or the user has seen enough.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

use whyslow_model::Recording;
use whyslow_probe::{Follow, Plan};

use crate::interrupt;
use crate::out::note;
use crate::progress::Progress;

/// How to look.
#[derive(Debug)]
pub struct Look {
    /// For how long.
    pub window: Duration,
    /// At whom in detail.
    pub follow: Option<Follow>,
    /// It is over when this can be read.
    pub ends_with: Option<RawFd>,
    /// Measure CPUs that others keep for themselves, too.
    pub all_cpus: bool,
}

impl Look {
    /// At the whole host, at nobody in particular.
    #[must_use]
    pub fn at_the_host(window: Duration) -> Self {
        Look { window, follow: None, ends_with: None, all_cpus: false }
    }

    /// What the probe is to do.
    #[must_use]
    pub fn plan(self) -> Plan {
        Plan {
            window: self.window,
            root: PathBuf::from("/"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            follow: self.follow,
            ends_with: self.ends_with,
            all_cpus: self.all_cpus,
        }
    }
}

/// Look at this host.
#[must_use]
pub fn watch(look: Look) -> Recording {
    if !is_root() {
        note(
            "not root: what BPF and other people's files tell may be missing; the way out is `sudo whyslow`",
        );
    }
    let stop = interrupt::catch();
    let mut progress = Progress::new();
    let recording = whyslow_probe::record(&look.plan(), stop, &mut progress);
    progress.done();
    recording
}

/// Whether we are root.
#[must_use]
pub fn is_root() -> bool {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() == 0 }
}
