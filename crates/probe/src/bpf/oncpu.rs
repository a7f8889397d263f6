//! What runs on the CPUs? The kernel half is `oncpu.bpf.c`.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, OpenObject};
use whyslow_model::Missing;

use super::{missing, value};
use crate::perf_event::{self, Attr};

skeleton!("oncpu");
use skel::types::{oncpu_count, spin_code, spin_place};
pub use skel::types::{oncpu_cpu, oncpu_key};

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

/// The name of this probe in reports.
pub const WHAT: &str = "on-CPU samples";

/// Samples a second on each CPU. Neither is in step with the tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// A host that is only looked at.
    Calm,
    /// Somebody asks where this command's time goes: a run of 100 ms has fifty samples, at 2 us each.
    Close,
}

impl Pace {
    fn hertz(self) -> u64 {
        match self {
            // A thread that gets a twentieth of two CPUs for 3 s is met 60 times: its time is told to a quarter. 0.04 % of a CPU.
            Pace::Calm => 199,
            Pace::Close => 499,
        }
    }

    /// How long one sample stands for.
    #[must_use]
    pub fn period(self) -> Duration {
        Duration::from_nanos(1_000_000_000 / self.hertz())
    }
}

/// The running probe. Dropping it detaches it from the kernel.
pub struct OnCpu<'slot> {
    skel: skel::OncpuSkel<'slot>,
    links: Vec<Link>,
    cpus: Vec<u32>,
    pace: Pace,
}

/// One stack on CPU.
pub struct Hit {
    /// Who.
    pub key: oncpu_key,
    /// How often.
    pub count: u64,
    /// Of these: the registers were all as in the thread's sample before.
    pub same: u64,
    /// ... a system call that had just returned would have given back 0.
    pub zero: u64,
    /// ... -EAGAIN.
    pub again: u64,
    /// Kernel addresses, innermost first.
    pub kernel: Vec<u64>,
    /// User addresses, innermost first.
    pub user: Vec<u64>,
}

/// Code around an address at which somebody was met.
pub struct Code {
    /// Whose.
    pub tgid: u32,
    /// The block of addresses that it was kept for.
    pub block: u64,
    /// Address of the first byte.
    pub start: u64,
    /// The code.
    pub bytes: Vec<u8>,
}

/// Addresses of one block have all but this many low bits in common (SPIN_BLOCK in spin.bpf.h).
pub const BLOCK_BITS: u32 = 6;

/// All that was seen on the CPUs.
#[derive(Default)]
pub struct Seen {
    /// Stacks.
    pub hits: Vec<Hit>,
    /// The code that was run, by blocks.
    pub codes: Vec<Code>,
}

impl<'slot> OnCpu<'slot> {
    /// Load it; it will look at `cpus`.
    pub fn load(slot: &'slot mut MaybeUninit<OpenObject>, cpus: &[u32], pace: Pace) -> Result<Self, Missing> {
        let load = |slot| -> libbpf_rs::Result<skel::OncpuSkel<'slot>> {
            let mut open = skel::OncpuSkelBuilder::default().open(slot)?;
            if let Some(rodata) = open.maps.rodata_data.as_mut() {
                rodata.period_ns = pace.period().as_nanos() as u64;
            }
            open.load()
        };
        let skel = load(slot).map_err(|err| missing(WHAT, &err))?;
        Ok(Self { skel, links: Vec::new(), cpus: cpus.to_vec(), pace })
    }

    /// Start a timer on each CPU: the window begins.
    pub fn begin(&mut self) -> Result<(), Missing> {
        for cpu in &self.cpus {
            let timer = open_timer(WHAT, *cpu, self.pace.hertz())?;
            let link = self.skel.progs.sampled.attach_perf_event(timer).map_err(|err| missing(WHAT, &err))?;
            self.links.push(link);
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

    /// Stop the timers and tell what they saw.
    pub fn finish(&mut self) -> Result<Seen, Missing> {
        self.links.clear();
        Ok(Seen { hits: self.hits()?, codes: self.codes()? })
    }

    fn hits(&self) -> Result<Vec<Hit>, Missing> {
        let map = &self.skel.maps.counts;
        let mut stacks = HashMap::new();
        let mut hits = Vec::new();
        for bytes in map.keys() {
            let Some(count) = map.lookup(&bytes, MapFlags::ANY).map_err(|err| missing(WHAT, &err))? else {
                continue;
            };
            let key: oncpu_key = value(&bytes);
            let mut frames = |id: i32| -> Vec<u64> {
                stacks.entry(id).or_insert_with(|| self.stack(id).unwrap_or_default()).clone()
            };
            let (kernel, user) = (frames(key.kernel), frames(key.user));
            let oncpu_count { samples: count, signs } = value(&count);
            hits.push(Hit {
                key,
                count,
                same: signs.same,
                zero: signs.zero,
                again: signs.again,
                kernel,
                user,
            });
        }
        Ok(hits)
    }

    fn codes(&self) -> Result<Vec<Code>, Missing> {
        let map = &self.skel.maps.spin_codes;
        let mut codes = Vec::new();
        for bytes in map.keys() {
            let Some(code) = map.lookup(&bytes, MapFlags::ANY).map_err(|err| missing(WHAT, &err))? else {
                continue;
            };
            let (place, code): (spin_place, spin_code) = (value(&bytes), value(&code));
            let length = usize::try_from(code.length).unwrap_or(0).min(code.bytes.len());
            let bytes = code.bytes.get(..length).unwrap_or_default().to_vec();
            codes.push(Code { tgid: place.tgid, block: place.block, start: code.start, bytes });
        }
        Ok(codes)
    }

    fn stack(&self, id: i32) -> Option<Vec<u64>> {
        let id = u32::try_from(id).ok()?; // negative: no such stack
        let bytes = self.skel.maps.stacks.lookup(&id.to_ne_bytes(), MapFlags::ANY).ok()??;
        let words =
            bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
        Some(words.take_while(|address| *address != 0).collect())
    }

    /// How often it looks.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Samples and gaps, by CPU.
    pub fn cpus(&self) -> Result<Vec<oncpu_cpu>, Missing> {
        let values = self.skel.maps.cpus.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let values = values.map_err(|err| missing(WHAT, &err))?.unwrap_or_default();
        Ok(values.iter().map(|bytes| value(bytes)).collect())
    }

    /// Samples that the kernel half could not note.
    pub fn lost(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost)
    }
}

/// A cpu-clock event on one CPU, for the probe called `what`: a program attached to it runs `hertz` times a second.
pub(super) fn open_timer(what: &str, cpu: u32, hertz: u64) -> Result<i32, Missing> {
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
    perf_event::open(attr, cpu, -1).map(IntoRawFd::into_raw_fd).map_err(|err| match err.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Missing::NotAllowed {
            what: what.to_owned(),
            way_out: "run as root, or grant CAP_PERFMON".to_owned(),
        },
        _ => Missing::broken(what, err),
    })
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

    fn thread_cpu() -> Duration {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a local timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
        Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
    }
}
