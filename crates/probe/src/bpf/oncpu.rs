//! What runs on the CPUs? The kernel half is `oncpu.bpf.c`.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, MapMut, OpenObject};
use whyslow_model::stat_read::{LONG_READ_NS, StatRead};
use whyslow_model::{Missing, MissingNote, table};

use self::gathered::{Count, Gathered};
use super::{map_sizes, missing, types, value};
use crate::open_files;
use crate::perf_event::{self, Attr};
use crate::probes::{Ending, Entry, LoadOrder, Probe};
use crate::sample_table;
use crate::user_code::{Budget, Codes, Maps, Namer, Place, UserNames};

mod gathered;
mod stat_reads;

skeleton!("oncpu");
use skel::types::{oncpu_count, spin_code, spin_place, user_stack};
pub use skel::types::{
    oncpu_cpu, oncpu_key, python_code as PythonCode, python_layout as PythonLayout,
    unwind_block as UnwindBlock,
};

// SAFETY: generated from the C struct; integers and bytes only.
unsafe impl plain::Plain for oncpu_key {}
// SAFETY: as above.
unsafe impl plain::Plain for oncpu_cpu {}
// SAFETY: as above.
unsafe impl plain::Plain for oncpu_count {}
// SAFETY: as above.
unsafe impl plain::Plain for spin_place {}
// SAFETY: as above.
unsafe impl plain::Plain for spin_code {}

// SAFETY: as above.
unsafe impl plain::Plain for PythonCode {}
// SAFETY: as above.
unsafe impl plain::Plain for user_stack {}

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::OnCpuSamples.word();
/// ... and of the samples for which only the owner could be noted.
pub const CODE: &str = whyslow_model::Probe::Code.word();

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    capability: "BPF: on-CPU samples",
    lost: "which function uses the CPU, and which thread only waits there",
    load: LoadOrder::BesideScheduler,
    follows: false,
    shed: &[],
    of_waits: true,
    start: |slot, start| {
        let pace = if start.follow.is_some() { Pace::Close } else { Pace::Calm };
        Ok(Some(Box::new(OnCpu::load(slot, start.cpus, pace)?)))
    },
};

/// Samples a second on each CPU. Neither rate is in step with the tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// A host that is only observed.
    Calm,
    /// A command whose time the user asked for: a run of 100 ms has fifty samples, at 15 to 20 us each.
    Close,
}

impl Pace {
    fn hertz(self) -> u64 {
        match self {
            // A thread that gets a twentieth of two CPUs for 3 s is sampled 60 times: its time is known to a quarter. 0.3 % of a CPU.
            Pace::Calm => 199,
            Pace::Close => 499,
        }
    }

    /// CPU time for names and unwinding while the window lasts. A user who runs one command wants its callers; a host has other work.
    fn budget(self) -> Budget {
        match self {
            Pace::Calm => Budget { credit: Duration::from_millis(10), share: 0.006 },
            Pace::Close => Budget { credit: Duration::from_millis(80), share: 0.02 },
        }
    }

    /// How long one sample stands for.
    #[must_use]
    pub fn period(self) -> Duration {
        Duration::from_nanos(1_000_000_000 / self.hertz())
    }
}

/// Rows and stacks of each of the two sets of tables on a host of up to 128 CPUs; twice as many on larger ones.
const MAX_STACKS: u32 = 16_384;
/// Samples without stacks are one row per thread: half as many rows as the others have, and at least so many.
const LEAST_BARE: u32 = 1024;
/// A set is exchanged for the other when a part of it is in use: a stack finds its place taken by another as often as there are stacks, and
/// there is room for the samples of 512 CPUs until the next poll.
const CHANGED_AT: u32 = 4;

/// Missing callers are reported from this part of the samples on.
const CUT_IS_TOLD: u64 = 10;

/// Beats after which a set is emptied to look up names, however little is in it.
const NAMED_EVERY: u32 = 7;

/// The running probe. Dropping it detaches it from the kernel.
pub struct OnCpu<'slot> {
    skel: skel::OncpuSkel<'slot>,
    timers: Vec<File>,
    cpus: Vec<u32>,
    pace: Pace,
    rows: u32,
    gathered: Gathered,
    namer: Option<Namer>,
    /// Why there is no namer.
    unnamed: Option<Missing>,
    without_room: u64,
    /// Beats since names were looked up.
    beats: u32,
    /// The set that is to be emptied: the kernel half no longer fills it.
    full: Option<u32>,
}

