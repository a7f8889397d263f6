//! Waits that a task asked for itself: the work of its own children, its own data on their way to a disk. They are spending,
//! no loss: had nobody else been on the host, they would have been as long.
//!
//! A wait for a journal or for writeback is served by kernel threads, who write what everybody has dirtied. Whose data that
//! was no row says: it is told by who wrote to file systems meanwhile (waits for disks and journals, CPU time in file
//! systems' writing functions, requests by cgroup), and only by that.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use whyslow_model::chain::Chain;
use whyslow_model::table::{Disk, Tables, Task};
use whyslow_model::timeline::{Context, Span};
use whyslow_model::{Culprit, Hop, SubjectKind};

use crate::Evidence;
use crate::frames::symbol;
use crate::graph::HostChain;
use crate::hashing::{Seed, Set, Table};
use crate::kinds::{self, Stacks};

/// Others that wrote less than this part of all change nobody's waits by a tenth: those are the task's own.
const OTHERS: f64 = 0.1;
/// Process ids that Linux gives away are below this (PID_MAX_LIMIT): those above are told of tasks outside our pid namespace.
const PID_MAX_LIMIT: u32 = 4 << 20;
/// What the kernel calls its threads that write what tasks have dirtied: fs/jbd2/journal.c, kernel/workqueue.c,
/// fs/xfs/xfs_trans_ail.c, fs/btrfs/disk-io.c.
const WRITERS: &[&str] = &["jbd2/", "kworker/", "xfsaild/", "btrfs-"];
/// Work of such workers: writing what is dirty, and what is left to do when that is done. fs/fs-writeback.c, fs/ext4/page-io.c,
/// fs/xfs (xfs_aops.c, xfs_log.c, xfs_log_cil.c, xfs_buf.c, xfs_icache.c), fs/btrfs (async-thread.c, space-info.c), fs/direct-io.c,
/// fs/iomap/direct-io.c.
const FLUSHES: &[&str] = &[
    "wb_workfn",
    "ext4_end_io_rsv_work",
    "xfs_end_io",
    "xlog_cil_push_work",
    "xlog_ioend_work",
    "xfs_log_worker",
    "xfs_buf_ioend_work",
    "xfs_inodegc_worker",
    "xfs_reclaim_worker",
    "btrfs_work_helper",
    "btrfs_async_reclaim_metadata_space",
    "btrfs_async_reclaim_data_space",
    "btrfs_preempt_reclaim_metadata_space",
    "dio_aio_complete_work",
    "iomap_dio_complete_work",
];
/// Generations that are looked through for a parent: process trees are not as deep, loops of torn rows are.
const DEEP: usize = 64;
/// Waits for children and threads.
const CHILDREN: &[&str] = &["child", "vfork", "thread"];
/// Waits that kernel threads end by writing what tasks have dirtied.
const WRITTEN: &[&str] = &["journal", "writeback"];
/// Waits of who writes to a file system or a disk.
const WRITING: &[&str] = &["journal", "writeback", "block-io", "wbt", "dirty-throttling", "io-throttle"];
/// Waits of who has dirtied pages that are to be written now.
const DATA: &[&str] = &["writeback", "wbt", "dirty-throttling"];
/// ... and waits for them at the disk: mm/filemap.c, mm/page-writeback.c.
const PAGES: &[&str] = &["folio_wait_writeback", "wait_on_page_writeback", "__filemap_fdatawait_range"];
/// Who waits here waits for pages that were dirty, and for nothing of a journal: fs/fs-writeback.c.
const SYNCS: &[&str] = &[
    "wb_wait_for_completion",
    "wait_sb_inodes",
    "inode_wait_for_writeback",
    "__inode_wait_for_writeback",
    "writeback_inodes_sb",
];
/// What is no work of the one who waits, though his own child or writer meets it: a lock, a limit, a fault.
const NOT_WORK: &[&str] = &[
    "lock",
    "file-lock",
    "quota",
    "cpu-quota",
    "io-throttle",
    "memory-limit",
    "dirty-throttling",
    "reclaim",
    "swap-in",
    "cycle",
    "open",
    "stopped",
    "frozen",
    "traced",
    "late-cpu",
];
/// CPU time in these functions dirties pages or a journal, by how their names begin: the file systems with a journal, and
/// what they are called by. fs/ext4, fs/xfs, fs/btrfs, fs/f2fs, fs/jbd2, mm/filemap.c.
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

