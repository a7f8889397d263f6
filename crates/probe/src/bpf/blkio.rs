//! How long does block I/O take, by device and cgroup: held back by a throttle, queued, at the device? The kernel
//! half is `blkio.bpf.c`.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, OpenObject};
use whyslow_model::{Missing, MissingNote, table};

use super::shared::{Shared, homes};
use super::{clear, map_sizes, missing, value, walk};
use crate::host;
use crate::kallsyms::Kallsyms;
use crate::probes::{Ending, Entry, LoadOrder, Probe};

#[cfg(test)]
mod alone_tests;
mod files;
#[cfg(test)]
mod files_tests;
mod taken;
#[cfg(test)]
mod tests;

skeleton!("blkio");
use skel::types::{blkio_flight, blkio_key, blkio_row};

// SAFETY: generated from the C struct; integers only, without padding.
unsafe impl plain::Plain for blkio_key {}
// SAFETY: as above.
unsafe impl plain::Plain for blkio_row {}
// SAFETY: as above.
unsafe impl plain::Plain for blkio_flight {}

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::BlockIo.word();

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    capability: "BPF: block I/O",
    lost: "latency by disk and cgroup, and I/O throttling",
    load: LoadOrder::AfterScheduler,
    follows: false,
    shed: &[],
    of_waits: true,
    start: |slot, start| Ok(Some(Box::new(Blkio::start(slot, start.kernel.symbols(), start.shared)?))),
};

/// The running probe. Dropping it detaches it from the kernel.
pub struct Blkio<'slot> {
    skel: skel::BlkioSkel<'slot>,
    finish: Link,
    sees_sleepers: bool,
    taken: taken::Taken,
}

impl<'slot> Blkio<'slot> {
    /// Load and attach: the window begins.
    ///
    /// `shared`: the maps of the sched object. Without it no task is seen to sleep, and no time counts as held.
    pub fn start(
        slot: &'slot mut MaybeUninit<OpenObject>,
        symbols: &Kallsyms,
        shared: Option<Shared<'_>>,
    ) -> Result<Self, Missing> {
        let probe = Self::load(slot, symbols, shared).map_err(|err| missing(WHAT, &err))?;
        let seed = probe.skel.progs.seed.attach().map_err(|err| missing(WHAT, &err))?;
        walk(WHAT, &seed)?;
        Ok(probe)
    }

    fn load(
        slot: &'slot mut MaybeUninit<OpenObject>,
        symbols: &Kallsyms,
        shared: Option<Shared<'_>>,
    ) -> libbpf_rs::Result<Self> {
        let mut open = skel::BlkioSkelBuilder::default().open(slot)?;
        map_sizes::apply(open.open_object_mut())?;
        if let Some(shared) = shared {
            open.maps.helds.set_max_entries(shared.places)?;
            shared.lend(open.open_object_mut())?;
        }
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            rodata.homes = homes();
            rodata.throttle_worker = symbols.address("blk_throtl_dispatch_work_fn").unwrap_or(0);
        }
        let mut skel = open.load()?;
        skel.links = skel::BlkioLinks {
            completed: Some(skel.progs.completed.attach()?),
            parted: Some(skel.progs.parted.attach()?),
            issued: Some(skel.progs.issued.attach()?),
            queued: Some(skel.progs.queued.attach()?),
            ..skel.links
        };
        let finish = skel.progs.finish.attach()?;
        Ok(Self { skel, finish, sees_sleepers: shared.is_some(), taken: taken::Taken::default() })
    }

    /// Some device's I/O throttle has been set up since boot, and held time is measured.
    #[must_use]
    pub fn sees_holds(&self) -> bool {
        self.sees_sleepers && self.skel.maps.bss_data.as_ref().is_some_and(|bss| bss.throttled != 0)
    }

    /// One row per (device, cgroup, direction); time that is still held or at the device counts up to now.
    pub fn rows(&self) -> Result<Vec<table::Disk>, Missing> {
        if self.sees_holds() {
            walk(WHAT, &self.finish)?;
        }
        let now = host::monotonic_ns();
        let mut rows = HashMap::new();
        for (key, bytes) in entries(&self.skel.maps.rows) {
            rows.insert(parts(&value(&key)), value::<blkio_row>(&bytes));
        }
        for (_, bytes) in entries(&self.skel.maps.flights) {
            let flight: blkio_flight = value(&bytes);
            let open = now.saturating_sub(flight.issued);
            if let Some(row) = rows.get_mut(&parts(&flight.key)) {
                row.device_ns = row.device_ns.saturating_add(open);
                row.device_worst_ns = row.device_worst_ns.max(open);
            }
        }
        let mut rows: Vec<_> = rows.iter().map(|(key, row)| named(*key, row, Path::new("/"))).collect();
        rows.sort_by(|a, b| (&a.dev, a.cgroup, &a.op).cmp(&(&b.dev, b.cgroup, &b.op)));
        Ok(rows)
    }

    /// One row per (process, device, direction, file).
    #[must_use]
    pub fn files(&self) -> Vec<table::IoFile> {
        let maps = &self.skel.maps;
        let (rows, files, flights) = (&maps.file_rows, &maps.block_files, &maps.flights);
        let seen = files::Seen {
            rows: entries(rows),
            flights: entries(flights),
            files: entries(files),
            now: host::monotonic_ns(),
        };
        files::rows(&seen, &self.taken, Path::new("/"))
    }

    /// Requests about files for which there was no room.
    fn nameless(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.files_lost)
    }

    /// Requests that the kernel half saw but could not note.
    pub fn lost(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost)
    }
}

