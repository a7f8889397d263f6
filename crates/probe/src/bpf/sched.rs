//! Where did each task's time go: on a CPU, ready, waiting for I/O, blocked, asleep? The kernel half is `sched.bpf.c`.

#[path = "other_ends.rs"]
mod other_ends;

use std::collections::{HashMap, HashSet};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject};
use whyslow_model::Missing;

use super::constants::shared_h;
use super::crowd::{Crowd, Verdict};
use super::exits::Exits;
use super::mapped_ring::MappedRing;
use super::rows::Rows;
use super::shared::{self, Shared};
use super::titles::Titles;
use super::{map_sizes, missing, percpu, value, walk};
use crate::kallsyms::Kallsyms;
use crate::pid_map::Numbers;

skeleton!("sched");
pub use skel::types::{
    other_end, other_key, sched_ends, sched_exit, sched_live, sched_run, sched_slot, sched_span,
    sched_span_stack, sched_sum, sched_wake, title,
};

// SAFETY: generated from the C structs; integers and bytes only.
unsafe impl plain::Plain for other_end {}
// SAFETY: as above.
unsafe impl plain::Plain for other_key {}
// SAFETY: as above.
unsafe impl plain::Plain for sched_exit {}
// SAFETY: as above.
unsafe impl plain::Plain for sched_live {}
// SAFETY: as above.
unsafe impl plain::Plain for sched_span {}
// SAFETY: as above.
unsafe impl plain::Plain for sched_span_stack {}
// SAFETY: as above.
unsafe impl plain::Plain for sched_wake {}
// SAFETY: as above.
unsafe impl plain::Plain for sched_run {}

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::OffCpuStacks.word();

/// The unknown part of waits that last.
const ENDS: &str = "which process has the other end of a connection";

/// States of tasks, `enum sched_state` in shared.bpf.h: ready ...
pub const READY: usize = shared_h::READY as usize;
/// ... uninterruptible, marked as I/O wait ...
pub const IO: usize = shared_h::IO as usize;
/// ... uninterruptible ...
pub const BLOCKED: usize = shared_h::BLOCKED as usize;
/// ... interruptible, or not counted as load ...
pub const ASLEEP: usize = shared_h::ASLEEP as usize;
/// ... on a CPU.
pub const RUNNING: usize = shared_h::RUNNING as usize;
/// ... in none: the place of another fact.
pub const NONE: usize = shared_h::NONE as usize;
/// All of them.
pub const STATES: usize = shared_h::STATES as usize;

/// The running probe. Dropping it detaches it from the kernel.
pub struct Sched<'slot> {
    tells_ready: bool,
    tells_refused: bool,
    skel: skel::SchedSkel<'slot>,
    exits: MappedRing,
    rows: MappedRing,
    places: u32,
    seed: Option<Link>,
    finish: Option<Link>,
    ends: Option<Link>,
    /// Threads are followed.
    follows: bool,
    seen: RawSched,
    crowd: Crowd,
}

/// What the probe saw.
#[derive(Default)]
pub struct RawSched {
    /// Tasks that ended in the window.
    pub exits: Exits,
    /// Tasks that still live.
    pub live: Vec<sched_live>,
    /// Timelines.
    pub rows: Rows,
    /// Waits that stayed in the sums because a CPU had too many to report.
    pub shed: u64,
    /// Tasks without a place for their notes.
    pub without_place: u64,
    /// How long wakers were not recorded: a CPU had too many switches.
    pub without_wakers: Duration,
    /// Packets showed the socket where they came.
    pub tells_ready: bool,
    /// Locks on files showed which tasks were refused.
    pub tells_refused: bool,
    /// Processes with the other end of the sockets that open rows wait at, by the number in those rows.
    pub other_ends: HashMap<u32, other_end>,
    /// Requests of processes, their addressees, and the processes that are to answer them.
    pub requests: Vec<(sched_ends, other_end)>,
    /// Why some of these are not known.
    pub ends_missing: Option<Missing>,
    /// The words that processes were started with, or call themselves by.
    pub titles: Titles,
}