/// Whose work a chain of waits tells of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Whose {
    /// Of the one who waits.
    Own,
    /// Of others in part.
    Shared(Foreign),
    /// Somebody else's, or not known to be the waiter's own.
    Others,
    /// The ids of those who ended the waits were more than one task's in the window, or are of tasks that are told together.
    Unclear,
}

/// Somebody who wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Writer {
    pub tgid: u32,
    pub name: String,
}

/// What others wrote while tasks waited.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Foreign {
    /// Who did most of it.
    pub writer: Writer,
    /// The share of all others.
    pub share: f64,
    /// The waiters to whom they are others, and the part of the chain's time that is these waiters'.
    pub heads: Vec<u32>,
    pub part: f64,
}

/// Who belongs to whom, and who wrote, in one recording.
pub(crate) struct OwnWork<'e, 'r> {
    ev: &'e Evidence<'r>,
    /// By id; `None`: of several, which differ in whose they are.
    tasks: Table<u32, Option<&'r Task>>,
    /// Kernel threads that have rows and are no tasks here: nobody sees them from within a pid namespace.
    outside: Set<u32>,
    /// Some that ended have no id any more.
    folded: bool,
    /// Pid 1 is the host's, who takes in everybody's orphans: kernel threads are beside it. In a pid namespace it is whoever
    /// was started there, and none are.
    init: bool,
    wrote: OnceCell<(Wrote, Set<u32>)>,
    bytes: OnceCell<(BTreeMap<u32, u64>, Set<u32>)>,
}

/// Ns of waiting and CPU time by process, and of each by the device or journal that it was for; "" where that is not known.
type Wrote = BTreeMap<u32, BTreeMap<String, u64>>;

impl<'e, 'r> OwnWork<'e, 'r> {
    pub fn of(ev: &'e Evidence<'r>) -> Self {
        let all = ev.recording().tables.tasks.as_deref().unwrap_or_default();
        let mut tasks: Table<u32, Option<&Task>> =
            Table::with_capacity_and_hasher(all.len(), Seed::default());
        let whose = |task: &Task| (task.tgid, task.ppid, task.kthread);
        for task in all {
            let known = tasks.entry(task.pid).or_insert(Some(task));
            *known = known.filter(|other| whose(other) == whose(task));
        }
        let outside = ev.recording().tables.spans.iter().flatten();
        let outside = outside.filter(|span| {
            span.pid > PID_MAX_LIMIT && WRITERS.iter().any(|begin| span.comm.starts_with(begin))
        });
        OwnWork {
            ev,
            outside: outside.map(|span| span.pid).filter(|pid| !tasks.contains_key(pid)).collect(),
            tasks,
            folded: all.iter().any(|task| task.folded > 0),
            init: all.iter().any(|task| task.kthread),
            wrote: OnceCell::new(),
            bytes: OnceCell::new(),
        }
    }

    /// A parent that says who belongs to whom.
    fn is_parent(&self, ppid: u32) -> bool {
        ppid > u32::from(self.init)
    }

