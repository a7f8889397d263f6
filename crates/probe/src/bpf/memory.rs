//! What did memory cost the tasks that needed it: reclaim, refaults, swap-in, pauses of writers? The kernel
//! half is `memory.bpf.c`.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::path::Path;

use libbpf_rs::btf::types::{FuncProto, Ptr, Typedef};
use libbpf_rs::btf::{Btf, ReferencesType as _};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, OpenObject};
use whyslow_model::{Missing, table};

use super::constants::memory_c::{DROPPED, LIMIT, STRIDE};
use super::{clear, map_sizes, missing, types, value, walk};
use crate::probes::{Ending, Entry, LoadOrder, Probe};

skeleton!("memory");
use skel::types::{memory_inside, memory_key, memory_row};

// SAFETY: generated from the C struct; integers only, without padding.
unsafe impl plain::Plain for memory_key {}
// SAFETY: as above.
unsafe impl plain::Plain for memory_row {}
// SAFETY: as above.
unsafe impl plain::Plain for memory_inside {}

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::MemoryEvents.word();

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    capability: "BPF: memory",
    lost: "reclaim, refaults, swap-in and writers that are paused",
    load: LoadOrder::BesideScheduler,
    follows: false,
    shed: &[],
    of_waits: true,
    start: |slot, start| Ok(Some(Box::new(Memory::start(slot, start.kernel.types().pause_arguments)?))),
};

/// The running probe. Dropping it detaches it from the kernel.
pub struct Memory<'slot> {
    skel: skel::MemorySkel<'slot>,
    clocks: Link,
}

impl<'slot> Memory<'slot> {
    /// Load and attach: the window begins.
    /// `pauses` is what `pause_arguments` found.
    pub fn start(slot: &'slot mut MaybeUninit<OpenObject>, pauses: Option<usize>) -> Result<Self, Missing> {
        let swap = has_swap(Path::new("/"));
        let probe = Self::load(slot, pauses, swap).map_err(|err| missing(WHAT, &err))?;
        walk(WHAT, &probe.clocks)?;
        Ok(probe)
    }

    fn load(
        slot: &'slot mut MaybeUninit<OpenObject>,
        arguments: Option<usize>,
        swap: bool,
    ) -> libbpf_rs::Result<Self> {
        let mut open = types::builder::<skel::MemorySkelBuilder>().open(slot)?;
        map_sizes::apply(open.open_object_mut())?;
        open.progs.paused.set_autoload(arguments == Some(8));
        open.progs.paused_by_parts.set_autoload(arguments == Some(12));
        let mut skel = open.load()?;
        skel.links = skel::MemoryLinks {
            limit_begins: Some(skel.progs.limit_begins.attach()?),
            limit_ends: Some(skel.progs.limit_ends.attach()?),
            global_begins: Some(skel.progs.global_begins.attach()?),
            global_ends: Some(skel.progs.global_ends.attach()?),
            added: Some(skel.progs.added.attach()?),
            deleted: Some(skel.progs.deleted.attach()?),
            paused: (arguments == Some(8)).then(|| skel.progs.paused.attach()).transpose()?,
            paused_by_parts: (arguments == Some(12))
                .then(|| skel.progs.paused_by_parts.attach())
                .transpose()?,
            // Each page fault would pay for it: only where there is swap.
            swapped: swap.then(|| skel.progs.swapped.attach()).transpose()?,
            ..skel.links
        };
        let clocks = skel.progs.clocks.attach()?;
        Ok(Self { skel, clocks })
    }

    /// One row per task that did memory work; a reclaim that still goes on counts up to now.
    pub fn rows(&self) -> Result<Vec<table::Memory>, Missing> {
        walk(WHAT, &self.clocks)?;
        let jiffy_ns = self.jiffy_ns();
        let mut rows = HashMap::new();
        for (key, bytes) in entries(&self.skel.maps.rows) {
            rows.insert(parts(&value(&key)), value::<memory_row>(&bytes));
        }
        let now = self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.last_ns);
        for (_, bytes) in entries(&self.skel.maps.inside) {
            let inside: memory_inside = value(&bytes);
            let row = rows.entry(parts(&inside.key)).or_default();
            count_open(row, inside.kind, now.saturating_sub(inside.since));
        }
        let mut rows: Vec<_> = rows.iter().map(|(key, row)| named(*key, row, jiffy_ns)).collect();
        rows.sort_by_key(|row| (row.pid, row.cgroup));
        Ok(rows)
    }

    /// How long the kernel's tick is, from two readings of both clocks; 0 if no tick passed between them.
    fn jiffy_ns(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| {
            let ticks = bss.last_jiffies.saturating_sub(bss.first_jiffies);
            bss.last_ns.saturating_sub(bss.first_ns).checked_div(ticks).unwrap_or(0)
        })
    }

    /// Tasks that the kernel half saw but could not note.
    pub fn lost(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost)
    }
}

