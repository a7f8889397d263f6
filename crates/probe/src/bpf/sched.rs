//! Where did each task's time go: on a CPU, ready, waiting for I/O, blocked, asleep? The kernel half is `sched.bpf.c`.

use std::io::Read as _;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Iter, Link, MapCore, OpenObject, RingBufferBuilder};
use whyslow_model::Missing;

use super::shared::Shared;
use super::{missing, value};

skeleton!("sched");
pub use skel::types::{sched_exit, sched_live, sched_slot, sched_stack, sched_sum};

// SAFETY: generated from the C structs; integers and bytes only.
unsafe impl plain::Plain for sched_exit {}
// SAFETY: as above.
unsafe impl plain::Plain for sched_live {}
// SAFETY: as above.
unsafe impl plain::Plain for sched_stack {}

/// The name of this probe in reports.
pub const WHAT: &str = "off-CPU stacks";

/// `enum sched_state` of the kernel half.
pub const READY: usize = 2;
/// Uninterruptible, marked as I/O wait.
pub const IO: usize = 3;
/// Uninterruptible.
pub const BLOCKED: usize = 4;
/// Interruptible, or not counted as load.
pub const ASLEEP: usize = 5;
/// On a CPU.
pub const RUNNING: usize = 1;

/// The running probe. Dropping it detaches it from the kernel.
pub struct Sched<'slot> {
    skel: skel::SchedSkel<'slot>,
    seed: Link,
    finish: Link,
    seen: Seen,
}

/// What the probe saw.
#[derive(Default)]
pub struct Seen {
    /// Tasks that ended in the window.
    pub exits: Vec<sched_exit>,
    /// Tasks that live on.
    pub live: Vec<sched_live>,
    /// Stacks of waits.
    pub stacks: Vec<sched_stack>,
}

impl<'slot> Sched<'slot> {
    /// Load, attach, and give every task that is there its slot: the window begins.
    pub fn start(slot: &'slot mut MaybeUninit<OpenObject>) -> Result<Self, Missing> {
        let sched = Self::load(slot).map_err(|err| missing(WHAT, &err))?;
        sched.await_clock()?;
        drain(&sched.seed)?;
        Ok(sched)
    }

    fn load(slot: &'slot mut MaybeUninit<OpenObject>) -> libbpf_rs::Result<Self> {
        let mut open = skel::SchedSkelBuilder::default().open(slot)?;
        if let Some(bss) = open.maps.bss_data.as_mut() {
            bss.own_tgid = std::process::id();
        }
        let mut skel = open.load()?;
        let seed = skel.progs.seed.attach()?;
        let finish = skel.progs.finish.attach()?;
        skel.links = skel::SchedLinks {
            switched: Some(skel.progs.switched.attach()?),
            woken: Some(skel.progs.woken.attach()?),
            born: Some(skel.progs.born.attach()?),
            ..skel.links
        };
        Ok(Self { skel, seed, finish, seen: Seen::default() })
    }

    /// The first switch tells how far the run queue's clock is from ours.
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

    /// The maps that other objects reuse.
    #[must_use]
    pub fn shared(&self) -> Shared<'_> {
        let maps = &self.skel.maps;
        Shared { slots: maps.slots.as_fd(), lock_waits: maps.lock_waits.as_fd(), followed: maps.followed.as_fd() }
    }

    /// Take what waits in the ring buffers. To be called a few times a second.
    pub fn poll(&mut self) -> Result<(), Missing> {
        take(&self.skel.maps.exits, &mut self.seen.exits)?;
        take(&self.skel.maps.stacks, &mut self.seen.stacks)
    }

    /// The window ends: detach, close all open intervals, and tell.
    pub fn finish(mut self) -> Result<(Seen, u64), Missing> {
        let bytes = drain(&self.finish)?;
        self.skel.links.switched = None;
        self.skel.links.woken = None;
        self.skel.links.born = None;
        self.poll()?;
        self.seen.live = bytes.chunks_exact(size_of::<sched_live>()).map(value).collect();
        let lost = self.lost();
        Ok((self.seen, lost))
    }

    /// Tasks, exits and stacks that the kernel half saw and could not note.
    pub fn lost(&self) -> u64 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lost)
    }
}

fn drain(link: &Link) -> Result<Vec<u8>, Missing> {
    let mut bytes = Vec::new();
    let mut iter = Iter::new(link).map_err(|err| missing(WHAT, &err))?;
    iter.read_to_end(&mut bytes).map_err(|err| Missing::broken(WHAT, err))?;
    Ok(bytes)
}

fn take<T: plain::Plain + Default>(ring: &dyn MapCore, into: &mut Vec<T>) -> Result<(), Missing> {
    let note = |bytes: &[u8]| {
        into.push(value(bytes));
        0
    };
    let mut builder = RingBufferBuilder::new();
    builder.add(ring, note).map_err(|err| missing(WHAT, &err))?;
    builder.build().and_then(|ring| ring.consume()).map_err(|err| missing(WHAT, &err))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// What one thread of ours was seen to do while it slept in a pipe, burned CPU, and ended.
    #[test]
    fn root_a_threads_time_adds_up_to_its_life() {
        let mut slot = MaybeUninit::uninit();
        let sched = Sched::start(&mut slot).expect("root may trace the scheduler");
        let (tell, told) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let began = Instant::now();
        let thread = std::thread::spawn(move || {
            // SAFETY: gettid has no arguments and cannot fail.
            tell.send(unsafe { libc::gettid() } as u32).unwrap();
            wait.recv().unwrap();
            let until = Instant::now() + Duration::from_millis(80);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        });
        let pid = told.recv().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        go.send(()).unwrap();
        thread.join().unwrap();
        let life = began.elapsed();
        let (seen, lost) = sched.finish().unwrap();
        assert_eq!(lost, 0);
        // join() returns when the thread clears its tid, before its last switch: it may live on for the closing walk.
        let exit = seen.exits.iter().find(|e| e.pid == pid).map(|e| e.slot);
        let live = seen.live.iter().find(|l| l.slot.pid == pid).map(|l| l.slot);
        let slot = exit.or(live).expect("the thread was seen");
        let sum = |state: usize| Duration::from_nanos(slot.sum[state].ns);
        let all: Duration = (RUNNING..=ASLEEP).map(sum).sum();
        assert!(sum(ASLEEP) >= Duration::from_millis(45), "slept {:?}", sum(ASLEEP));
        let awake = sum(RUNNING) + sum(READY);
        assert!(awake >= Duration::from_millis(75), "awake {awake:?}");
        assert!(all <= life + Duration::from_millis(1), "{all:?} in a life of {life:?}");
        assert!(
            all + Duration::from_nanos(slot.unknown_ns) + Duration::from_millis(20) >= life,
            "{all:?} of {life:?}"
        );
    }
}
