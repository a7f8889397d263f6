//! Time of system calls of followed tasks, by file. The kernel half is `calls.bpf.c`.

mod names;
mod runs;
mod seen;
mod taken;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, hash_map};
use std::io::Read as _;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, OpenObject};
use whyslow_model::Missing;

pub use self::names::OTHER_FILES;
use self::runs::Runs;
pub use self::seen::{RawCalls, Row, Single};
use self::taken::Taken;
use super::constants::calls_h::{ENTRIES, SPARE};
use super::mapped_ring::MappedRing;
use super::shared::{Shared, homes};
use super::{map_sizes, missing, text, value};
use crate::probes::{Ending, Entry, LoadOrder, Probe};
use crate::{call_table, host};

skeleton!("calls");
use skel::types::{call_entry, call_slow, call_task};

// SAFETY: generated from the C struct; integers only.
unsafe impl plain::Plain for call_task {}

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::SystemCalls.word();
/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    capability: "BPF: system calls",
    lost: "which file a command's time went to, and its slow calls",
    load: LoadOrder::AfterScheduler,
    follows: true,
    shed: &[],
    of_waits: true,
    start: |slot, start| {
        let (slow, user_stacks) = start.follow.map_or((None, false), |to| (to.slow, to.user_stacks));
        Ok(Some(Box::new(Calls::start(slot, start.shared, slow, user_stacks)?)))
    },
};

/// Bit in the number of a call: by the 32-bit table, whose numbers mean other calls.
pub const COMPAT: u32 = 1 << 31;

/// The running probe. Dropping it detaches it from the kernel.
pub struct Calls<'slot> {
    skel: skel::CallsSkel<'slot>,
    new_names: MappedRing,
    slow_calls: MappedRing,
    still: Link,
    slow_ns: Option<u64>,
    runs: Runs,
    /// Entries for single tasks, in all.
    all: u32,
    names: names::Names,
    slow: seen::Slowest,
    taken: Taken,
    given_back: u32,
    /// Entries that no new call finds; only a task that remembers one may add to it.
    detached: BTreeSet<u32>,
    next_scan: u32,
    lost: u64,
    /// The calls that tasks were in when the window ended, once it has.
    open: Option<Vec<call_slow>>,
}

impl<'slot> Calls<'slot> {
    /// Load and attach. A task's calls are seen once it is in `Shared::followed`. `slow`: report longer calls one by one. `user_stacks`:
    /// with the caller's stack, and the stacks of other calls that wait for a millisecond.
    pub fn start(
        slot: &'slot mut MaybeUninit<OpenObject>,
        shared: Option<Shared<'_>>,
        slow: Option<Duration>,
        user_stacks: bool,
    ) -> Result<Self, Missing> {
        super::ring::may_be_filled(WHAT)?;
        Self::load(slot, shared, slow, user_stacks, map_sizes::rows(ENTRIES))
            .map_err(|err| missing(WHAT, &err))
    }

