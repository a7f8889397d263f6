//! Which tasks wrote, and how much: by waits and CPU time of writers, by bytes that tasks wrote, by requests of cgroups.

use std::collections::BTreeMap;

use whyslow_model::SubjectKind;
use whyslow_model::chain::Chain;
use whyslow_model::table::Disk;
use whyslow_model::timeline::{Context, Span};
use whyslow_model::wait::Reason;

use super::{OTHERS, SelfInflicted, Writer, any};
use crate::graph::HostChain;
use crate::hashing::Set;
use crate::stacks::symbol;
use crate::wait_reasons::{self, Stacks};

/// Waits of tasks that write to a file system or a disk.
const WRITING: &[Reason] = &[
    Reason::Journal,
    Reason::Writeback,
    Reason::BlockIo,
    Reason::Wbt,
    Reason::DirtyThrottling,
    Reason::IoThrottle,
];
/// Waits of tasks that have dirtied pages which must be written now.
const DATA: &[Reason] = &[Reason::Writeback, Reason::Wbt, Reason::DirtyThrottling];
/// ... and waits for them at the disk: mm/filemap.c, mm/page-writeback.c.
const PAGES: &[&str] = &["folio_wait_writeback", "wait_on_page_writeback", "__filemap_fdatawait_range"];
/// A task that waits in these functions waits for pages that were dirty, and not for a journal: fs/fs-writeback.c.
const SYNCS: &[&str] = &[
    "wb_wait_for_completion",
    "wait_sb_inodes",
    "inode_wait_for_writeback",
    "__inode_wait_for_writeback",
    "writeback_inodes_sb",
];
/// CPU time in these functions dirties pages or a journal; the list holds prefixes of names: the file systems with a journal, and
/// the functions that call them. fs/ext4, fs/xfs, fs/btrfs, fs/f2fs, fs/jbd2, mm/filemap.c.
const DIRTIES: &[&str] = &[
    "ext4_buffered_write",
    "ext4_da_write",
    "ext4_write_begin",
    "ext4_file_write",
    "ext4_dio_write",
    "ext4_create",
    "ext4_mkdir",
    "ext4_unlink",
    "ext4_rename",
    "ext4_truncate",
    "ext4_fallocate",
    "ext4_evict_inode",
    "jbd2__journal_start",
    "jbd2_journal_get_write_access",
    "xfs_file_buffered_write",
    "xfs_file_write",
    "xfs_trans_commit",
    "btrfs_buffered_write",
    "btrfs_file_write",
    "btrfs_create",
    "f2fs_file_write",
    "blkdev_write_iter",
];

/// What the waits and samples of a recording show about writing.
#[derive(Default)]
pub(super) struct Wrote {
    /// Ns of waiting and CPU time by process, and within it by the device or journal that it was for; "" where that is not known.
    time: BTreeMap<u32, BTreeMap<String, u64>>,
    /// Processes that waited for data of files to be written.
    waited: Set<u32>,
}

/// Bytes that tasks wrote.
#[derive(Default)]
pub(super) struct Bytes {
    /// By process.
    known: BTreeMap<u32, u64>,
    /// Processes with a thread whose bytes are not known.
    unknown: Set<u32>,
}

impl SelfInflicted<'_, '_> {
    /// Whether a wait was for data alone. Metadata is written through the journal, and no task's bytes count it: a wait for the journal, at
    /// any hop, is not for data.
    pub(super) fn is_for_data(&self, reported: &HostChain<'_>) -> bool {
        let is_sync = |frame: &String| SYNCS.contains(&symbol(frame));
        let mut reasons = reported.chain.hops.iter().map(|hop| hop.reason);
        reasons.next() == Some(Reason::Writeback)
            && reasons.all(|reason| reason != Reason::Journal)
            && self.ev.stacks().kernel(reported.head.stack).iter().any(is_sync)
    }

    /// What each task wrote: computed on demand, at most once.
    fn wrote(&self) -> &Wrote {
        self.wrote.get_or_init(|| {
            let mut wrote = Wrote::default();
            self.waits(&mut wrote);
            self.samples(&mut wrote);
            wrote
        })
    }

    fn add(&self, wrote: &mut Wrote, pid: u32, place: &str, ns: u64) {
        let tgid = self.tgid(pid);
        if ns == 0 || pid == 0 || self.is_kernels(pid) || self.ev.is_own(pid, tgid) {
            return;
        }
        let sum = wrote.time.entry(tgid).or_default().entry(place.to_owned()).or_default();
        *sum = sum.saturating_add(ns);
    }