/// One stack on CPU.
pub struct Hit {
    /// Thread and process.
    pub key: oncpu_key,
    /// Samples.
    pub count: u64,
    /// Samples with all registers as in the thread's sample before.
    pub same: u64,
    /// ... with rax 0, as after a system call that has just returned 0.
    pub zero: u64,
    /// ... -EAGAIN.
    pub again: u64,
    /// There was no room to note the code.
    pub bare: bool,
    /// Kernel addresses, innermost first.
    pub kernel: Vec<u64>,
    /// User frames, innermost first ([`crate::user_code::Place`]).
    pub user: Vec<u64>,
}

/// Code around an address that was sampled.
pub struct Code {
    /// The process that ran it.
    pub tgid: u32,
    /// The block of addresses that it was kept for.
    pub block: u64,
    /// Address of the first byte.
    pub start: u64,
    /// The code.
    pub bytes: Vec<u8>,
}

/// Addresses of one block have all but this many low bits in common.
pub const BLOCK_BITS: u32 = super::constants::spin_h::SPIN_BLOCK.ilog2();

/// All samples.
#[derive(Default)]
pub struct RawSamples {
    /// Stacks.
    pub hits: Vec<Hit>,
    /// The code that was run, by blocks.
    pub codes: Vec<Code>,
}

/// The note on CPUs that are reserved, and not sampled for that reason.
#[must_use]
pub fn spared(cpus: &[u32], why: &str) -> Option<MissingNote> {
    let named: Vec<String> = cpus.iter().take(NAMED).map(u32::to_string).collect();
    let more = match cpus.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let reason = format!(
        "they are {why}: a timer would disturb the tasks they are kept for; whyslow cpu --all-cpus sets it"
    );
    (!cpus.is_empty())
        .then(|| Missing::skipped(format!("{WHAT} of CPU {}{more}", named.join(", ")), reason).into())
}

/// CPUs that are named; the others are counted.
const NAMED: usize = 8;

impl<'slot> OnCpu<'slot> {
    /// Load it; it will sample `cpus`.
    pub fn load(slot: &'slot mut MaybeUninit<OpenObject>, cpus: &[u32], pace: Pace) -> Result<Self, Missing> {
        let rows = if cpus.len() > 128 { 2 * MAX_STACKS } else { MAX_STACKS };
        Self::load_with(slot, cpus, pace, map_sizes::rows(rows)).map_err(|err| missing(WHAT, &err))
    }