impl RawSched {
    /// The hooks outlive the closing walk: a task that ended after the walk had met it is reported by its end, which has all its sums.
    fn forget_the_dead(&mut self) {
        let dead: HashSet<_> = self.exits.late().iter().map(|late| (late.key, late.task)).collect();
        self.live.retain(|live| !dead.contains(&((live.slot.pid, live.slot.start), live.slot.task)));
    }
}

/// Facts about this kernel that the kernel half needs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout {
    /// From a CPU's run queue to its preempt count.
    pub preempt_count_at: Option<i64>,
    /// It has an event for data that come at a socket.
    pub tells_ready: bool,
    /// It has an event for refused locks on files.
    pub tells_refused: bool,
}

impl Layout {
    /// The running kernel's. Both are variables of each CPU.
    #[must_use]
    pub fn of(btf: &Btf<'_>) -> Self {
        let at = percpu::variables(btf);
        // v6.2 to v6.14 have it in struct pcpu_hot, after the 8 bytes of `current` (64bf6ae93e08, 46e8fff6d45f).
        let count = at.get("__preempt_count").copied().or_else(|| at.get("pcpu_hot").map(|at| at + 8));
        let has = |tracepoint: &str| btf.type_by_name::<Typedef<'_>>(tracepoint).is_some();
        let tells_ready = has("btf_trace_sk_data_ready");
        let tells_refused = has("btf_trace_posix_lock_inode") && has("btf_trace_flock_lock_inode");
        let preempt_count_at = count.zip(at.get("runqueues")).map(|(count, queue)| count - queue);
        Layout { preempt_count_at, tells_ready, tells_refused }
    }

    /// Offsets that BTF does not have (that of 5.10 has no variables), from the symbols of data, where they are listed.
    #[must_use]
    pub fn or_from(self, symbols: &Kallsyms) -> Self {
        let at = |name| symbols.address(name).and_then(|at| i64::try_from(at).ok());
        let listed = || Some(at("__preempt_count")?.saturating_sub(at("runqueues")?));
        Layout { preempt_count_at: self.preempt_count_at.or_else(listed), ..self }
    }
}

impl<'slot> Sched<'slot> {
    /// Load it: its maps are there from now on, for others to share.
    pub fn load(
        slot: &'slot mut MaybeUninit<OpenObject>,
        layout: Layout,
        busy: Budget,
    ) -> Result<Self, Missing> {
        super::ring::may_be_filled(WHAT)?;
        let spares = shared::spares(shared::threads(), map_sizes::halvings());
        Self::try_load(slot, layout, busy, spares).map_err(|err| missing(WHAT, &err))
    }

