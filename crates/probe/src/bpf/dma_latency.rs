//! Which processes want quick wake-ups: holders of /dev/cpu_dma_latency, each with its request. The kernel half is `dma_latency.bpf.c`.

use std::mem::{MaybeUninit, size_of};
use std::path::Path;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, OpenObject};
use whyslow_model::{Missing, table};

use super::{missing, text, types, value, walk_within};
use crate::probes::{Ending, Entry, LoadOrder, Probe, Slot};

skeleton!("dma_latency");
use skel::types::latency_holder;

// SAFETY: generated from the C struct; integers and bytes only, without padding.
unsafe impl plain::Plain for latency_holder {}

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::LatencyHolders.word();

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    capability: "BPF: holders of wake-up limits",
    lost: "which process keeps CPUs from sleeping deeply",
    load: LoadOrder::BesideScheduler,
    follows: false,
    shed: &[WHAT],
    of_waits: true,
    start: |slot, _| Ok(Some(Box::new(AtTheEnd(slot)))),
};

/// The kernel chooses the device's number.
const DEVICE: &str = "sys/class/misc/cpu_dma_latency/dev";
/// A walk over all open files: 10 ms for 100,000 of them.
const DEADLINE: Duration = Duration::from_millis(500);
/// A process that opens the file without writing to it requests nothing (PM_QOS_CPU_LATENCY_DEFAULT_VALUE: 2000 s).
const NO_WISH_US: i32 = 2_000_000_000;
/// More rows than this help no reader.
const MOST: usize = 64;

/// It loads a program at the end of the window, walks once, and unloads it.
struct AtTheEnd<'slot>(&'slot mut Slot);

impl Probe for AtTheEnd<'_> {
    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        ending.tables.latency_holders = Some(holders(&mut *self.0, Path::new("/"))?);
        Ok(())
    }
}

/// All holders now, the strictest first.
fn holders(slot: &mut Slot, root: &Path) -> Result<Vec<table::LatencyHolder>, Missing> {
    let latency = DmaLatency::start(slot, root)?;
    let mut rows: Vec<table::LatencyHolder> =
        latency.seen()?.iter().filter(|holder| holder.value_us < NO_WISH_US).map(row).collect();
    rows.sort_by_key(|row| (row.value_us, row.pid));
    rows.dedup();
    rows.truncate(MOST);
    Ok(rows)
}

fn row(holder: &latency_holder) -> table::LatencyHolder {
    table::LatencyHolder {
        pid: holder.pid,
        tgid: holder.tgid,
        comm: text(&holder.comm),
        value_us: u64::try_from(holder.value_us).unwrap_or(0),
    }
}

/// The loaded iterator.
pub struct DmaLatency<'slot> {
    _skel: skel::DmaLatencySkel<'slot>,
    link: Link,
}

impl<'slot> DmaLatency<'slot> {
    /// Load. The kernel's copy of the program lives in `slot`.
    pub fn start(slot: &'slot mut MaybeUninit<OpenObject>, root: &Path) -> Result<Self, Missing> {
        let number = std::fs::read_to_string(root.join(DEVICE)).ok().and_then(|text| device(&text));
        let Some(number) = number else {
            return Err(Missing::NotInKernel {
                what: WHAT.into(),
                needs: "/dev/cpu_dma_latency (CONFIG_CPU_IDLE)".into(),
            });
        };
        Self::load(slot, number).map_err(|err| missing(WHAT, &err))
    }

    fn load(slot: &'slot mut MaybeUninit<OpenObject>, number: u32) -> libbpf_rs::Result<Self> {
        let mut open = types::builder::<skel::DmaLatencySkelBuilder>().open(slot)?;
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            rodata.device = number;
        }
        let skel = open.load()?;
        let link = skel.progs.holders.attach()?;
        Ok(DmaLatency { _skel: skel, link })
    }

    fn seen(&self) -> Result<Vec<latency_holder>, Missing> {
        let bytes = walk_within(WHAT, &self.link, DEADLINE)?;
        Ok(bytes.chunks_exact(size_of::<latency_holder>()).map(value).collect())
    }
}

/// "10:259" as the kernel numbers it (MINORBITS is 20).
fn device(text: &str) -> Option<u32> {
    let (major, minor) = text.trim().split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_of_devices_are_the_kernels() {
        assert_eq!(device("10:259\n"), Some(10 << 20 | 259));
        for torn in ["", "10", "10:", "10:x", "4096:1", "1:1048576"] {
            assert_eq!(device(torn), None, "{torn}");
        }
    }

    /// A request of half an hour keeps no CPU from any idle state.
    #[test]
    fn root_a_holder_is_reported_with_its_wish_and_one_without_a_wish_is_not() {
        let mine = || {
            let rows = holders(&mut Slot::uninit(), Path::new("/")).expect("root may look");
            rows.into_iter().filter(|row| row.tgid == std::process::id()).collect::<Vec<_>>()
        };
        let Ok(mut file) = OpenOptions::new().write(true).open("/dev/cpu_dma_latency") else {
            return; // a kernel without idle states
        };
        assert_eq!(mine(), []);
        let wish = 1_800_000_000 + i32::try_from(std::process::id() % 1000).unwrap();
        file.write_all(&wish.to_ne_bytes()).unwrap();
        assert_eq!(mine().iter().map(|row| row.value_us).collect::<Vec<_>>(), [wish as u64]);
        drop(file);
        assert_eq!(mine(), []);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            device(&text);
        }
    }
}