    fn load_with(
        slot: &'slot mut MaybeUninit<OpenObject>,
        cpus: &[u32],
        pace: Pace,
        rows: u32,
    ) -> libbpf_rs::Result<Self> {
        let mut open = types::builder::<skel::OncpuSkelBuilder>().open(slot)?;
        map_sizes::apply(open.open_object_mut())?;
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            rodata.period_ns = pace.period().as_nanos() as u64;
            rodata.long_read_ns = LONG_READ_NS;
            (rodata.shown_dev, rodata.shown_ino) = crate::pid_map::pid_namespace();
        }
        let maps = &mut open.maps;
        for map in [&mut maps.counts, &mut maps.counts_2] {
            map.set_max_entries(rows)?;
        }
        for map in [&mut maps.stacks, &mut maps.stacks_2, &mut maps.users, &mut maps.users_2] {
            map.set_max_entries(rows / 2)?;
        }
        for map in [&mut maps.bare, &mut maps.bare_2] {
            map.set_max_entries((rows / 2).max(LEAST_BARE))?;
        }
        let skel = open.load()?;
        let (timers, gathered) = (Vec::new(), Gathered::default());
        let cpus = cpus.to_vec();
        Ok(Self {
            skel,
            timers,
            cpus,
            pace,
            rows,
            gathered,
            namer: None,
            unnamed: None,
            without_room: 0,
            beats: 0,
            full: None,
        })
    }

    /// Start a timer on each CPU: the window begins.
    pub fn begin(&mut self) -> Result<(), Missing> {
        let maps = &self.skel.maps;
        let shared = Maps {
            news: &maps.user_news,
            rows: maps.unwind_rows.as_fd(),
            most_rows: maps.unwind_rows.max_entries() as usize,
            blocks: maps.unwind_blocks.as_fd(),
            pythons: maps.python_files.as_fd(),
        };
        match Namer::start(&shared, self.pace.budget()) {
            Ok(namer) => self.namer = Some(namer),
            Err(why) => self.unnamed = Some(why),
        }
        for cpu in &self.cpus {
            let program = self.skel.progs.sampled.as_fd();
            self.timers.push(timer(WHAT, *cpu, self.pace.hertz(), program)?);
        }
        Ok(())
    }

    /// Load, and begin.
    pub fn start(
        slot: &'slot mut MaybeUninit<OpenObject>,
        cpus: &[u32],
        pace: Pace,
    ) -> Result<Self, Missing> {
        let mut probe = Self::load(slot, cpus, pace)?;
        probe.begin()?;
        Ok(probe)
    }

    /// Make sure that there is room. To be called a few times a second.
    ///
    /// A set of tables is emptied one call after it was exchanged for the other: by then no sample is on its way into it.
    pub fn poll(&mut self) -> Result<(), Missing> {
        if let Some(namer) = &mut self.namer {
            namer.listen();
        }
        if let Some(set) = self.full.take() {
            return self.empty(set);
        }
        self.beats += 1;
        let Some(bss) = self.skel.maps.bss_data.as_mut() else { return Ok(()) };
        if bss.noted >= u64::from(self.rows / CHANGED_AT) || bss.noted > 0 && self.beats >= NAMED_EVERY {
            self.beats = 0;
            self.full = Some(bss.second);
            bss.second = 1 - bss.second.min(1);
            bss.noted = 0;
        }
        Ok(())
    }

    /// Stop the timers and report their samples.
    pub fn finish(&mut self) -> Result<RawSamples, Missing> {
        self.timers.clear();
        self.empty(0)?;
        self.empty(1)?;
        let (hits, codes) = std::mem::take(&mut self.gathered).into_parts();
        Ok(RawSamples { hits, codes })
    }

    /// ... with the names of user code.
    #[cfg(test)]
    pub fn finish_with_names(&mut self) -> Result<(Vec<Hit>, UserNames), Missing> {
        let hits = self.finish()?.hits;
        let mut namer = self.namer.take().expect("it was started");
        namer.over();
        let codes = python_codes(&self.skel.maps.python_codes);
        let names = namer.names(addresses_of(&hits), codes, &mut Vec::new());
        Ok((hits, names))
    }

    fn empty(&mut self, set: u32) -> Result<(), Missing> {
        let maps = &self.skel.maps;
        let (counts, stacks, users, bare) = match set {
            0 => (&maps.counts, &maps.stacks, &maps.users, &maps.bare),
            _ => (&maps.counts_2, &maps.stacks_2, &maps.users_2, &maps.bare_2),
        };
        let reported = take_all(counts, self.rows).map_err(|err| missing(WHAT, &err))?;
        let mut known: HashMap<i32, Vec<u64>> = HashMap::new();
        let users = user_stacks(users, self.rows / 2).map_err(|err| missing(WHAT, &err))?;
        for (key, count) in &reported {
            let (key, count): (oncpu_key, oncpu_count) = (value(key), value(count));
            let kernel = known
                .entry(key.kernel)
                .or_insert_with(|| super::stack(stacks, key.kernel).unwrap_or_default());
            let user = users.get(&key.user).map_or(&[][..], Vec::as_slice);
            self.gathered.add(&key, Some((kernel, user)), &counted(&count));
        }
        if let Some(namer) = &mut self.namer {
            namer.ask(users.values().flatten().copied());
        }
        super::clear(stacks);
        for (key, count) in take_all(bare, MAX_STACKS).map_err(|err| missing(WHAT, &err))? {
            let count = counted(&value(&count));
            self.without_room = self.without_room.saturating_add(count.samples);
            self.gathered.add(&value(&key), None, &count);
        }
        self.codes()
    }

    fn codes(&mut self) -> Result<(), Missing> {
        let map = &self.skel.maps.spin_codes;
        for bytes in map.keys() {
            let Some(code) = map.lookup(&bytes, MapFlags::ANY).map_err(|err| missing(WHAT, &err))? else {
                continue;
            };
            let (place, code): (spin_place, spin_code) = (value(&bytes), value(&code));
            let length = usize::try_from(code.length).unwrap_or(0).min(code.bytes.len());
            let bytes = code.bytes.get(..length).unwrap_or_default().to_vec();
            self.gathered.keep(Code { tgid: place.tgid, block: place.block, start: code.start, bytes });
        }
        Ok(())
    }

    /// The statistics files that were read; and how many reads found no room. `None`: this kernel does not tell one read from the next.
    fn stat_reads(&self) -> Result<Option<(Vec<StatRead>, u64)>, Missing> {
        let (untold, lost) = self
            .skel
            .maps
            .bss_data
            .as_ref()
            .map_or((0, 0), |bss| (bss.stat_reads_untold, bss.stat_reads_lost));
        let rows = stat_reads::taken(&self.skel.maps.stat_files)?;
        Ok((untold == 0).then_some((rows, lost)))
    }

    /// Samples and gaps, by CPU.
    pub fn cpus(&self) -> Result<Vec<oncpu_cpu>, Missing> {
        let values = self.skel.maps.cpus.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let values = values.map_err(|err| missing(WHAT, &err))?.unwrap_or_default();
        Ok(values.iter().map(|bytes| value(bytes)).collect())
    }

    /// Samples for which only the owner could be noted.
    pub fn without_room(&self) -> u64 {
        self.without_room
    }

    /// Which parts of user code are not known, and why.
    fn short(&self) -> Vec<MissingNote> {
        let Some(bss) = self.skel.maps.bss_data.as_ref() else { return Vec::new() };
        let skipped = |what: &str, why: String| MissingNote::from(Missing::skipped(what, why));
        let (all, cut) = (bss.user_walks_begun, bss.user_walks_cut);
        // In each window some are missing: tables are made for code that was sampled.
        let many = cut > all / CUT_IS_TOLD;
        let cut = many.then(|| {
            let why = format!(
                "of {cut} of {all} samples: the unwinding tables of their code were not there yet, or \
                         its file could not be opened"
            );
            skipped("callers of user code", why)
        });
        let counted = [
            (
                "files of user code",
                bss.user_files_refused,
                "frames lie in files for which there was no number left",
            ),
            (
                "functions of Python",
                bss.python_codes_refused,
                "frames are of functions for which there was no number left",
            ),
            ("user code", bss.users_refused, "samples had stacks for which there was no room left"),
        ];
        let counted = counted.into_iter().filter(|(_, count, _)| *count > 0);
        cut.into_iter()
            .chain(counted.map(|(what, count, why)| skipped(what, format!("{count} {why}"))))
            .collect()
    }

    /// Samples that the kernel half could not note.
    pub fn lost(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost)
    }
}