    /// The only one of this id.
    fn task(&self, pid: u32) -> Option<&'r Task> {
        self.tasks.get(&pid).copied().flatten()
    }

    fn tables(&self) -> &'r Tables {
        &self.ev.recording().tables
    }

    /// Whose work the waits of this chain were.
    pub fn whose(&self, told: &HostChain<'_>) -> Whose {
        let chain = &told.chain;
        let Some(head) = chain.hops.first() else { return Whose::Others };
        let heads: Vec<u32> = chain.tasks.first().into_iter().flatten().map(|(pid, _)| *pid).collect();
        // They write for others, whatever they wait for: who waits for them has a chain of his own.
        if !heads.is_empty() && heads.iter().all(|pid| self.is_writer(*pid)) && self.writes(told.head) {
            return Whose::Own;
        }
        if chain.hops.iter().any(|hop| NOT_WORK.contains(&hop.edge.as_str())) || told.head.lock.is_some() {
            return Whose::Others;
        }
        let below = || chain.tasks.iter().skip(1).flatten().map(|(pid, _)| *pid);
        let is_own = |pid: u32| any(heads.iter().map(|head| self.is_below(pid, *head)));
        // A wait whose end the tracer missed has no stack: that of a parent whose child ended it was for the child.
        let of_others = |pid: u32| heads.iter().all(|head| self.sure_tgid(pid) != self.sure_tgid(*head));
        let untold = told.head.stack.is_none() && told.head.syscall.is_none();
        let missed = head.edge == "unknown" && untold && below().all(of_others);
        if (missed || CHILDREN.contains(&head.edge.as_str())) && !heads.is_empty() {
            match all(below().map(is_own)) {
                Some(true) => return Whose::Own,
                Some(false) => {}
                None => return Whose::Unclear,
            }
        }
        let written = WRITTEN.contains(&head.edge.as_str());
        if !written || heads.is_empty() || chain.leaf.id == crate::graph::UNKNOWN {
            return Whose::Others;
        }
        let served = |pid: u32| if self.is_kernels(pid) { Some(true) } else { is_own(pid) };
        match all(below().map(served)) {
            Some(true) => {}
            Some(false) => return Whose::Others,
            None => return Whose::Unclear,
        }
        // Kernel threads write for others: who waits for them has a chain of his own.
        if heads.iter().all(|pid| self.is_kernels(*pid)) {
            return Whose::Own;
        }
        // Metadata goes by way of the journal, and is nobody's bytes: whoever waits for it, at whichever hop, waits for no data.
        let is_sync = |frame: &String| SYNCS.contains(&symbol(frame));
        let data = head.edge == "writeback"
            && self.ev.stacks().kernel(told.head.stack).iter().any(is_sync)
            && chain.hops.iter().all(|hop| hop.edge != "journal");
        self.foreign(&heads, chain, data).map_or(Whose::Own, Whose::Shared)
    }

    /// Waiters of one name are told together, whoever they belong to: to those of one cgroup those of another are others.
    fn foreign(&self, heads: &[u32], chain: &Chain, data: bool) -> Option<Foreign> {
        let waited = |pids: &[u32]| -> f64 {
            let tasks = pids.iter().filter_map(|pid| self.task(*pid));
            tasks.map(|task| task.blocked_ns.saturating_add(task.io_ns) as f64).sum()
        };
        let all = waited(heads);
        let of_one = |own: Vec<u32>| {
            let (writer, share) = self.others(&own, chain, data).filter(|(_, share)| *share >= OTHERS)?;
            let part = if own.len() == heads.len() || all <= 0.0 { 1.0 } else { waited(&own) / all };
            Some(Foreign { writer, share, heads: own, part })
        };
        let foreign = self.set_apart(heads).into_iter().filter_map(of_one);
        foreign.max_by(|a, b| (a.share * a.part).total_cmp(&(b.share * b.part)))
    }

    /// Waiters by cgroup; all together if that of one is not known.
    fn set_apart(&self, heads: &[u32]) -> Vec<Vec<u32>> {
        let mut apart: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for pid in heads {
            let Some(task) = self.task(*pid) else { return vec![heads.to_vec()] };
            apart.entry(cgroups(task)).or_default().push(*pid);
        }
        let mut apart: Vec<Vec<u32>> = apart.into_values().collect();
        // Who started the other is no other, wherever he put him.
        let mut at = 0;
        while at < apart.len() {
            let is_one = |other: &Vec<u32>| {
                let pairs = apart[at].iter().flat_map(|one| other.iter().map(move |two| (*one, *two)));
                any(pairs.map(|(one, two)| self.is_family(one, two))) != Some(false)
            };
            match (at + 1..apart.len()).find(|other| is_one(&apart[*other])) {
                Some(other) => {
                    let more = apart.remove(other);
                    apart[at].extend(more);
                }
                None => at += 1,
            }
        }
        apart
    }

    fn is_kernels(&self, pid: u32) -> bool {
        self.task(pid).is_some_and(|task| task.kthread) || self.outside.contains(&pid)
    }

    /// One of the kernel threads that write what tasks have dirtied.
    fn is_writer(&self, pid: u32) -> bool {
        let named = |task: &Task| WRITERS.iter().any(|begin| task.comm.starts_with(begin));
        self.task(pid).is_some_and(|task| task.kthread && named(task)) || self.outside.contains(&pid)
    }

    /// A worker of the kernel does any work: what it was at is told by its work item or its stack. Without both it is taken for
    /// a writer, as most that wait are.
    fn writes(&self, head: &Span) -> bool {
        let flushes = |frame: &String| FLUSHES.contains(&symbol(frame));
        let stack = || self.ev.stacks().kernel(head.stack).iter().any(flushes);
        let untold = head.work.is_none() && head.stack.is_none();
        !head.comm.starts_with("kworker/") || untold || head.work.as_ref().is_some_and(flushes) || stack()
    }

    fn tgid(&self, pid: u32) -> u32 {
        self.task(pid).map_or(pid, |task| task.tgid)
    }

    /// ... if that is known.
    fn sure_tgid(&self, pid: u32) -> Option<u32> {
        match self.tasks.get(&pid) {
            Some(known) => known.map(|task| task.tgid),
            None => (!self.folded).then_some(pid),
        }
    }

    /// Whether `pid` is a thread of the process of `of`, or of a process that it started. `None`: an id on the way was more
    /// than one task's, or may be that of one that is told together with others.
    fn is_below(&self, pid: u32, of: u32) -> Option<bool> {
        if pid == of {
            return Some(true);
        }
        let (mut at, of) = (self.sure_tgid(pid)?, self.sure_tgid(of)?);
        for _ in 0..DEEP {
            if at == of {
                return Some(true);
            }
            match self.tasks.get(&at) {
                Some(Some(task)) if self.is_parent(task.ppid) && task.ppid != at => at = task.ppid,
                Some(Some(_)) => return Some(false),
                Some(None) => return None,
                None => return (!self.folded).then_some(false),
            }
        }
        Some(false)
    }

    /// One process tree: one started the other, or both have one parent and nobody set them apart (a cgroup, a session).
    fn is_family(&self, one: u32, other: u32) -> Option<bool> {
        let above = any([self.is_below(one, other), self.is_below(other, one)].into_iter());
        if above != Some(false) {
            return above;
        }
        Some(match (self.task(one), self.task(other)) {
            (Some(a), Some(b)) => a.ppid == b.ppid && self.is_parent(a.ppid) && !are_set_apart(a, b),
            _ => false,
        })
    }

    /// Who wrote, and who waited for data of files to be written: looked for once, if anybody waits for it.
    fn writers(&self) -> &(Wrote, Set<u32>) {
        self.wrote.get_or_init(|| {
            let mut wrote = Wrote::new();
            let waited = self.waits(&mut wrote);
            self.samples(&mut wrote);
            (wrote, waited)
        })
    }

    fn wrote(&self) -> &Wrote {
        &self.writers().0
    }

    fn add(&self, wrote: &mut Wrote, pid: u32, place: &str, ns: u64) {
        let tgid = self.tgid(pid);
        let own_pids = &self.ev.recording().meta.own_pids;
        if ns == 0 || pid == 0 || self.is_kernels(pid) || own_pids.contains(&pid) || own_pids.contains(&tgid)
        {
            return;
        }
        let sum = wrote.entry(tgid).or_default().entry(place.to_owned()).or_default();
        *sum = sum.saturating_add(ns);
    }

    /// The processes that waited for data.
    fn waits(&self, wrote: &mut Wrote) -> Set<u32> {
        let stacks = self.ev.stacks();
        let mut waited = Set::default();
        for span in self.tables().spans.iter().flatten() {
            let ns = span.woken_ns.saturating_sub(span.at_ns).max(span.stands_ns);
            let word = if ns > 0 { kinds::of(span, stacks).word } else { "" };
            if WRITING.contains(&word) {
                self.add(wrote, span.pid, &place(span, stacks), ns);
            }
            let awaits_pages =
                || stacks.kernel(span.stack).iter().any(|frame| PAGES.contains(&symbol(frame)));
            if DATA.contains(&word) || (word == "block-io" && awaits_pages()) {
                waited.insert(self.tgid(span.pid));
            }
        }
        waited
    }

    fn samples(&self, wrote: &mut Wrote) {
        for sample in self.tables().samples.iter().flatten() {
            let dirties = |frame: &String| DIRTIES.iter().any(|begin| symbol(frame).starts_with(begin));
            if sample.kernel.iter().any(dirties) {
                self.add(wrote, sample.pid, "", sample.ns);
            }
        }
    }

    /// Who else wrote most where the chain ends, and the share of all others in what was written.
    fn others(&self, heads: &[u32], chain: &Chain, data: bool) -> Option<(Writer, f64)> {
        let device = device_at_the_end(chain);
        let journal = chain.hops.iter().map(|hop| hop.who.as_str()).find(|who| who.starts_with("jbd2/"));
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
        for (tgid, by_place) in self.wrote() {
            let sum = sum(by_place);
            match any(heads.iter().map(|head| self.is_family(*tgid, *head))) {
                Some(true) => {
                    own += sum;
                    continue;
                }
                Some(false) => {}
                None => continue, // nobody is blamed for what may be the waiter's own
            }
            others += sum;
            if sum > most.1 {
                most = (*tgid, sum);
            }
        }
        let by_time = if own + others > 0.0 { others / (own + others) } else { 0.0 };
        // Many small syncs take much time, and no more of a disk than they wrote.
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

    /// Of the bytes that tasks wrote, the share of others; `None`: they are not counted, or not of all who wrote. Pages count
    /// when they are made dirty: who did so before the window, and waits for them now, has none; and those of other file
    /// systems (NFS) or of files that are deleted at once never come to the disk, which wrote `disk` bytes.
    fn by_bytes(&self, heads: &[u32], disk: u64) -> Option<f64> {
        let (mut own, mut others) = (0.0, 0.0);
        let (bytes, unknown) = self.bytes();
        for (tgid, count) in bytes {
            match any(heads.iter().map(|head| self.is_family(*tgid, *head))) {
                Some(true) => own += *count as f64,
                Some(false) => others += *count as f64,
                None => {}
            }
        }
        let is_other = |tgid: u32| any(heads.iter().map(|head| self.is_family(tgid, *head))) == Some(false);
        let (wrote, waited) = self.writers();
        let none =
            |tgid: &u32| unknown.contains(tgid) || (waited.contains(tgid) && !bytes.contains_key(tgid));
        let is_uncounted = |tgid: &u32| none(tgid) && is_other(*tgid);
        let uncounted = wrote.keys().any(is_uncounted);
        let (all, disk) = (own + others, disk as f64);
        let are_the_disks = all >= disk / 2.0 && all <= disk * 2.0;
        (all > 0.0 && are_the_disks && !uncounted).then(|| others / (own + others))
    }

    /// By process; and those of which a thread's are not known.
    fn bytes(&self) -> &(BTreeMap<u32, u64>, Set<u32>) {
        self.bytes.get_or_init(|| {
            let own_pids = &self.ev.recording().meta.own_pids;
            let (mut bytes, mut unknown): (BTreeMap<u32, u64>, Set<u32>) = Default::default();
            for task in self.tables().tasks.iter().flatten().filter(|task| !task.kthread) {
                if own_pids.contains(&task.pid) || own_pids.contains(&task.tgid) {
                    continue;
                }
                match task.written_bytes {
                    Some(0) => {}
                    Some(more) => {
                        let sum = bytes.entry(task.tgid).or_default();
                        *sum = sum.saturating_add(more);
                    }
                    None => {
                        unknown.insert(task.tgid);
                    }
                }
            }
            bytes.retain(|tgid, _| !unknown.contains(tgid));
            (bytes, unknown)
        })
    }

    /// What was written to disks, if nearly all of it was to one: bytes are counted by task, whichever disk they are for.
    /// Devices that are made of others have rows beside those.
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
        let name = self.task(tgid).map_or_else(|| format!("process {tgid}"), |task| task.comm.clone());
        Writer { tgid, name }
    }

    /// Of what was written there for somebody (kernel threads write for the root), the share of other cgroups.
    fn by_cgroup(&self, heads: &[u32], chain: &Chain) -> (Option<String>, f64) {
        let is_root = |id: u64| id == 0 || self.ev.cgroup(id).is_some_and(|group| group.parent == 0);
        let own = |id: u64| {
            heads
                .iter()
                .filter_map(|pid| self.task(*pid))
                .any(|t| id == t.io_cgroup || id == t.unified_cgroup)
        };
        let device = device_at_the_end(chain);
        // The id is the device's number where the row told it.
        let is_here = |row: &Disk| row.dev == chain.leaf.id || is_of(&row.device, device);
        let here = |row: &&Disk| row.op == "write" && is_here(row);
        let rows: Vec<&Disk> =
            self.tables().disk.iter().flatten().filter(here).filter(|row| !is_root(row.cgroup)).collect();
        let all: f64 = rows.iter().map(|row| row.bytes as f64).sum();
        let others = || rows.iter().filter(|row| !own(row.cgroup));
        let most = others().max_by_key(|row| row.bytes);
        let named = most.and_then(|row| self.ev.cgroup(row.cgroup));
        let sum: f64 = others().map(|row| row.bytes as f64).sum();
        (named.map(|group| crate::names::cgroup_subject(group).name), if all > 0.0 { sum / all } else { 0.0 })
    }
}