    fn waits(&self, wrote: &mut Wrote) {
        let stacks = self.ev.stacks();
        for span in self.tables().spans.iter().flatten() {
            let ns = span.woken_ns.saturating_sub(span.at_ns).max(span.sampled_wait_ns);
            let reason = if ns > 0 { wait_reasons::of(span, stacks).reason } else { Reason::Unknown };
            if WRITING.contains(&reason) {
                self.add(wrote, span.pid, &place(span, stacks), ns);
            }
            let awaits_pages =
                || stacks.kernel(span.stack).iter().any(|frame| PAGES.contains(&symbol(frame)));
            if DATA.contains(&reason) || (reason == Reason::BlockIo && awaits_pages()) {
                wrote.waited.insert(self.tgid(span.pid));
            }
        }
    }

    fn samples(&self, wrote: &mut Wrote) {
        for sample in self.tables().samples.iter().flatten() {
            let dirties = |frame: &String| DIRTIES.iter().any(|begin| symbol(frame).starts_with(begin));
            if sample.kernel.iter().any(dirties) {
                self.add(wrote, sample.pid, "", sample.ns);
            }
        }
    }

    /// The other task that wrote most where the chain ends, and the share of all others in what was written.
    pub(super) fn others(&self, heads: &[u32], chain: &Chain, data: bool) -> Option<(Writer, f64)> {
        let device = device_at_the_end(chain);
        let journal = chain.hops.iter().map(|hop| hop.who.comm()).find(|who| who.starts_with("jbd2/"));
        let is_here = |place: &str| {
            place.is_empty()
                || Some(place) == journal
                || chain.leaf.kind != SubjectKind::Device
                || is_of(place, device)
                || journal.is_some_and(|journal| is_of(place, disk_of(journal)))
        };
        let sum = |by_place: &BTreeMap<String, u64>| -> f64 {
            by_place.iter().filter(|(place, _)| is_here(place)).map(|(_, ns)| *ns as f64).sum()
        };
        let (mut own, mut most, mut others) = (0.0, (0, 0.0), 0.0);
        for (tgid, by_place) in &self.wrote().time {
            let sum = sum(by_place);
            match any(heads.iter().map(|head| self.is_family(*tgid, *head))) {
                Some(true) => {
                    own += sum;
                    continue;
                }
                Some(false) => {}
                None => continue, // this may be the waiter's own work: no other task is blamed for it
            }
            others += sum;
            if sum > most.1 {
                most = (*tgid, sum);
            }
        }
        let by_time = if own + others > 0.0 { others / (own + others) } else { 0.0 };
        // Many small syncs take much time, but only as much of the disk's time as the bytes they wrote.
        let by_bytes =
            self.written_to_one_disk().filter(|_| data).and_then(|disk| self.by_bytes(heads, disk));
        let by_time = by_time.min(by_bytes.unwrap_or(1.0));
        let (group, by_bytes) = self.by_cgroup(heads, chain);
        let (writer, share) = if by_bytes > by_time {
            let named = if most.0 != 0 { self.writer(most.0) } else { Writer { tgid: 0, name: group? } };
            (named, by_bytes)
        } else {
            (self.writer(most.0), by_time)
        };
        (share > 0.0).then_some((writer, share.min(1.0)))
    }

    /// The share of others in the bytes that tasks wrote; `None`: bytes are not counted, or not for all writers. The kernel counts pages
    /// when they are dirtied: a task that dirtied them before the window, and waits for them now, has no bytes. Pages of other file
    /// systems (NFS), or of files that are deleted at once, never reach the disk, which wrote `disk` bytes.
    fn by_bytes(&self, heads: &[u32], disk: u64) -> Option<f64> {
        let (mut own, mut others) = (0.0, 0.0);
        let Bytes { known, unknown } = self.bytes();
        for (tgid, count) in known {
            match any(heads.iter().map(|head| self.is_family(*tgid, *head))) {
                Some(true) => own += *count as f64,
                Some(false) => others += *count as f64,
                None => {}
            }
        }
        let is_other = |tgid: u32| any(heads.iter().map(|head| self.is_family(tgid, *head))) == Some(false);
        let Wrote { time, waited } = self.wrote();
        let none =
            |tgid: &u32| unknown.contains(tgid) || (waited.contains(tgid) && !known.contains_key(tgid));
        let uncounted = time.keys().any(|tgid| none(tgid) && is_other(*tgid));
        let (all, disk) = (own + others, disk as f64);
        let are_the_disks = all >= disk / 2.0 && all <= disk * 2.0;
        (all > 0.0 && are_the_disks && !uncounted).then(|| others / all)
    }

