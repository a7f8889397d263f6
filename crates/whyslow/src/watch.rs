//! Record a window of this host, with progress, until it is over or the user has seen enough.

use std::path::PathBuf;
use std::time::Duration;

use whyslow_model::Recording;
use whyslow_probe::Plan;

use crate::interrupt;
use crate::out::note;
use crate::progress::Progress;

/// Look at this host for `window`.
#[must_use]
pub fn watch(window: Duration) -> Recording {
    // SAFETY: takes nothing, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        note(
            "not root: what BPF and other people's files tell may be missing; the way out is `sudo whyslow`",
        );
    }
    let stop = interrupt::catch();
    let mut progress = Progress::new();
    let plan = Plan {
        window,
        root: PathBuf::from("/"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Plan::default()
    };
    let recording = whyslow_probe::record(&plan, stop, &mut progress);
    progress.done();
    recording
}