    fn load(
        slot: &'slot mut MaybeUninit<OpenObject>,
        shared: Option<Shared<'_>>,
        slow: Option<Duration>,
        user_stacks: bool,
        entry_limit: u32,
    ) -> libbpf_rs::Result<Self> {
        let cpus = libbpf_rs::num_possible_cpus().ok().and_then(|cpus| u32::try_from(cpus).ok()).unwrap_or(1);
        let mut open = skel::CallsSkelBuilder::default().open(slot)?;
        map_sizes::apply(open.open_object_mut())?;
        let slow_ns = slow.map(|slow| u64::try_from(slow.as_nanos()).unwrap_or(u64::MAX));
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            rodata.slow_ns = slow_ns.unwrap_or(u64::MAX);
            rodata.user_stacks = user_stacks.into();
            rodata.cpus = cpus;
            rodata.homes = homes();
        }
        if let Some(shared) = shared {
            open.maps.call_tasks.set_max_entries(shared.places)?;
            shared.lend(open.open_object_mut())?;
        }
        let mut skel = open.load()?;
        let runs = Runs::of(SPARE..entry_limit, cpus);
        runs.fill(&skel.maps.free_runs, &skel.maps.last_runs)?;
        let still = skel.progs.still.attach()?;
        skel.links = skel::CallsLinks {
            entered: Some(skel.progs.entered.attach()?),
            left: Some(skel.progs.left.attach()?),
            executed: Some(skel.progs.executed.attach()?),
            ended: Some(skel.progs.ended.attach()?),
            ..skel.links
        };
        Ok(Calls {
            new_names: MappedRing::default(),
            slow_calls: MappedRing::default(),
            skel,
            still,
            slow_ns,
            runs,
            all: entry_limit.saturating_sub(SPARE),
            names: names::Names::default(),
            slow: seen::Slowest::default(),
            taken: Taken::default(),
            given_back: 0,
            detached: BTreeSet::new(),
            next_scan: 0,
            lost: 0,
            open: None,
        })
    }

    /// Take some of the records in the ring buffers, and make room; true: there may be more. To be called a few times a second.
    pub fn poll(&mut self) -> Result<bool, Missing> {
        let more = self.take_some().map_err(|err| missing(WHAT, &err))?;
        self.make_room().map_err(|err| missing(WHAT, &err))?;
        Ok(more)
    }

    fn take_some(&mut self) -> libbpf_rs::Result<bool> {
        let (names, lost, slow) = (&mut self.names, &mut self.lost, &mut self.slow);
        let maps = &self.skel.maps;
        let note = |record: &[u8]| *lost += u64::from(!names.note(record));
        let more = self.new_names.take_some(&maps.new_names, note)?;
        Ok(self.slow_calls.take_some(&maps.slow_calls, |record| slow.note(seen::single(record)))? || more)
    }

    fn drain(&mut self) -> libbpf_rs::Result<()> {
        let (names, lost, slow) = (&mut self.names, &mut self.lost, &mut self.slow);
        let maps = &self.skel.maps;
        let note = |record: &[u8]| *lost += u64::from(!names.note(record));
        self.new_names.take_all(&maps.new_names, note)?;
        self.slow_calls.take_all(&maps.slow_calls, |record| slow.note(seen::single(record)))
    }

    /// When half of the entries are in use, their sums are taken and they are given back to the kernel half.
    ///
    /// Entries of ended tasks are taken at once. For others, the look-up of the entry is removed first: a task that still remembers the
    /// place may add to it, and a task remembers few. Entries that no task remembers at the next beat are taken then.
    fn make_room(&mut self) -> libbpf_rs::Result<()> {
        self.take_detached()?;
        if self.in_use() < (self.all / 2).max(self.next_scan) {
            return Ok(());
        }
        let mut tasks = HashMap::new();
        for at in self.used().into_iter().flatten() {
            let Some(entry) = self.entry(at)?.filter(|entry| entry.life != 0) else { continue };
            if self.detached.contains(&at) {
                continue;
            }
            self.forget_way(&entry)?;
            if self.is_reachable(at, &entry, &mut tasks, true)? {
                self.detached.insert(at);
            } else {
                self.take(at, &entry)?;
            }
        }
        // Another scan costs time, too: none before there is something new to find.
        self.next_scan = self.in_use() + self.all / 16;
        Ok(())
    }

    fn take_detached(&mut self) -> libbpf_rs::Result<()> {
        let mut tasks = HashMap::new();
        for at in std::mem::take(&mut self.detached) {
            let Some(entry) = self.entry(at)? else { continue };
            if self.is_reachable(at, &entry, &mut tasks, false)? {
                self.detached.insert(at);
            } else {
                self.take(at, &entry)?;
                self.next_scan = 0;
            }
        }
        Ok(())
    }

    /// Whether the task of an entry may still add to it: it lives, and remembers the place (or may have requested it `just_now`).
    fn is_reachable(
        &self,
        at: u32,
        entry: &call_entry,
        known: &mut HashMap<u32, call_task>,
        just_now: bool,
    ) -> libbpf_rs::Result<bool> {
        if let hash_map::Entry::Vacant(vacant) = known.entry(entry.pid) {
            let spare = self.skel.maps.displaced.lookup(&entry.pid.to_ne_bytes(), MapFlags::ANY)?;
            let place = spare.unwrap_or_else(|| (entry.pid % homes()).to_ne_bytes().to_vec());
            let bytes = self.skel.maps.call_tasks.lookup(&place, MapFlags::ANY)?;
            vacant.insert(bytes.map(|bytes| value(&bytes)).unwrap_or_default());
        }
        let Some(task) = known.get(&entry.pid) else { return Ok(false) };
        let lives = task.task != 0 && task.life == entry.life;
        Ok(lives && (just_now || task.entry == at || task.seen.iter().any(|seen| seen.entry == at)))
    }

    fn forget_way(&self, entry: &call_entry) -> libbpf_rs::Result<()> {
        let key: Vec<u8> =
            [entry.life, entry.nr, entry.file].iter().flat_map(|part| part.to_ne_bytes()).collect();
        self.skel.maps.entry_index.delete(&key)
    }

    fn take(&mut self, at: u32, entry: &call_entry) -> libbpf_rs::Result<()> {
        let maps = &self.skel.maps;
        maps.entries.update(&at.to_ne_bytes(), &[0; size_of::<call_entry>()], MapFlags::ANY)?;
        maps.spare_entries.update(&[], &at.to_ne_bytes(), MapFlags::ANY)?;
        self.given_back += 1;
        self.taken.add(entry);
        Ok(())
    }

    fn entry(&self, at: u32) -> libbpf_rs::Result<Option<call_entry>> {
        let bytes = self.skel.maps.entries.lookup(&at.to_ne_bytes(), MapFlags::ANY)?;
        Ok(bytes.map(|bytes| value(&bytes)))
    }

    /// Entries that CPUs have taken for the first time.
    fn used(&self) -> [Range<u32>; 2] {
        let runs =
            self.skel.maps.bss_data.as_ref().map_or((0, 0), |bss| (bss.runs_taken, bss.last_runs_taken));
        self.runs.taken(runs.0, runs.1)
    }

    fn in_use(&self) -> u32 {
        let reused = self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.reused);
        let used =
            self.used().iter().map(|run| run.end.saturating_sub(run.start)).fold(reused, u32::saturating_add);
        used.saturating_sub(self.given_back)
    }

    fn close(&mut self) -> libbpf_rs::Result<()> {
        if self.open.is_none() {
            self.open = Some(self.open_at(host::monotonic_ns())?);
        }
        Ok(())
    }

    /// Detach and report.
    pub fn finish(mut self) -> Result<(RawCalls, u64), Missing> {
        self.end().map_err(|err| missing(WHAT, &err))
    }

    fn end(&mut self) -> libbpf_rs::Result<(RawCalls, u64)> {
        self.close()?;
        self.skel.links = skel::CallsLinks::default();
        let open = self.open.take().unwrap_or_default();
        self.drain()?;
        let mut seen = RawCalls { slow_ns: self.slow_ns, ..RawCalls::default() };
        seen.rows = self.taken.rows().map(|entry| Row::of(SPARE, entry, &self.names)).collect();
        for at in (1..SPARE).chain(self.used().into_iter().flatten()) {
            if let Some(entry) = self.entry(at)?.filter(|entry| entry.count > 0) {
                seen.rows.push(Row::of(at, &entry, &self.names));
            }
        }
        let (slow, untold) = self.slow.take();
        seen.untold = untold;
        seen.singles = slow.into_iter().chain(open).map(|one| Single::of(&one, &self.names)).collect();
        seen.rows.extend(seen.singles.iter().filter(|one| one.open).map(Single::row));
        Ok((seen, self.lost()))
    }

    /// The calls that tasks are in, up to `ended_at`: from now on no call is seen to begin or to end.
    fn open_at(&mut self, ended_at: u64) -> libbpf_rs::Result<Vec<call_slow>> {
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.ended_at = ended_at;
        }
        let mut open = Vec::new();
        Iter::new(&self.still)?.read_to_end(&mut open).map_err(libbpf_rs::Error::from)?;
        Ok(open.chunks_exact(seen::SINGLE_BYTES).map(seen::single).collect())
    }

    /// Single calls, names and sums that could not be noted as such.
    fn lost(&self) -> u64 {
        self.lost + self.taken.lost + self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost)
    }

    /// Follow one thread from now on. (Its children are followed only if the sched object lent its maps.)
    pub fn follow(&self, pid: u32) -> Result<(), Missing> {
        let value = [pid.to_ne_bytes(), 1u32.to_ne_bytes()].concat();
        let at = (pid % homes()).to_ne_bytes();
        self.skel.maps.followed.update(&at, &value, MapFlags::ANY).map_err(|err| missing(WHAT, &err))
    }
}