impl Probe for OnCpu<'_> {
    fn may_interrupt(&mut self, cpus: &[u32]) -> Result<(), Missing> {
        self.cpus = cpus.to_vec();
        Ok(())
    }

    fn begin(&mut self) -> Result<(), Missing> {
        OnCpu::begin(self)
    }

    fn poll(&mut self, _at: Duration) -> bool {
        let _ = OnCpu::poll(self);
        false
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        let told = OnCpu::finish(self);
        ending.lost(WHAT, self.lost());
        ending.lost(CODE, self.without_room());
        if let Some(cpus) = ending.keep(self.cpus()) {
            note_gaps(ending.tables.cpus.get_or_insert_default(), &cpus);
        }
        match ending.keep(self.stat_reads()) {
            Some(Some((rows, lost))) => {
                ending.tables.stat_reads = Some(rows);
                ending.lost(stat_reads::WHAT, lost);
            }
            Some(None) => ending.missing.push(stat_reads::untold()),
            None => {}
        }
        let mut seen = told?;
        let pace = self.pace;
        let namer = self.namer.take().map(|mut namer| {
            ending.own_process(namer.pid());
            namer.over();
            namer
        });
        ending.missing.extend(self.unnamed.take().map(MissingNote::from));
        ending.missing.extend(self.short());
        let codes = python_codes(&self.skel.maps.python_codes);
        ending.later(move |naming| {
            if let Some(numbers) = naming.numbers {
                seen.hits.iter_mut().for_each(|hit| numbers.show([&mut hit.key.pid, &mut hit.key.tgid]));
                seen.codes.iter_mut().for_each(|code| code.tgid = numbers.shown(code.tgid));
            }
            let addresses = addresses_of(&seen.hits);
            let names =
                namer.map_or_else(UserNames::default, |namer| namer.names(addresses, codes, naming.missing));
            let (samples, spins) = sample_table::samples_of(&seen, pace, naming.kernel, &names);
            naming.tables.samples = Some(samples);
            naming.tables.spins = Some(spins);
        });
        Ok(())
    }

    #[cfg(test)]
    fn interrupts(&self) -> Vec<u32> {
        self.cpus.clone()
    }
}

