//! How long does block I/O take, by device and cgroup: held back by a throttle, queued, at the device? The kernel
//! half is `blkio.bpf.c`.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::path::Path;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, OpenObject};
use whyslow_model::{Missing, table};

use super::shared::{Shared, homes};
use super::{clear, missing, room, value, walk};
use crate::host;
use crate::kallsyms::Kallsyms;
use crate::probes::{Ending, Entry, LoadOrder, Probe};

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
}

impl<'slot> Blkio<'slot> {
    /// Load and attach: the window begins.
    ///
    /// `shared`: the maps of the sched object. Without it nobody is seen to sleep, and no time as held.
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
        room::fit(open.open_object_mut())?;
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
            issued: Some(skel.progs.issued.attach()?),
            queued: Some(skel.progs.queued.attach()?),
            ..skel.links
        };
        let finish = skel.progs.finish.attach()?;
        Ok(Self { skel, finish, sees_sleepers: shared.is_some() })
    }

    /// Some device's I/O throttle has been set up since boot, and held time is measured.
    #[must_use]
    pub fn sees_holds(&self) -> bool {
        self.sees_sleepers && self.skel.maps.bss_data.as_ref().is_some_and(|bss| bss.throttled != 0)
    }

    /// One row a (device, cgroup, direction), what is still held or at the device counted up to now.
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

    /// What the kernel half saw and could not note.
    pub fn lost(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost)
    }
}

impl Probe for Blkio<'_> {
    /// Sums start anew, requests at the device and what is held stay known.
    fn begin(&mut self) -> Result<(), Missing> {
        clear(&self.skel.maps.rows);
        Ok(())
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        ending.lost(WHAT, self.lost());
        ending.tables.disk = Some(self.rows()?);
        Ok(())
    }
}

/// (device, direction, cgroup).
type Key = (u32, u32, u64);

fn parts(key: &blkio_key) -> Key {
    (key.dev, key.op, key.cgroup)
}

/// What a map holds. An entry that left since its key was listed is not an error.
fn entries(map: &libbpf_rs::MapMut<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let found = |key: Vec<u8>| map.lookup(&key, MapFlags::ANY).ok().flatten().map(|bytes| (key, bytes));
    map.keys().filter_map(found).collect()
}

fn named((dev, op, cgroup): Key, row: &blkio_row, root: &Path) -> table::Disk {
    let dev = format!("{}:{}", dev >> 20, dev & 0xf_ffff);
    let op = match op {
        0 => "read",
        1 => "write",
        _ => "other",
    };
    table::Disk {
        device: device_name(root, &dev),
        dev,
        cgroup,
        op: op.to_owned(),
        requests: row.requests,
        bytes: row.bytes,
        device_ns: row.device_ns,
        device_worst_ns: row.device_worst_ns,
        queue_ns: row.queue_ns,
        held: row.held,
        held_ns: row.held_ns,
        held_worst_ns: row.held_worst_ns,
    }
}

