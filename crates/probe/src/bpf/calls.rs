//! Time of system calls of followed tasks, by file. The kernel half is `calls.bpf.c`.

mod names;
mod seen;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::Read as _;
use std::mem::MaybeUninit;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, OpenObject, RingBufferBuilder};
use whyslow_model::Missing;

pub use self::names::OTHER_FILES;
pub use self::seen::{Row, Seen, Single};
use super::shared::Shared;
use super::{missing, text, value};

skeleton!("calls");
use skel::types::{call_entry, call_slow, call_task};

// SAFETY: generated from the C struct; integers only.
unsafe impl plain::Plain for call_task {}

/// The name of this probe in reports.
pub const WHAT: &str = "system calls";
/// In the number of a call: by the 32-bit table, whose numbers mean other calls.
pub const COMPAT: u32 = 1 << 31;

/// `SLOTS`, `ENTRIES` and `SPARE` of the kernel half.
const SLOTS: u32 = 65536;
const ENTRIES: u32 = 65536;
const SPARE: u32 = 513;

/// Rows of ended tasks that we keep.
const MOST_TAKEN: usize = 400_000;

/// The running probe. Dropping it detaches it from the kernel.
pub struct Calls<'slot> {
    skel: skel::CallsSkel<'slot>,
    still: Link,
    slow_ns: Option<u64>,
    entry_limit: u32,
    names: names::Names,
    slow: Vec<call_slow>,
    /// Sums of tasks that have ended, by process, number and file.
    taken: HashMap<(u32, u32, u32), call_entry>,
    given_back: u32,
    next_scan: u32,
    lost: u64,
}

impl<'slot> Calls<'slot> {
    /// Load and attach. Calls are seen from when their task is in `Shared::followed`. `slow`: tell longer calls one by one.
    /// `user_stacks`: with the caller's stack, and the stacks of other calls that wait for a millisecond.
    pub fn start(
        slot: &'slot mut MaybeUninit<OpenObject>,
        shared: Option<Shared<'_>>,
        slow: Option<Duration>,
        user_stacks: bool,
    ) -> Result<Self, Missing> {
        Self::load(slot, shared, slow, user_stacks, ENTRIES).map_err(|err| missing(WHAT, &err))
    }