/// Fill in the sampler's values of each CPU.
fn note_gaps(rows: &mut Vec<table::Cpu>, seen: &[oncpu_cpu]) {
    for (cpu, gaps) in seen.iter().enumerate().filter(|(_, cpu)| cpu.samples > 0) {
        let at = rows.iter().position(|row| row.cpu == cpu as u32).unwrap_or_else(|| {
            rows.push(table::Cpu { cpu: cpu as u32, ..table::Cpu::default() });
            rows.len() - 1
        });
        rows[at].samples = gaps.samples;
        rows[at].gaps = gaps.gaps;
        rows[at].worst_gap_ns = gaps.worst_gap_ns;
    }
}

/// Take all rows of a table that is no longer filled. Before v5.6 (05799638005f) one by one.
fn take_all(map: &MapMut<'_>, most: u32) -> libbpf_rs::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    if let Ok(rows) = map.lookup_and_delete_batch(most, MapFlags::ANY, MapFlags::ANY) {
        return Ok(rows.collect());
    }
    let mut rows = Vec::new();
    for key in map.keys() {
        if let Some(row) = map.lookup(&key, MapFlags::ANY)? {
            map.delete(&key)?;
            rows.push((key, row));
        }
    }
    Ok(rows)
}

/// Frames of user code, by their number.
fn user_stacks(map: &MapMut<'_>, most: u32) -> libbpf_rs::Result<HashMap<u64, Vec<u64>>> {
    let row = |(key, bytes): (Vec<u8>, Vec<u8>)| {
        let one: user_stack = value(&bytes);
        let count = usize::try_from(one.count).unwrap_or(0);
        (value(&key), one.frames.iter().take(count).copied().collect())
    };
    Ok(take_all(map, most)?.into_iter().map(row).collect())
}

/// Addresses that are in no file, by process.
fn addresses_of(hits: &[Hit]) -> HashMap<u32, HashSet<u64>> {
    let mut all: HashMap<u32, HashSet<u64>> = HashMap::new();
    for hit in hits {
        let own = hit.user.iter().filter(|word| matches!(Place::of(**word), Place::Address(_)));
        all.entry(hit.key.tgid).or_default().extend(own);
    }
    all.retain(|_, addresses| !addresses.is_empty());
    all
}

fn python_codes(map: &MapMut<'_>) -> Codes {
    let row = |key: Vec<u8>| {
        let code: PythonCode = value(&map.lookup(&key, MapFlags::ANY).ok()??);
        Some((value(&key), code))
    };
    Codes(map.keys().filter_map(row).collect())
}

fn counted(count: &oncpu_count) -> Count {
    let oncpu_count { samples, signs } = count;
    Count { samples: *samples, same: signs.same, zero: signs.zero, again: signs.again }
}

