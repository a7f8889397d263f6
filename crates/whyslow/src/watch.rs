//! Record a window of this host, with progress, until it is over or the user has seen enough.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use whyslow_model::Recording;
use whyslow_probe::{Fit, Follow, Plan, priority};

use crate::out::note;
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::{ending, interrupt};

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
    /// The speed of CPUs is what was asked for.
    pub needs_speeds: bool,
    /// Only waits are asked for.
    pub only_waits: bool,
}

impl Look {
    /// At the whole host, at nobody in particular.
    #[must_use]
    pub fn at_the_host(window: Duration) -> Self {
        Look {
            window,
            follow: None,
            ends_with: None,
            all_cpus: false,
            needs_speeds: false,
            only_waits: false,
        }
    }

    /// What the probe is to do.
    #[must_use]
    pub fn plan(self, fit: Fit) -> Plan {
        Plan {
            fit,
            needs_speeds: self.needs_speeds,
            only_waits: self.only_waits,
            window: self.window,
            root: PathBuf::from("/"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            follow: self.follow,
            ends_with: self.ends_with,
            all_cpus: self.all_cpus,
        }
    }
}

/// What of us fits into the limits that hold us: said, if it is not all. An error: not the least of us does.
pub fn fit(follows: bool) -> Result<Fit> {
    let fit = Fit::here(follows)?;
    if let Some(warning) = fit.warning() {
        note(&warning);
    }
    Ok(fit)
}

/// Look at this host.
pub fn watch(look: Look) -> Result<Recording> {
    ending::begin(Outcome::CouldNotLook.status());
    let fit = fit(look.follow.is_some())?;
    if !is_root() {
        note(
            "not root: what BPF and other people's files tell may be missing; the way out is `sudo whyslow`",
        );
    }
    let stop = interrupt::catch();
    priority::raise();
    let mut progress = Progress::new();
    let recording = whyslow_probe::record(&look.plan(fit), stop, &mut progress);
    progress.done();
    Ok(recording)
}

/// Whether we are root.
#[must_use]
pub fn is_root() -> bool {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() == 0 }
}