impl Probe for Memory<'_> {
    /// Sums start anew; reclaims that go on stay known.
    fn begin(&mut self) -> Result<(), Missing> {
        clear(&self.skel.maps.rows);
        Ok(())
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        ending.lost(WHAT, self.lost());
        ending.tables.memory = Some(self.rows()?);
        Ok(())
    }
}

/// (pid, tgid, cgroup).
type Key = (u32, u32, u64);

fn parts(key: &memory_key) -> Key {
    (key.pid, key.tgid, key.cgroup)
}

/// How many arguments this kernel's pauses of writers are reported with. Reads all of BTF: 25 ms, to be called in good time.
#[must_use]
pub fn pause_arguments(btf: &Btf<'_>) -> Option<usize> {
    arguments_of(btf, "balance_dirty_pages")
}

/// How many arguments this kernel's tracepoint has; `None` if it has no such tracepoint.
fn arguments_of(btf: &Btf<'_>, tracepoint: &str) -> Option<usize> {
    let hook: Typedef<'_> = btf.type_by_name(&format!("btf_trace_{tracepoint}"))?;
    let pointer = Ptr::try_from(hook.referenced_type()).ok()?;
    let proto = FuncProto::try_from(pointer.referenced_type()).ok()?;
    proto.len().checked_sub(1) // the first is the tracepoint's own data
}

/// All entries of a map. An entry that left since its key was listed is not an error.
fn entries(map: &libbpf_rs::MapMut<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let found = |key: Vec<u8>| map.lookup(&key, MapFlags::ANY).ok().flatten().map(|bytes| (key, bytes));
    map.keys().filter_map(found).collect()
}

fn count_open(row: &mut memory_row, kind: u64, ns: u64) {
    let (sum, count, worst) = if kind == u64::from(LIMIT) {
        (&mut row.limit_ns, &mut row.limit_count, &mut row.limit_worst_ns)
    } else {
        (&mut row.global_ns, &mut row.global_count, &mut row.global_worst_ns)
    };
    *sum = sum.saturating_add(ns);
    *count = count.saturating_add(1);
    *worst = ns.max(*worst);
}

fn named((pid, tgid, cgroup): Key, row: &memory_row, jiffy_ns: u64) -> table::Memory {
    table::Memory {
        pid,
        tgid,
        cgroup,
        limit_reclaim_ns: row.limit_ns,
        limit_reclaims: row.limit_count,
        limit_reclaim_worst_ns: row.limit_worst_ns,
        direct_reclaim_ns: row.global_ns,
        direct_reclaims: row.global_count,
        direct_reclaim_worst_ns: row.global_worst_ns,
        pages_added: row.added,
        pages_refaulted: row.refaulted,
        pages_unknown: if came_back(row) { row.added_before } else { row.added },
        pages_taken_at_limit: row.taken_at_limit,
        pages_taken_by_reclaim: row.taken_by_reclaim,
        pages_dropped: row.dropped,
        taken_by: row.taker,
        taker_session: row.taker_session,
        taker_drops: row.votes > 0 && row.taker_how == DROPPED,
        taken_at_least: row.votes.saturating_mul(STRIDE.into()),
        swapped_in: row.swapped_in,
        dirty_pause_ns: row.pause_jiffies.saturating_mul(jiffy_ns),
    }
}

/// Whether some page was seen to be evicted or dropped, and to come back.
fn came_back(row: &memory_row) -> bool {
    [row.refaulted, row.taken_at_limit, row.taken_by_reclaim, row.dropped].iter().any(|pages| *pages > 0)
}