impl Probe for Calls<'_> {
    fn poll(&mut self, _at: Duration) -> bool {
        Calls::poll(self).unwrap_or_default()
    }

    /// Later calls are not recorded: detaching the hooks and reporting may take a while.
    fn stop(&mut self, _window: Duration) -> Result<(), Missing> {
        self.close().map_err(|err| missing(WHAT, &err))
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        let (mut seen, lost) = self.end().map_err(|err| missing(WHAT, &err))?;
        ending.lost(WHAT, lost);
        ending.later(move |naming| {
            if let Some(numbers) = naming.numbers {
                seen.rows.iter_mut().for_each(|row| numbers.show([&mut row.pid, &mut row.tgid]));
                seen.singles.iter_mut().for_each(|one| numbers.show([&mut one.pid, &mut one.tgid]));
            }
            let (window, first) = (naming.window, naming.free_stack());
            let told = call_table::tables(seen, window.start_ns, window.ns, first, naming.missing);
            if told.untold > 0 {
                let reason = format!("{} more than were kept", told.untold);
                naming.missing.push(Missing::skipped("slow system calls", reason).into());
            }
            naming.tables.calls = Some(told.calls);
            naming.tables.slow_calls = Some(told.slow_calls);
            naming.add_stacks(told.stacks);
        });
        Ok(())
    }
}