/// What the kernel calls a device: /sys/dev/block/254:0 is a link to .../block/vda. Its number where it is gone.
fn device_name(root: &Path, dev: &str) -> String {
    let link = std::fs::read_link(root.join("sys/dev/block").join(dev));
    let name = link.ok().and_then(|to| to.file_name().map(|name| name.to_string_lossy().into_owned()));
    name.unwrap_or_else(|| dev.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::bpf::sched::{Budget, Layout, Sched};
    use crate::test_group::{Group, scratch};

    fn running(slot: &mut MaybeUninit<OpenObject>) -> Sched<'_> {
        let mut sched = Sched::load(slot, Layout::default(), Budget::of(1, false)).unwrap();
        sched.begin().unwrap();
        sched
    }

    #[test]
    fn a_device_is_called_as_sysfs_calls_it() {
        let root = scratch();
        fs::create_dir_all(root.path().join("sys/dev/block")).unwrap();
        symlink("../../devices/virtio0/block/vda", root.path().join("sys/dev/block/254:0")).unwrap();
        assert_eq!(device_name(root.path(), "254:0"), "vda");
        assert_eq!(device_name(root.path(), "8:16"), "8:16");
    }

    /// A file of its own on disk, and the number of the whole disk it is on.
    fn file_on_disk(dir: &Path, mib: usize) -> (PathBuf, String) {
        let file = dir.join("data");
        fs::write(&file, vec![7; mib << 20]).unwrap();
        fs::File::open(&file).unwrap().sync_all().unwrap();
        let dev = fs::metadata(&file).unwrap().dev();
        let number = format!("{}:{}", libc::major(dev), libc::minor(dev));
        let sys = fs::canonicalize(Path::new("/sys/dev/block").join(&number)).unwrap();
        let disk = if sys.join("partition").exists() { sys.parent().unwrap().to_owned() } else { sys };
        (file, fs::read_to_string(disk.join("dev")).unwrap().trim().to_owned())
    }

    fn of_group(rows: Vec<table::Disk>, group: &Group, op: &str) -> table::Disk {
        let mut own = rows.into_iter().filter(|row| row.cgroup == group.key() && row.op == op);
        own.next().unwrap_or_default()
    }

    /// Direct reads of 256 KiB, so many; the time they took by the test's clock.
    fn read_directly(group: &Group, file: &Path, count: u32) -> Duration {
        let began = Instant::now();
        let script = format!("exec dd if=\"$1\" of=/dev/null bs=256K iflag=direct count={count}");
        let mut dd = group.run(&script, &[file]);
        assert!(dd.0.wait().unwrap().success());
        began.elapsed()
    }

    #[test]
    fn root_a_throttled_reader_is_held_for_as_long_as_it_is_blocked() {
        let Some(group) = Group::new("blkio") else { return };
        let dir = scratch();
        let (file, dev) = file_on_disk(dir.path(), 2);
        group.set("blkio.throttle.read_bps_device", &format!("{dev} {}", 1 << 20));
        let (mut slot, mut sched) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let sched = running(&mut sched);
        let probe = Blkio::start(&mut slot, &Kallsyms::read(), Some(sched.shared())).unwrap();
        assert!(probe.sees_holds());
        let took = read_directly(&group, &file, 8);
        let seen = of_group(probe.rows().unwrap(), &group, "read");
        let held = Duration::from_nanos(seen.held_ns);
        assert!(took > Duration::from_millis(1500), "2 MiB at 1 MiB/s took {took:?}");
        assert!(held > took * 3 / 4 && held <= took, "held {held:?} of {took:?}: {seen:?}");
        assert!(seen.held >= 7 && seen.requests >= 8 && seen.bytes >= 2 << 20, "{seen:?}");
        assert_eq!((seen.dev, probe.lost()), (dev, 0));
    }

    #[test]
    fn root_a_reader_still_held_is_counted_up_to_now() {
        let Some(group) = Group::new("blkio") else { return };
        let dir = scratch();
        let (file, dev) = file_on_disk(dir.path(), 1);
        group.set("blkio.throttle.read_bps_device", &format!("{dev} {}", 16 << 10));
        let (mut slot, mut sched) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let sched = running(&mut sched);
        let probe = Blkio::start(&mut slot, &Kallsyms::read(), Some(sched.shared())).unwrap();
        let _dd = group.run("exec dd if=\"$1\" of=/dev/null bs=256K iflag=direct count=1", &[&file]);
        let began = Instant::now();
        let held = |rows| of_group(rows, &group, "read").held_ns;
        while held(probe.rows().unwrap()) < 200_000_000 {
            assert!(began.elapsed() < Duration::from_secs(20), "the reader is not seen to be held");
        }
        assert!(
            Duration::from_nanos(held(probe.rows().unwrap())) <= began.elapsed() + Duration::from_millis(50)
        );
        group.set("blkio.throttle.read_bps_device", &format!("{dev} 0")); // let it go, or it cannot die
    }

    #[test]
    fn root_a_reader_without_a_limit_is_not_held() {
        let Some(group) = Group::new("blkio") else { return };
        let dir = scratch();
        let (file, _) = file_on_disk(dir.path(), 2);
        let (mut slot, mut sched) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let sched = running(&mut sched);
        let probe = Blkio::start(&mut slot, &Kallsyms::read(), Some(sched.shared())).unwrap();
        let took = read_directly(&group, &file, 8);
        let seen = of_group(probe.rows().unwrap(), &group, "read");
        assert_eq!((seen.held, seen.held_ns, probe.lost()), (0, 0, 0));
        assert!(seen.bytes >= 2 << 20, "{seen:?}");
        assert!(
            seen.device_ns > 0 && Duration::from_nanos(seen.device_worst_ns) < took,
            "{seen:?} in {took:?}"
        );
    }
}
