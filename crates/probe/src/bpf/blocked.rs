//! Which tasks wait in D state, for what, and behind which holder? Samples. The kernel half is `blocked.bpf.c`.
//!
//! Cost of a pass: 0.2 us a task, and 10 us a task that waits.

use std::mem::{MaybeUninit, size_of};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, OpenObject};
use whyslow_model::Missing;

use super::shared::{Shared, homes};
use super::{missing, value, walk_within};
use crate::blocked_table::{self, Samples};
use crate::host;
use crate::probes::{Ending, Entry, LoadOrder, Probe};

skeleton!("blocked");
pub use skel::types::blocked_task;

// SAFETY: generated from the C struct; integers and bytes only, without padding.
unsafe impl plain::Plain for blocked_task {}

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::BlockedTasks.word();

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    capability: "BPF: samples of tasks in D state",
    lost: "what tasks in D state wait for, also those that began to wait before the window",
    load: LoadOrder::AfterScheduler,
    follows: false,
    shed: &[WHAT],
    of_waits: false,
    // Of a followed command or process each wait is seen.
    start: |slot, start| match start.follow {
        Some(_) => Ok(None),
        None => Ok(Some(Box::new(Blocked::start(slot, start.shared)?))),
    },
};

/// Time from one pass to the next.
const PERIOD: Duration = Duration::from_millis(100);
/// A pass that took long delays the next one: so that all passes take at most this part (1 in 200) of a CPU.
const PART: u32 = 200;
/// A pass that takes longer ends without a result.
const PATIENCE: Duration = Duration::from_millis(500);

/// The running probe.
pub struct Blocked<'slot> {
    _skel: skel::BlockedSkel<'slot>,
    walk: Link,
    samples: Samples,
    /// The next pass is due at this time of the window.
    due: Duration,
    failed: Option<Missing>,
}

impl<'slot> Blocked<'slot> {
    /// Load. `shared`: the scheduler's maps, where the locks are that tasks wait for; without them the kernel's own notes are left.
    pub fn start(
        slot: &'slot mut MaybeUninit<OpenObject>,
        shared: Option<Shared<'_>>,
    ) -> Result<Self, Missing> {
        Self::load(slot, shared).map_err(|err| missing(WHAT, &err))
    }

    fn load(slot: &'slot mut MaybeUninit<OpenObject>, shared: Option<Shared<'_>>) -> libbpf_rs::Result<Self> {
        let mut open = skel::BlockedSkelBuilder::default().open(slot)?;
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            rodata.homes = if shared.is_some() { homes() } else { 1 };
        }
        match shared {
            Some(shared) => shared.lend(open.open_object_mut())?,
            // No other object writes to them.
            None => open.open_object_mut().maps_mut().try_for_each(|mut map| map.set_max_entries(1))?,
        }
        let skel = open.load()?;
        let walk = skel.progs.walk.attach()?;
        Ok(Blocked { _skel: skel, walk, samples: Samples::default(), due: Duration::ZERO, failed: None })
    }

    /// All tasks that wait in D state now.
    pub fn sample(&self) -> Result<Vec<blocked_task>, Missing> {
        let bytes = walk_within(WHAT, &self.walk, PATIENCE)?;
        Ok(bytes.chunks_exact(size_of::<blocked_task>()).map(value).collect())
    }

    fn pass(&mut self) {
        match self.sample() {
            Ok(tasks) => self.samples.pass(&tasks),
            Err(why) => self.failed = Some(why),
        }
    }
}

/// When the next pass is due after one that was due, began and took so long. A late one is not made up for.
fn next_due(due: Duration, began: Duration, took: Duration) -> Duration {
    let in_time = (due + PERIOD).max(began + took.saturating_mul(PART));
    if in_time > began { in_time } else { began + PERIOD }
}

impl Probe for Blocked<'_> {
    fn begin(&mut self) -> Result<(), Missing> {
        self.samples = Samples::default();
        self.due = Duration::ZERO;
        Ok(())
    }

    fn poll(&mut self, at: Duration) -> bool {
        if at >= self.due {
            let before = host::thread_cpu_ns();
            self.pass();
            let took = Duration::from_nanos(host::thread_cpu_ns().saturating_sub(before));
            self.due = next_due(self.due, at, took);
        }
        false
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        if let Some(why) = self.failed.take() {
            match self.samples.passes() {
                0 => return Err(why),
                _ => ending.missing.push(Missing::part_of(WHAT, why).into()),
            }
        }
        ending.lost(WHAT, self.samples.lost());
        let samples = std::mem::take(&mut self.samples);
        ending.later(move |naming| {
            let (rows, stacks) = blocked_table::blocked(&samples, naming.kernel, naming.free_stack());
            naming.tables.blocked = Some(rows);
            naming.add_stacks(stacks);
        });
        Ok(())
    }
}

#[cfg(test)]
#[path = "blocked_tests.rs"]
mod tests;