/// Who ends leaves his session's group before his last switch (kernel/sched/autogroup.c, sched_autogroup_exit_task): which one
/// that was is not known.
fn are_set_apart(one: &Task, other: &Task) -> bool {
    let has_left = |task: &Task| task.ended && task.autogroup == 0;
    let sessions = one.autogroup != other.autogroup && !has_left(one) && !has_left(other);
    cgroups(one) != cgroups(other) || sessions
}

/// Where a task was put.
fn cgroups(task: &Task) -> [u64; 4] {
    [task.cpu_cgroup, task.memory_cgroup, task.io_cgroup, task.unified_cgroup]
}

/// One is true; `None`: that is not known.
fn any(all: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut unknown = false;
    for one in all {
        match one {
            Some(true) => return Some(true),
            Some(false) => {}
            None => unknown = true,
        }
    }
    (!unknown).then_some(false)
}

/// None is false; `None`: that is not known.
fn all(all: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    any(all.map(|one| one.map(|one| !one))).map(|none| !none)
}

/// Which disk or journal a wait was for: by its device, else by the kernel thread that ended it.
fn place(span: &Span, stacks: &Stacks<'_>) -> String {
    if let Some(dev) = &span.device {
        return stacks.device(dev);
    }
    let waker = span.waker.as_ref().filter(|waker| waker.context == Context::Task);
    waker.map(|waker| waker.comm.as_str()).filter(|comm| comm.starts_with("jbd2/")).unwrap_or("").to_owned()
}