/// The requests are counted all the same.
fn nameless_note(requests: u64) -> Option<MissingNote> {
    let reason = format!("of {requests} requests: there was no room for more files");
    (requests > 0).then(|| Missing::skipped("files of block I/O", reason).into())
}

impl Probe for Blkio<'_> {
    /// Sums start anew; requests at the device and held sleeps stay known.
    fn begin(&mut self) -> Result<(), Missing> {
        clear(&self.skel.maps.rows);
        clear(&self.skel.maps.file_rows);
        self.taken.begin();
        Ok(())
    }

    fn poll(&mut self, _at: Duration) -> bool {
        let maps = &self.skel.maps;
        let told = maps.bss_data.as_ref().map_or(0, |bss| bss.files_told);
        self.taken.take(told, &maps.file_rows, &maps.block_files);
        false
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        ending.lost(WHAT, self.lost());
        ending.missing.extend(nameless_note(self.nameless()));
        ending.tables.disk = Some(self.rows()?);
        ending.tables.io_files = Some(self.files());
        Ok(())
    }
}

/// (device, direction, cgroup).
type Key = (u32, u32, u64);

fn parts(key: &blkio_key) -> Key {
    (key.dev, key.op, key.cgroup)
}

/// All entries of a map. An entry that left since its key was listed is not an error.
fn entries(map: &libbpf_rs::MapMut<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let found = |key: Vec<u8>| map.lookup(&key, MapFlags::ANY).ok().flatten().map(|bytes| (key, bytes));
    map.keys().filter_map(found).collect()
}

fn number(dev: u32) -> String {
    format!("{}:{}", dev >> 20, dev & 0xf_ffff)
}

fn op_word(op: u32) -> &'static str {
    match op {
        0 => "read",
        1 => "write",
        _ => "other",
    }
}

fn named((dev, op, cgroup): Key, row: &blkio_row, root: &Path) -> table::Disk {
    let dev = number(dev);
    table::Disk {
        device: device_name(root, &dev),
        dev,
        cgroup,
        op: op_word(op).to_owned(),
        requests: row.requests,
        bytes: row.bytes,
        device_ns: row.device_ns,
        device_worst_ns: row.device_worst_ns,
        queue_ns: row.queue_ns,
        held: row.held,
        held_ns: row.held_ns,
        held_worst_ns: row.held_worst_ns,
        alone: row.alone,
        alone_bytes: row.alone_bytes,
        alone_ns: row.alone_ns,
    }
}

/// The kernel's name of a device: /sys/dev/block/254:0 is a link to .../block/vda. Its number where it is gone.
fn device_name(root: &Path, dev: &str) -> String {
    let link = std::fs::read_link(root.join("sys/dev/block").join(dev));
    let name = link.ok().and_then(|to| to.file_name().map(|name| name.to_string_lossy().into_owned()));
    name.unwrap_or_else(|| dev.to_owned())
}