    fn load(
        slot: &'slot mut MaybeUninit<OpenObject>,
        shared: Option<Shared<'_>>,
        slow: Option<Duration>,
        user_stacks: bool,
        entry_limit: u32,
    ) -> libbpf_rs::Result<Self> {
        let mut open = skel::CallsSkelBuilder::default().open(slot)?;
        let slow_ns = slow.map(|slow| u64::try_from(slow.as_nanos()).unwrap_or(u64::MAX));
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            rodata.slow_ns = slow_ns.unwrap_or(u64::MAX);
            rodata.user_stacks = user_stacks.into();
            rodata.entry_limit = entry_limit;
        }
        open.maps.call_tasks.set_max_entries(pids())?;
        if let Some(shared) = shared {
            shared.lend(open.open_object_mut())?;
        }
        let mut skel = open.load()?;
        let still = skel.progs.still.attach()?;
        skel.links = skel::CallsLinks {
            entered: Some(skel.progs.entered.attach()?),
            left: Some(skel.progs.left.attach()?),
            executed: Some(skel.progs.executed.attach()?),
            ended: Some(skel.progs.ended.attach()?),
            ..skel.links
        };
        Ok(Calls {
            skel,
            still,
            slow_ns,
            entry_limit,
            names: names::Names::default(),
            slow: Vec::new(),
            taken: HashMap::new(),
            given_back: 0,
            next_scan: 0,
            lost: 0,
        })
    }

    /// Take what waits in the ring buffers, and make room. To be called a few times a second.
    pub fn poll(&mut self) -> Result<(), Missing> {
        self.drain().and_then(|()| self.make_room()).map_err(|err| missing(WHAT, &err))
    }

    fn drain(&mut self) -> libbpf_rs::Result<()> {
        let (names, lost) = (&mut self.names, &mut self.lost);
        consume(&self.skel.maps.new_names, |record| *lost += u64::from(!names.note(record)))?;
        let slow = &mut self.slow;
        consume(&self.skel.maps.slow_calls, |record| slow.push(seen::single(record)))
    }

    /// When half of the entries are in use, those of ended tasks are taken, and given back to the kernel half.
    fn make_room(&mut self) -> libbpf_rs::Result<()> {
        let given_out = self.given_out();
        let in_use = (given_out - SPARE.min(given_out)).saturating_sub(self.given_back);
        let all = self.entry_limit - SPARE;
        if in_use < (all / 2).max(self.next_scan) {
            return Ok(());
        }
        let before = self.given_back;
        let mut lives = HashMap::new();
        for at in SPARE..self.used() {
            let Some(entry) = self.entry(at)? else { continue };
            if entry.life != 0 && !self.lives(&entry, &mut lives)? {
                self.take(at, entry)?;
            }
        }
        // Nobody ended? Looking again costs, too: not before there is something new to find.
        self.next_scan = in_use.saturating_sub(self.given_back - before) + all / 16;
        Ok(())
    }

    /// Whether the task that an entry is of may still make calls.
    fn lives(&self, entry: &call_entry, known: &mut HashMap<u32, u32>) -> libbpf_rs::Result<bool> {
        if let Some(life) = known.get(&entry.pid) {
            return Ok(*life == entry.life);
        }
        let at = entry.pid & (SLOTS - 1);
        let task = self.skel.maps.call_tasks.lookup(&at.to_ne_bytes(), MapFlags::ANY)?;
        let task: call_task = task.map(|bytes| value(&bytes)).unwrap_or_default();
        let life = if task.task == 0 { 0 } else { task.life };
        known.insert(entry.pid, life);
        Ok(life == entry.life)
    }

    fn take(&mut self, at: u32, entry: call_entry) -> libbpf_rs::Result<()> {
        let key: Vec<u8> =
            [entry.life, entry.nr, entry.file].iter().flat_map(|part| part.to_ne_bytes()).collect();
        let maps = &self.skel.maps;
        maps.entries.update(&at.to_ne_bytes(), &[0; size_of::<call_entry>()], MapFlags::ANY)?;
        maps.entry_index.delete(&key)?;
        maps.spare_entries.update(&[], &at.to_ne_bytes(), MapFlags::ANY)?;
        self.given_back += 1;
        let full = self.taken.len() >= MOST_TAKEN;
        self.lost += u64::from(full);
        // All that are too many become one row for each number.
        let key = if full { (0, entry.nr, names::OTHER) } else { (entry.tgid, entry.nr, entry.file) };
        let sums = self.taken.entry(key).or_insert_with(|| empty(&entry, full));
        add(sums, &entry);
        Ok(())
    }

    fn entry(&self, at: u32) -> libbpf_rs::Result<Option<call_entry>> {
        let bytes = self.skel.maps.entries.lookup(&at.to_ne_bytes(), MapFlags::ANY)?;
        Ok(bytes.map(|bytes| value(&bytes)))
    }

    fn used(&self) -> u32 {
        let used = self.skel.maps.data_data.as_ref().map_or(SPARE, |data| data.used);
        used.min(self.entry_limit)
    }

    fn given_out(&self) -> u32 {
        self.used().saturating_add(self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.reused))
    }

    /// The window ends: detach and tell.
    pub fn finish(mut self) -> Result<(Seen, u64), Missing> {
        self.end().map_err(|err| missing(WHAT, &err))
    }

    fn end(&mut self) -> libbpf_rs::Result<(Seen, u64)> {
        let mut open = Vec::new();
        Iter::new(&self.still)?.read_to_end(&mut open).map_err(libbpf_rs::Error::from)?;
        self.skel.links = skel::CallsLinks::default();
        self.drain()?;
        let mut seen = Seen { slow_ns: self.slow_ns, ..Seen::default() };
        seen.rows = self.taken.values().map(|entry| Row::of(SPARE, entry, &self.names)).collect();
        for at in 1..self.used().max(SPARE) {
            if let Some(entry) = self.entry(at)?.filter(|entry| entry.count > 0) {
                seen.rows.push(Row::of(at, &entry, &self.names));
            }
        }
        let open = open.chunks_exact(seen::SINGLE_BYTES).map(seen::single);
        seen.singles = self.slow.drain(..).chain(open).map(|one| Single::of(&one, &self.names)).collect();
        seen.rows.extend(seen.singles.iter().filter(|one| one.open).map(Single::row));
        Ok((seen, self.lost()))
    }

    /// Single calls, names and sums that could not be noted as what they are.
    fn lost(&self) -> u64 {
        self.lost + self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost)
    }

    /// Follow one thread from now on. (Who is born to it is followed only if the sched object lent its maps.)
    pub fn follow(&self, pid: u32) -> Result<(), Missing> {
        let value = [pid.to_ne_bytes(), 1u32.to_ne_bytes()].concat();
        let at = (pid & (SLOTS - 1)).to_ne_bytes();
        self.skel.maps.followed.update(&at, &value, MapFlags::ANY).map_err(|err| missing(WHAT, &err))
    }
}

/// The head of an entry, with nothing summed yet.
fn empty(entry: &call_entry, of_all: bool) -> call_entry {
    let (nr, comm) = (entry.nr, entry.comm);
    if of_all {
        return call_entry { nr, file: names::OTHER, ..call_entry::default() };
    }
    call_entry { nr, file: entry.file, pid: entry.pid, tgid: entry.tgid, comm, ..call_entry::default() }
}

fn add(sums: &mut call_entry, entry: &call_entry) {
    sums.count += entry.count;
    sums.errors += entry.errors;
    sums.total_ns = sums.total_ns.saturating_add(entry.total_ns);
    sums.worst_ns = sums.worst_ns.max(entry.worst_ns);
    for (sum, part) in sums.split.iter_mut().zip(entry.split) {
        *sum = sum.saturating_add(part);
    }
}

/// So many pids are there: fewer than slots on most hosts.
fn pids() -> u32 {
    let most = std::fs::read_to_string("/proc/sys/kernel/pid_max")
        .ok()
        .and_then(|text| text.trim().parse::<u32>().ok());
    most.map_or(SLOTS, |most| most.min(SLOTS).next_power_of_two())
}

fn consume(ring: &dyn MapCore, mut note: impl FnMut(&[u8])) -> libbpf_rs::Result<()> {
    let mut builder = RingBufferBuilder::new();
    builder.add(ring, move |record: &[u8]| {
        note(record);
        0
    })?;
    builder.build()?.consume()
}