    fn bytes(&self) -> &Bytes {
        self.bytes.get_or_init(|| {
            let mut bytes = Bytes::default();
            for task in self.tables().tasks.iter().flatten().filter(|task| !task.kthread) {
                if self.ev.is_own(task.pid, task.tgid) {
                    continue;
                }
                match task.written_bytes {
                    Some(0) => {}
                    Some(more) => {
                        let sum = bytes.known.entry(task.tgid).or_default();
                        *sum = sum.saturating_add(more);
                    }
                    None => {
                        bytes.unknown.insert(task.tgid);
                    }
                }
            }
            bytes.known.retain(|tgid, _| !bytes.unknown.contains(tgid));
            bytes
        })
    }

    /// The bytes that were written to disks, if nearly all went to one disk: tasks' bytes are counted whatever their disk.
    /// Devices that consist of other devices have rows beside these.
    fn written_to_one_disk(&self) -> Option<u64> {
        const MADE_OF_OTHERS: [&str; 6] = ["dm-", "md", "loop", "zram", "ram", "drbd"];
        let is_disk = |row: &&Disk| !MADE_OF_OTHERS.iter().any(|begin| row.device.starts_with(begin));
        let mut disks: BTreeMap<&str, u64> = BTreeMap::new();
        let written = self.tables().disk.as_deref()?.iter().filter(|row| row.op == "write");
        for row in written.filter(is_disk) {
            let sum = disks.entry(&row.dev).or_default();
            *sum = sum.saturating_add(row.bytes);
        }
        let all = disks.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        let most = disks.into_values().max()?;
        (most as f64 >= (1.0 - OTHERS) * all as f64).then_some(all)
    }

    fn writer(&self, tgid: u32) -> Writer {
        let name = self
            .task(tgid)
            .map_or_else(|| format!("process {tgid}"), |task| self.ev.process_name(tgid, &task.comm));
        Writer { tgid, name }
    }

    /// The share of other cgroups in what was written there for a cgroup (kernel threads write for the root).
    fn by_cgroup(&self, heads: &[u32], chain: &Chain) -> (Option<String>, f64) {
        let is_root = |id: u64| id == 0 || self.ev.cgroup(id).is_some_and(|group| group.parent == 0);
        let own = |id: u64| {
            heads
                .iter()
                .filter_map(|pid| self.task(*pid))
                .any(|t| id == t.io_cgroup || id == t.unified_cgroup)
        };
        let device = device_at_the_end(chain);
        // The id is the device's number if the row has it.
        let is_here = |row: &Disk| row.dev == chain.leaf.id || is_of(&row.device, device);
        let here = |row: &&Disk| row.op == "write" && is_here(row);
        let rows: Vec<&Disk> =
            self.tables().disk.iter().flatten().filter(here).filter(|row| !is_root(row.cgroup)).collect();
        let all: f64 = rows.iter().map(|row| row.bytes as f64).sum();
        let others = || rows.iter().filter(|row| !own(row.cgroup));
        let most = others().max_by_key(|row| row.bytes);
        let named = most.and_then(|row| self.ev.cgroup(row.cgroup));
        let sum: f64 = others().map(|row| row.bytes as f64).sum();
        (named.map(|group| self.ev.names().cgroup(group).name), if all > 0.0 { sum / all } else { 0.0 })
    }
}

/// The disk or journal that a wait was for: by its device, else by the kernel thread that ended it.
pub(super) fn place(span: &Span, stacks: &Stacks<'_>) -> String {
    if let Some(dev) = &span.device {
        return stacks.device(dev);
    }
    let waker = span.waker.as_ref().filter(|waker| waker.context == Context::Task);
    waker.map(|waker| waker.comm.as_str()).filter(|comm| comm.starts_with("jbd2/")).unwrap_or("").to_owned()
}

/// Whether `here` is the disk `place` or a partition of it. A partition has a "p" before its number if the disk's name ends
/// with a digit (block/partitions/core.c): rbd10 is no partition of rbd1.
pub(super) fn is_of(place: &str, here: &str) -> bool {
    let Some(rest) = here.strip_prefix(place).filter(|_| !place.is_empty()) else { return false };
    let number = match place.ends_with(|c: char| c.is_ascii_digit()) {
        true if !rest.is_empty() => rest.strip_prefix('p'),
        _ => Some(rest),
    };
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The device of a journal by its thread's name: "jbd2/vda1-8", where 8 is the journal's inode. A journal on a device of its own
/// has no inode in its name, and names end after 15 bytes (fs/jbd2/journal.c).
pub(super) fn disk_of(journal: &str) -> &str {
    let device = journal.strip_prefix("jbd2/").unwrap_or(journal);
    let inode = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match device.rsplit_once('-') {
        // dm-1 is a device.
        Some((before, after)) if inode(after) && before != "dm" => before,
        _ => device,
    }
}

/// The device at the end of a chain, where there is one.
fn device_at_the_end(chain: &Chain) -> &str {
    chain.hops.last().and_then(|hop| hop.detail.device()).unwrap_or_default()
}