    fn try_load(
        slot: &'slot mut MaybeUninit<OpenObject>,
        layout: Layout,
        budget: Budget,
        spares: u32,
    ) -> libbpf_rs::Result<Self> {
        let mut open = skel::SchedSkelBuilder::default().open(slot)?;
        map_sizes::apply(open.open_object_mut())?;
        let homes = shared::homes();
        if let Some(bss) = open.maps.bss_data.as_mut() {
            bss.own_tgid = std::process::id();
        }
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            rodata.preempt_count_at = layout.preempt_count_at.unwrap_or(0);
            rodata.max_rows = budget.rows;
            rodata.max_stacks = budget.stacks;
            rodata.homes = homes;
            rodata.takes_fd = calls_on_files();
            rodata.tells_ready = layout.tells_ready;
        }
        let maps = &mut open.maps;
        for map in [&mut maps.slots, &mut maps.lock_waits, &mut maps.last_device] {
            map.set_max_entries(homes + spares)?;
        }
        for map in [&mut maps.displaced, &mut maps.followed_more, &mut maps.spare_places] {
            map.set_max_entries(spares)?;
        }
        // Each CPU keeps up to 128 free places of an LRU map to itself (kernel/bpf/bpf_lru_list.c).
        let cpus = libbpf_rs::num_possible_cpus().ok().and_then(|cpus| u32::try_from(cpus).ok()).unwrap_or(1);
        maps.refusals.set_max_entries(cpus.saturating_mul(256).clamp(1024, 1 << 17))?;
        let least = maps.life_marks.max_entries();
        maps.life_marks.set_max_entries(cpus.saturating_mul(256).clamp(least, (1 << 16).max(least)))?;
        let least = maps.titles.max_entries();
        maps.titles.set_max_entries(cpus.saturating_mul(256).clamp(least, (1 << 15).max(least)))?;
        open.progs.data_came.set_autoload(layout.tells_ready);
        open.progs.range_tried.set_autoload(layout.tells_refused);
        open.progs.file_tried.set_autoload(layout.tells_refused);
        let skel = open.load()?;
        for place in homes..homes + spares {
            skel.maps.spare_places.update(&[], &place.to_ne_bytes(), MapFlags::ANY)?;
        }
        Ok(Self {
            tells_ready: layout.tells_ready,
            tells_refused: layout.tells_refused,
            exits: MappedRing::default(),
            rows: MappedRing::default(),
            skel,
            places: homes + spares,
            seed: None,
            finish: None,
            ends: None,
            follows: false,
            seen: RawSched::default(),
            crowd: Crowd::new(TOO_MANY, FEW_AGAIN),
        })
    }

    /// In a pid namespace: our own process, as BPF knows it.
    pub fn leave_out(&mut self, own_tgid: u32) {
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.own_tgid = own_tgid;
        }
    }

    /// The maps that other objects share.
    #[must_use]
    pub fn shared(&self) -> Shared<'_> {
        let maps = &self.skel.maps;
        Shared {
            slots: maps.slots.as_fd(),
            lock_waits: maps.lock_waits.as_fd(),
            followed: maps.followed.as_fd(),
            followed_more: maps.followed_more.as_fd(),
            last_device: maps.last_device.as_fd(),
            displaced: maps.displaced.as_fd(),
            places: self.places,
        }
    }

    /// Follow these threads, and those they start.
    pub fn follow(&mut self, pids: &[u32]) -> Result<(), Missing> {
        self.follows |= !pids.is_empty();
        pids.iter().try_for_each(|pid| self.follow_one(*pid)).map_err(|err| missing(WHAT, &err))
    }

    fn follow_one(&self, pid: u32) -> libbpf_rs::Result<()> {
        let (map, at) = (&self.skel.maps.followed, (pid % shared::homes()).to_ne_bytes());
        let home = map.lookup(&at, MapFlags::ANY)?.unwrap_or_default();
        let (owner, more) = (owner(&home), home.get(4..).map_or(0, owner));
        let value = |owner: u32, more: u32| [owner.to_ne_bytes(), more.to_ne_bytes()].concat();
        if owner == 0 && self.skel.maps.followed_more.lookup(&pid.to_ne_bytes(), MapFlags::ANY)?.is_some() {
            return Ok(());
        }
        if owner == 0 || owner == pid {
            return map.update(&at, &value(pid, more), MapFlags::ANY);
        }
        self.skel.maps.followed_more.update(&pid.to_ne_bytes(), &[1, 0, 0, 0], MapFlags::ANY)?;
        map.update(&at, &value(owner, 1), MapFlags::ANY)
    }

    /// Follow these, and stop following threads of `before` that are not among them. Only while nothing is attached: the kernel half writes
    /// to the same map.
    pub fn follow_instead(&mut self, before: &[u32], now: &[u32]) -> Result<(), Missing> {
        let now_too: HashSet<u32> = now.iter().copied().collect();
        let gone = before.iter().filter(|pid| !now_too.contains(pid));
        gone.copied().try_for_each(|pid| self.unfollow(pid)).map_err(|err| missing(WHAT, &err))?;
        self.follow(now)
    }

    /// As the kernel half does it.
    fn unfollow(&self, pid: u32) -> libbpf_rs::Result<()> {
        let (map, at) = (&self.skel.maps.followed, (pid % shared::homes()).to_ne_bytes());
        let home = map.lookup(&at, MapFlags::ANY)?.unwrap_or_default();
        if owner(&home) == pid {
            let more = home.get(4..).unwrap_or_default();
            return map.update(&at, &[&[0; 4], more].concat(), MapFlags::ANY);
        }
        let more = &self.skel.maps.followed_more;
        if more.lookup(&pid.to_ne_bytes(), MapFlags::ANY)?.is_some() {
            more.delete(&pid.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Attach, and give every task that is there its slot: the window begins.
    pub fn begin(&mut self) -> Result<(), Missing> {
        self.attach().map_err(|err| missing(WHAT, &err))?;
        self.await_clock()?;
        self.seed.as_ref().map_or(Ok(Vec::new()), |link| walk(WHAT, link)).map(drop)
    }

    fn attach(&mut self) -> libbpf_rs::Result<()> {
        let progs = &self.skel.progs;
        self.seed = Some(progs.seed.attach()?);
        self.finish = Some(progs.finish.attach()?);
        self.ends = progs.find_ends.attach().ok();
        self.skel.links.switched = Some(progs.switched.attach()?);
        self.skel.links.waking = Some(progs.waking.attach()?);
        self.skel.links.born = Some(progs.born.attach()?);
        if self.tells_ready {
            self.skel.links.data_came = Some(progs.data_came.attach()?);
        }
        if self.tells_refused {
            self.skel.links.range_tried = Some(progs.range_tried.attach()?);
            self.skel.links.file_tried = Some(progs.file_tried.attach()?);
        }
        self.skel.links.executed = Some(progs.executed.attach()?);
        self.skel.links.ending = Some(progs.ending.attach()?);
        Ok(())
    }

    /// The first switch shows how far the run queue's clock is from ours.
    fn await_clock(&self) -> Result<(), Missing> {
        let patience = Instant::now() + Duration::from_secs(1);
        while self.skel.maps.bss_data.as_ref().is_none_or(|bss| bss.skew == 0) {
            if Instant::now() > patience {
                return Err(Missing::broken(WHAT, "no switch was seen within a second"));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Take some of the records in the ring buffers, and keep our own cost low; true: there may be more. To be called a few times a second.
    pub fn poll(&mut self) -> Result<bool, Missing> {
        self.throttle_hooks();
        let RawSched { exits, rows, .. } = &mut self.seen;
        let maps = &self.skel.maps;
        let more = self.exits.take_some(&maps.exits, |bytes| note_exit(exits, rows, bytes));
        let more = more.map_err(|err| missing(WHAT, &err))?;
        let rest = self.rows.take_some(&maps.rows, |bytes| rows.note(bytes));
        Ok(rest.map_err(|err| missing(WHAT, &err))? || more)
    }

    fn drain(&mut self) -> libbpf_rs::Result<()> {
        let RawSched { exits, rows, .. } = &mut self.seen;
        let maps = &self.skel.maps;
        self.exits.take_all(&maps.exits, |bytes| note_exit(exits, rows, bytes))?;
        self.rows.take_all(&maps.rows, |bytes| rows.note(bytes))
    }

    /// Two hooks a switch cost too much where a CPU does little but switch: then wakers are not recorded for a while.
    fn throttle_hooks(&mut self) {
        let Ok(Some(counts)) = self.skel.maps.switches.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
        else {
            return;
        };
        let counts: Vec<u64> = counts.iter().map(|bytes| value(bytes)).collect();
        match self.crowd.judge(counts, Instant::now()) {
            Some(Verdict::TooMany) => {
                self.skel.links.waking = None;
                self.skel.links.data_came = None;
            }
            // If that is refused, the hook stays detached, and the waits say that no waker was seen.
            Some(Verdict::FewAgain) if self.skel.links.waking.is_none() => {
                self.skel.links.waking = self.skel.progs.waking.attach().ok();
                if self.tells_ready {
                    self.skel.links.data_came = self.skel.progs.data_came.attach().ok();
                }
            }
            _ => {}
        }
    }

    /// A thread that ends signals its pidfd, and frees its number, before it leaves its CPU for the last time (kernel/exit.c, do_exit): a
    /// process that this wakes up must wait for the switch that shows the final state. In between the thread may have to wait for a CPU,
    /// and no walk over tasks meets it.
    ///
    /// `numbers`: in a pid namespace, the numbers that /proc shows.
    pub fn await_exits(&self, numbers: Option<&Numbers>) {
        let patience = Instant::now() + Duration::from_millis(100);
        while self.is_any_dead_here(numbers) && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_any_dead_here(&self, numbers: Option<&Numbers>) -> bool {
        let all = self.skel.maps.followed.lookup_batch(shared::homes(), MapFlags::ANY, MapFlags::ANY);
        let more = self.skel.maps.followed_more.keys().map(|key| owner(&key));
        let pids = all.into_iter().flatten().map(|(_, value)| owner(&value)).filter(|pid| *pid != 0);
        let pids = pids.chain(more);
        let mut pids = pids.filter_map(|pid| numbers.map_or(Some(pid), |numbers| numbers.inside(pid)));
        pids.any(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
    }

    /// The tasks are about to be listed, and then the window ends.
    pub fn mark(&mut self) {
        self.seen.exits.mark();
    }

    /// The window ends: detach, close all open intervals, and report.
    pub fn finish(mut self) -> Result<(RawSched, u64), Missing> {
        let bytes = self.finish.as_ref().map_or(Ok(Vec::new()), |link| walk(WHAT, link))?;
        self.seen.ends_missing = self.find_ends().err();
        self.skel.links.switched = None;
        self.skel.links.waking = None;
        self.skel.links.data_came = None;
        self.skel.links.born = None;
        self.skel.links.executed = None;
        self.skel.links.range_tried = None;
        self.skel.links.file_tried = None;
        self.drain().map_err(|err| missing(WHAT, &err))?;
        self.seen.live = bytes.chunks_exact(size_of::<sched_live>()).map(value).collect();
        self.seen.forget_the_dead();
        self.seen.titles = Titles::of(&self.skel.maps.titles);
        self.seen.without_wakers = self.crowd.time(Instant::now());
        self.seen.tells_ready = self.tells_ready;
        self.seen.tells_refused = self.tells_refused;
        self.seen.shed = self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.shed);
        self.seen.without_place = self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.without_place);
        let lost = self.lost();
        Ok((self.seen, lost))
    }

    /// Exits and rows that the kernel half saw but could not note.
    pub fn lost(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost)
    }
}

/// Switches a second of one CPU from which on the waker's hook is detached. At 300,000 a second a switch and the work between two is 3.3
/// us, of which the two hooks take 0.25 us: at 400,000 they would take more than a tenth.
const TOO_MANY: f64 = 300_000.0;
/// ... and below which it comes back.
const FEW_AGAIN: f64 = 150_000.0;

/// Rows and stacks that a CPU may take in 100 ms, at 1 us and 15 us each.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    rows: u64,
    stacks: u64,
}

impl Budget {
    /// 0.75 % of a CPU for stacks on a host that is only observed; an explicit request of a user may cost more.
    #[must_use]
    pub fn of(cpus: usize, followed: bool) -> Self {
        let (rows, stacks) = if followed { (8_000, 400) } else { (1_000, 50) };
        // The ring has room for the rows of all CPUs in the 200 ms until it is emptied.
        let share = (24_000 >> map_sizes::halvings()) / cpus.max(1) as u64;
        Budget { rows: rows.min(share.max(100 >> map_sizes::halvings())), stacks }
    }
}

/// x86-64 system calls whose first argument is a file descriptor: read, write, fstat, lseek, ioctl, pread64 ... as in
/// arch/x86/entry/syscalls/syscall_64.tbl.
#[rustfmt::skip]
const ON_FILES: [u32; 57] = [
    0, 1, 3, 5, 8, 16, 17, 18, 19, 20, 40, 42, 43, 44, 45, 46, 47, 48, 49, 54, 55, 72, 73, 74, 75, 77, 78, 81, 91, 93,
    187, 217, 221, 232, 233, 275, 276, 277, 278, 281, 285, 286, 287, 288, 295, 296, 299, 306, 307, 326, 327, 328, 426,
    441, 50, 51, 52,
];

fn calls_on_files() -> [u64; 8] {
    let mut bits = [0; 8];
    for nr in ON_FILES {
        bits[nr as usize / 64 % 8] |= 1 << (nr % 64);
    }
    bits
}

fn note_exit(exits: &mut Exits, rows: &mut Rows, bytes: &[u8]) {
    let exit: sched_exit = value(bytes);
    rows.note_name(&exit);
    exits.note(exit);
}

/// The number that a value begins with.
fn owner(value: &[u8]) -> u32 {
    value.first_chunk().map_or(0, |pid| u32::from_ne_bytes(*pid))
}

#[cfg(test)]
#[path = "sched_tests.rs"]
pub(super) mod tests;