/// Whether `here` is the disk `place` or a partition of it, which has a "p" before its number where the disk's name ends
/// with a digit (block/partitions/core.c): rbd10 is no part of rbd1.
fn is_of(place: &str, here: &str) -> bool {
    let Some(rest) = here.strip_prefix(place).filter(|_| !place.is_empty()) else { return false };
    let number = match place.ends_with(|c: char| c.is_ascii_digit()) {
        true if !rest.is_empty() => rest.strip_prefix('p'),
        _ => Some(rest),
    };
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The device of a journal by its thread's name: "jbd2/vda1-8", where 8 is the journal's inode. A journal on a device of its own
/// has none, and names end after 15 bytes (fs/jbd2/journal.c).
fn disk_of(journal: &str) -> &str {
    let device = journal.strip_prefix("jbd2/").unwrap_or(journal);
    let inode = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match device.rsplit_once('-') {
        // dm-1 is a device.
        Some((before, after)) if inode(after) && before != "dm" => before,
        _ => device,
    }
}

/// The device at the end of a chain: "vda" of "vda (fsync), in short waits".
fn device_at_the_end(chain: &Chain) -> &str {
    let name = chain.leaf.name.as_str();
    let name = name.split_once(" (").map_or(name, |(device, _)| device);
    name.split_once(',').map_or(name, |(device, _)| device)
}

/// A chain that ends with who wrote what its waiter waited for, by the part of its time that is theirs.
pub(crate) fn blamed(mut chain: Chain, foreign: &Foreign) -> Chain {
    let Foreign { writer, share, heads, part } = foreign;
    let share = *share;
    chain.time = chain.time.mul_f64((share * part).clamp(0.0, 1.0));
    if let Some(waiters) = chain.tasks.first_mut() {
        waiters.retain(|(pid, _)| heads.contains(pid));
    }
    let words = format!("wrote {} of what was written there meanwhile", whyslow_model::Share::of(share, 1.0));
    chain.hops.push(Hop::new("writes", writer.name.clone(), words, "running", chain.time));
    chain.tasks.push(vec![(writer.tgid, writer.name.clone())]);
    chain.leaf = match writer.tgid {
        0 => Culprit::new(SubjectKind::Cgroup, writer.name.clone(), writer.name.clone()),
        tgid => Culprit::new(SubjectKind::Task, tgid.to_string(), writer.name.clone()),
    };
    chain
}

#[cfg(test)]
#[path = "own_work_tests.rs"]
mod tests;