/// A cpu-clock event on one CPU, for the probe called `what`: `program` runs `hertz` times a second until it is closed.
pub(super) fn timer(what: &str, cpu: u32, hertz: u64, program: BorrowedFd<'_>) -> Result<File, Missing> {
    const PERF_TYPE_SOFTWARE: u32 = 1;
    const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
    const FREQ: u64 = 1 << 10;
    let attr = Attr {
        kind: PERF_TYPE_SOFTWARE,
        config: PERF_COUNT_SW_CPU_CLOCK,
        sample_freq: hertz,
        flags: FREQ,
        ..Attr::default()
    };
    let not_allowed = |way_out: String| Missing::NotAllowed { what: what.to_owned(), way_out };
    let opened = perf_event::open(attr, cpu, -1).map_err(|err| match err.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => not_allowed(crate::rights::Rights::own().way_out_for_perf()),
        Some(libc::EMFILE) => not_allowed(open_files::WAY_OUT.to_owned()),
        _ => Missing::broken(what, err),
    })?;
    perf_event::run(&opened, program).map_err(|err| Missing::broken(what, err))?;
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn root_a_busy_thread_is_sampled_in_proportion_to_its_cpu_time() {
        let mut slot = MaybeUninit::uninit();
        let mut probe = OnCpu::start(&mut slot, &[0, 1], Pace::Calm).expect("root may sample");
        let before = thread_cpu();
        let until = Instant::now() + Duration::from_millis(600);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let burned = thread_cpu() - before;
        // SAFETY: gettid has no arguments and cannot fail.
        let me = unsafe { libc::gettid() } as u32;
        let hits = probe.finish().unwrap().hits;
        let mine: u64 = hits.iter().filter(|hit| hit.key.pid == me).map(|hit| hit.count).sum();
        let seen = Pace::Calm.period() * u32::try_from(mine).unwrap();
        assert_eq!(probe.lost(), 0);
        let ratio = seen.as_secs_f64() / burned.as_secs_f64();
        assert!((0.6..1.5).contains(&ratio), "sampled {seen:?} of {burned:?}");
        assert!(hits.iter().any(|hit| hit.key.pid == me && !hit.user.is_empty()));
    }

    /// A hundred threads fill tables of 64 rows; then another one works, and must be reported as what it is.
    fn met_after_the_tables_are_full(polled: bool) -> (f64, f64, u64) {
        let mut slot = MaybeUninit::uninit();
        let mut probe = OnCpu::load_with(&mut slot, &[0, 1], Pace::Close, 64).unwrap();
        probe.begin().unwrap();
        let burn = |time| {
            let began = thread_cpu();
            while thread_cpu() - began < time {
                std::hint::spin_loop();
            }
        };
        let mut poll = || {
            if polled {
                probe.poll().unwrap()
            }
        };
        for _ in 0..100 {
            std::thread::spawn(move || burn(Duration::from_millis(6))).join().unwrap();
            poll();
        }
        let work = Duration::from_millis(300);
        // SAFETY: gettid has no arguments and cannot fail.
        let hot = std::thread::spawn(move || (burn(work), unsafe { libc::gettid() } as u32));
        while !hot.is_finished() {
            poll();
            std::thread::sleep(Duration::from_millis(20));
        }
        let (_, pid) = hot.join().unwrap();
        let hits = probe.finish().unwrap().hits;
        let its: Vec<_> = hits.iter().filter(|hit| hit.key.pid == pid).collect();
        let seen = Pace::Close.period() * its.iter().map(|hit| hit.count as u32).sum::<u32>();
        let bare =
            Pace::Close.period() * its.iter().filter(|hit| hit.bare).map(|hit| hit.count as u32).sum::<u32>();
        (seen.as_secs_f64() / work.as_secs_f64(), bare.as_secs_f64() / seen.as_secs_f64(), probe.lost())
    }

    #[test]
    fn root_thread_that_starts_after_full_tables_is_sampled_in_proportion() {
        let (ratio, bare, lost) = met_after_the_tables_are_full(true);
        assert!((0.6..1.5).contains(&ratio), "sampled {ratio} of its time");
        // The rest of a busy host fills 64 rows now and then.
        assert!(bare < 0.5 && lost == 0, "{bare} of it has no stack");
        let (ratio, bare, lost) = met_after_the_tables_are_full(false);
        assert!((0.6..1.5).contains(&ratio), "sampled {ratio} of its time");
        assert!(bare > 0.9 && lost == 0, "no room was made: the thread of the time is known all the same");
    }

    /// A sample that falls into a row between its reading and its removal is in neither: a table is not emptied while it is filled.
    #[test]
    fn root_only_the_set_that_nobody_fills_is_emptied() {
        let mut slot = MaybeUninit::uninit();
        let mut probe = OnCpu::load_with(&mut slot, &[], Pace::Close, 64).unwrap();
        let maps = &probe.skel.maps;
        let filled = [&maps.counts, &maps.counts_2, &maps.bare, &maps.bare_2];
        for (map, pid) in filled.into_iter().zip(1..) {
            let key = oncpu_key { pid, kernel: -1, user: 0, ..oncpu_key::default() };
            let count = oncpu_count { samples: 1, ..oncpu_count::default() };
            // SAFETY: integers and bytes only, without gaps.
            let (key, count) = unsafe { (plain::as_bytes(&key), plain::as_bytes(&count)) };
            map.update(key, count, MapFlags::ANY).unwrap();
        }
        probe.empty(0).unwrap();
        let left = |map: &MapMut<'_>| map.keys().count();
        let maps = &probe.skel.maps;
        assert_eq!([&maps.counts, &maps.counts_2, &maps.bare, &maps.bare_2].map(left), [0, 1, 0, 1]);
        let hits = probe.finish().unwrap().hits;
        assert_eq!((hits.len(), probe.without_room()), (4, 2));
    }

    fn thread_cpu() -> Duration {
        Duration::from_nanos(crate::host::thread_cpu_ns())
    }
}