/// Whether there is swap: a line below the heading of /proc/swaps.
fn has_swap(root: &Path) -> bool {
    std::fs::read_to_string(root.join("proc/swaps")).is_ok_and(|text| text.lines().count() > 1)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::test_group::{Group, Victim, scratch};

    const MIB: u64 = 1 << 20;
    const PAGES_A_MIB: u64 = 256;

    /// A cgroup with a limit of so many MiB.
    fn limited(mib: u64) -> Option<Group> {
        let group = Group::new("memory")?;
        group.set("memory.limit_in_bytes", &(mib * MIB).to_string());
        Some(group)
    }

    fn file_on_disk(dir: &Path, mib: usize) -> PathBuf {
        let file = dir.join("data");
        fs::write(&file, vec![7; mib << 20]).unwrap();
        fs::File::open(&file).unwrap().sync_all().unwrap();
        drop_pages(&file);
        file
    }

    /// All rows of a group as one.
    fn of_group(rows: &[table::Memory], group: &Group) -> table::Memory {
        rows.iter().filter(|row| row.cgroup == group.key()).fold(table::Memory::default(), |mut sum, row| {
            sum.limit_reclaim_ns += row.limit_reclaim_ns;
            sum.limit_reclaims += row.limit_reclaims;
            sum.pages_added += row.pages_added;
            sum.pages_refaulted += row.pages_refaulted;
            sum.pages_unknown += row.pages_unknown;
            sum.pages_dropped += row.pages_dropped;
            sum.taken_at_least += row.taken_at_least;
            if row.taker_drops {
                (sum.taken_by, sum.taker_session) = (row.taken_by, row.taker_session);
            }
            sum.swapped_in += row.swapped_in;
            sum
        })
    }

    fn ended_well(mut victim: Victim) {
        assert!(victim.0.wait().unwrap().success());
    }

    #[test]
    fn root_pages_read_again_after_the_limit_evicted_them_are_refaults() {
        let Some(group) = limited(48) else { return };
        let dir = scratch();
        let file = file_on_disk(dir.path(), 160);
        let mut slot = MaybeUninit::uninit();
        let probe = Memory::start(&mut slot, pause_arguments(&Btf::from_vmlinux().unwrap())).unwrap();
        ended_well(group.run("for i in 1 2 3; do cat \"$1\" > /dev/null || exit 1; done", &[&file]));
        let seen = of_group(&probe.rows().unwrap(), &group);
        // The kernel's own count; it grows, too, where readahead runs into the limit.
        let kernel = group.statistic("memory.stat", "workingset_refault_file ");
        assert!(kernel > 160 * PAGES_A_MIB, "{kernel} refaults are not a fault");
        let ratio = seen.pages_refaulted as f64 / kernel as f64;
        assert!((0.75..1.25).contains(&ratio), "{kernel} refaults by the kernel's count: {seen:?}");
        assert!(seen.pages_added >= seen.pages_refaulted + seen.pages_unknown, "{seen:?}");
        assert!(seen.limit_reclaims > 10 && seen.limit_reclaim_ns > 0, "{seen:?}");
        assert_eq!(probe.lost(), 0);
    }

    #[test]
    fn root_a_file_streamed_once_through_a_limit_has_no_refaults() {
        // Wide enough for the readahead of any disk: a limit below that makes even a stream read twice.
        let Some(group) = limited(96) else { return };
        let dir = scratch();
        let file = file_on_disk(dir.path(), 256);
        let mut slot = MaybeUninit::uninit();
        let probe = Memory::start(&mut slot, pause_arguments(&Btf::from_vmlinux().unwrap())).unwrap();
        ended_well(group.run("exec cat \"$1\" > /dev/null", &[&file]));
        let seen = of_group(&probe.rows().unwrap(), &group);
        let streamed = 256 * PAGES_A_MIB;
        assert!(seen.pages_added > streamed * 9 / 10 && seen.pages_added < streamed * 11 / 10, "{seen:?}");
        assert!(seen.limit_reclaims > 10, "the limit was not met: {seen:?}");
        assert!(seen.pages_refaulted < seen.pages_added / 50, "{seen:?}");
        assert_eq!(probe.lost(), 0);
    }

    #[test]
    fn root_a_file_dropped_by_advice_and_read_again_has_no_refaults() {
        let Some(group) = limited(64) else { return };
        let dir = scratch();
        let mut slot = MaybeUninit::uninit();
        let probe = Memory::start(&mut slot, pause_arguments(&Btf::from_vmlinux().unwrap())).unwrap();
        for _ in 0..2 {
            let file = file_on_disk(dir.path(), 16);
            ended_well(group.run("exec cat \"$1\" > /dev/null", &[&file]));
        }
        let seen = of_group(&probe.rows().unwrap(), &group);
        assert!(seen.pages_added > 12 * PAGES_A_MIB, "{seen:?}");
        assert_eq!((seen.pages_refaulted, probe.lost()), (0, 0));
    }

    /// Tells the kernel to drop the cached pages of a file.
    fn drop_pages(file: &Path) {
        let open = fs::File::open(file).unwrap();
        // SAFETY: the descriptor is open; the advice concerns the page cache of this file only.
        let refused = unsafe {
            libc::posix_fadvise(std::os::fd::AsRawFd::as_raw_fd(&open), 0, 0, libc::POSIX_FADV_DONTNEED)
        };
        assert_eq!(refused, 0);
    }

    #[test]
    fn root_pages_that_another_session_dropped_are_told_with_who_did() {
        let Some(group) = limited(64) else { return };
        let dir = scratch();
        let file = file_on_disk(dir.path(), 16);
        let mut slot = MaybeUninit::uninit();
        let probe = Memory::start(&mut slot, pause_arguments(&Btf::from_vmlinux().unwrap())).unwrap();
        const DROPS: &str = "for i in 1 2; do cat \"$1\" > /dev/null && \
            setsid -w dd of=\"$1\" oflag=nocache conv=notrunc count=0 2> /dev/null || exit 1; done; exec cat \"$1\" > /dev/null";
        ended_well(group.run(DROPS, &[&file]));
        let seen = of_group(&probe.rows().unwrap(), &group);
        let twice = 2 * 16 * PAGES_A_MIB;
        assert!(seen.pages_dropped > twice * 8 / 10 && seen.pages_dropped < twice * 12 / 10, "{seen:?}");
        assert!(seen.taken_by != 0 && seen.taken_by != std::process::id(), "{seen:?}");
        assert_eq!(seen.taker_session, seen.taken_by, "each has a session of its own");
        assert!(seen.taken_at_least >= seen.pages_dropped / 2, "{seen:?}");
        assert_eq!((seen.pages_refaulted, probe.lost()), (0, 0));
    }

    #[test]
    fn root_pages_that_a_session_drops_itself_are_not_counted_as_taken() {
        let Some(group) = limited(64) else { return };
        let dir = scratch();
        let file = file_on_disk(dir.path(), 16);
        let mut slot = MaybeUninit::uninit();
        let probe = Memory::start(&mut slot, pause_arguments(&Btf::from_vmlinux().unwrap())).unwrap();
        for _ in 0..3 {
            ended_well(group.run("exec cat \"$1\" > /dev/null", &[&file]));
            drop_pages(&file); // we are in its session
        }
        let seen = of_group(&probe.rows().unwrap(), &group);
        assert!(seen.pages_added > 2 * 16 * PAGES_A_MIB, "{seen:?}");
        assert_eq!((seen.pages_dropped, seen.taken_at_least), (0, 0), "{seen:?}");
    }

    /// A file that another session truncates and extends again has new pages: no session took the old ones.
    #[test]
    fn root_pages_of_a_file_that_is_cut_were_dropped_by_nobody() {
        let Some(group) = limited(64) else { return };
        let dir = scratch();
        let file = file_on_disk(dir.path(), 16);
        let mut slot = MaybeUninit::uninit();
        let probe = Memory::start(&mut slot, pause_arguments(&Btf::from_vmlinux().unwrap())).unwrap();
        const CUTS: &str = "for i in 1 2; do cat \"$1\" > /dev/null && \
            setsid -w sh -c 'truncate -s 0 \"$1\"; truncate -s 16M \"$1\"' sh \"$1\" || exit 1; done; exec cat \"$1\" > /dev/null";
        ended_well(group.run(CUTS, &[&file]));
        let seen = of_group(&probe.rows().unwrap(), &group);
        assert!(seen.pages_added > 2 * 16 * PAGES_A_MIB, "{seen:?}");
        assert_eq!((seen.pages_dropped, seen.taken_at_least), (0, 0), "{seen:?}");
    }

    /// A consumer that reads what a producer has written, later than the cache keeps it, reads each page once.
    #[test]
    fn root_pages_that_another_session_had_are_not_taken_from_who_reads_them_first() {
        let Some(group) = limited(64) else { return };
        let dir = scratch();
        let mut slot = MaybeUninit::uninit();
        let probe = Memory::start(&mut slot, pause_arguments(&Btf::from_vmlinux().unwrap())).unwrap();
        let file = file_on_disk(dir.path(), 16);
        ended_well(group.run("exec setsid -w cat \"$1\" > /dev/null", &[&file]));
        let seen = of_group(&probe.rows().unwrap(), &group);
        assert!(seen.pages_added > 14 * PAGES_A_MIB && seen.pages_dropped == 0, "{seen:?}");
    }

    /// A swap file of the test's own, off again with it.
    struct Swap(std::ffi::CString);

    impl Swap {
        fn on(dir: &Path, mib: usize) -> Self {
            let file = dir.join("swap");
            fs::write(&file, vec![0; mib << 20]).unwrap();
            fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            let made = std::process::Command::new("mkswap").arg(&file).output().unwrap();
            assert!(made.status.success(), "{made:?}");
            let name = std::ffi::CString::new(file.to_str().unwrap()).unwrap();
            // SAFETY: a C string.
            assert_eq!(unsafe { libc::swapon(name.as_ptr(), 0) }, 0, "{}", std::io::Error::last_os_error());
            Swap(name)
        }
    }

    impl Drop for Swap {
        fn drop(&mut self) {
            // SAFETY: a C string.
            unsafe { libc::swapoff(self.0.as_ptr()) };
        }
    }

    /// A child in the group that writes to each of `pages` new pages, `passes` times over; waits for its end.
    fn touch_in(group: &Group, pages: usize, passes: usize) {
        let procs = std::ffi::CString::new(group.file("cgroup.procs").to_str().unwrap()).unwrap();
        // SAFETY: the child of a process with threads makes system calls and writes to its own mapping, no more.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: as above; the mapping is checked, and written within its length.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::alarm(60);
                let entered =
                    libc::write(libc::open(procs.as_ptr(), libc::O_WRONLY), c"0".as_ptr().cast(), 1);
                let (prot, flags) =
                    (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
                let map = libc::mmap(std::ptr::null_mut(), pages * 4096, prot, flags, -1, 0);
                if entered != 1 || map == libc::MAP_FAILED {
                    libc::_exit(1);
                }
                for at in (0..passes).flat_map(|_| 0..pages) {
                    map.cast::<u8>().add(at * 4096).write_volatile(at as u8);
                }
                libc::_exit(0);
            }
        }
        let mut status = -1;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert_eq!(status, 0, "the child failed");
    }

    fn pages_swapped_in_on_this_host() -> u64 {
        let vmstat = fs::read_to_string("/proc/vmstat").unwrap();
        vmstat.lines().find_map(|line| line.strip_prefix("pswpin ")).unwrap().parse().unwrap()
    }

    #[test]
    fn root_pages_swapped_in_are_counted_and_pages_only_swapped_out_are_not() {
        let Some(group) = limited(32) else { return };
        let dir = scratch();
        let _swap = Swap::on(dir.path(), 128);
        let mut slot = MaybeUninit::uninit();
        let probe = Memory::start(&mut slot, pause_arguments(&Btf::from_vmlinux().unwrap())).unwrap();
        touch_in(&group, 16384, 1);
        let cold = of_group(&probe.rows().unwrap(), &group);
        assert!(cold.limit_reclaims > 0 && cold.swapped_in < 1000, "{cold:?}");
        let before = pages_swapped_in_on_this_host();
        touch_in(&group, 16384, 3);
        let (kernel, seen) =
            (pages_swapped_in_on_this_host() - before, of_group(&probe.rows().unwrap(), &group));
        let ratio = (seen.swapped_in - cold.swapped_in) as f64 / kernel as f64;
        assert!(
            kernel > 10_000 && (0.7..1.3).contains(&ratio),
            "{kernel} pages by the kernel's count: {seen:?}"
        );
        assert_eq!(probe.lost(), 0);
    }

    #[test]
    fn swap_is_there_if_a_line_says_so() {
        let root = scratch();
        fs::create_dir(root.path().join("proc")).unwrap();
        let swaps = root.path().join("proc/swaps");
        assert!(!has_swap(root.path()));
        fs::write(&swaps, "Filename\tType\tSize\tUsed\tPriority\n").unwrap();
        assert!(!has_swap(root.path()));
        fs::write(&swaps, "Filename\tType\tSize\tUsed\tPriority\n/dev/zram0\tpartition\t131068\t0\t-2\n")
            .unwrap();
        assert!(has_swap(root.path()));
    }
}
