//! The work of a victim's threads. Runs in the victim process, never in the harness.

mod audit;
mod cpu;
pub(crate) mod disk;
mod flood;
mod forks;
mod frozen;
mod fuse;
mod guard;
mod herd;
mod locks;
mod memory;
mod net;
mod prefork;
mod read;
mod stream;
mod threaded;
mod tracer;
mod vforks;

use std::io;
use std::sync::atomic::Ordering;

pub use cpu::{turn, turns_per_us};
pub use disk::Buffer;

use crate::ledger::{Fact, Ledger, Tally, Word};
use crate::spec::{Spec, Work};
use crate::{lock_chain, spinners, sys};

/// One thread at work.
pub struct Worker<'ledger> {
    spec: &'ledger Spec,
    ledger: &'ledger Ledger,
    slot: usize,
    tally: Tally<'ledger>,
    warmed: u64,
    seed: u64,
}

/// Shared state of all threads or processes of a victim, made before they start.
pub fn prepare(spec: &Spec) -> io::Result<()> {
    match &spec.work {
        Work::LockChain(plan) => lock_chain::prepare(plan),
        Work::Spinner(plan) => spinners::prepare(plan),
        _ => Ok(()),
    }
}

/// Say "ready", wait for the start, then work until the harness stops it.
pub fn run(spec: &Spec, ledger: &Ledger, slot: usize) {
    sys::set_name(&spec.comm);
    let ready = || {
        ledger.fact(slot, Fact::Tid).store(sys::thread_id(), Ordering::Release);
        while ledger.word(Word::Go).load(Ordering::Acquire) == 0 {
            sys::sleep_us(500);
        }
    };
    let worker = || {
        ready();
        let tally = Tally::begin(ledger, slot);
        Worker { spec, ledger, slot, tally, warmed: 0, seed: sys::thread_id() }
    };
    let result = match &spec.work {
        Work::Spin { burst_us, rest_us } => cpu::spin(worker(), *burst_us, *rest_us),
        Work::Paced { burst_us, every_us } => cpu::paced(worker(), *burst_us, *every_us),
        Work::Reread { file, block, random, burst_us } => {
            disk::reread(worker(), file, *block, *random, *burst_us)
        }
        Work::Stream { file, block, every_us } => disk::stream(worker(), file, *block, *every_us),
        Work::Direct { file, block, how } => disk::direct(worker(), file, *block, *how),
        Work::Sync { file, block, each, most, rest_us } => {
            disk::sync(worker(), file, [*block, *each, *most], *rest_us)
        }
        Work::DirectPaced { file, block, count, every_us } => {
            disk::direct_paced(worker(), file, *block, *count, *every_us)
        }
        // A server is ready when it listens, so it reports that itself.
        Work::Serve { port, backlog } => net::serve(worker, *port, *backlog),
        Work::Connect { port, think_us } => net::connect(worker(), *port, *think_us),
        Work::Fling { port, burst_us, every_us } => net::fling(worker(), *port, *burst_us, *every_us),
        Work::Touch { bytes, burst_us, random } => memory::touch(worker(), *bytes, *burst_us, *random),
        Work::Hoard { hot, cold, more, burst_us, every_us } => {
            memory::hoard(worker(), [*hot, *cold, *more], *burst_us, *every_us)
        }
        Work::Flood { port, bytes, count, every_us } => {
            flood::send(worker(), *port, *bytes, *count, *every_us)
        }
        Work::Drain { port, burst_us } => flood::drain(worker, *port, *burst_us),
        Work::Herd { tasks, idle_us, burst_us, every_us } => {
            herd::run(worker, [*tasks, *idle_us], *burst_us, *every_us)
        }
        Work::Pull { port, bytes, sleeps } => stream::pull(worker, *port, *bytes, *sleeps),
        Work::Push { port, bytes, every_us } => stream::push(worker(), *port, *bytes, *every_us),
        Work::Lossy { port, per_mille, bytes, every_us } => {
            stream::lossy(worker(), *port, *per_mille, *bytes, *every_us)
        }
        Work::Open { file, rest_us } => read::open(worker(), file, *rest_us),
        Work::Read { file, rest_us } => read::again(worker(), file, *rest_us),
        Work::ReadWhole { file, rest_us } => read::whole(worker(), file, *rest_us),
        Work::Fork { burst_us } => forks::run(worker(), *burst_us),
        Work::Churn { bytes, rest_us } => memory::churn(worker(), *bytes, *rest_us),
        Work::LockChain(plan) => lock_chain::run(spec, plan, ledger, slot, ready),
        Work::Vfork { child_us } => vforks::run(worker(), *child_us),
        Work::Few { tasks, idle_us } => herd::few(worker, if slot == 0 { *tasks } else { 0 }, *idle_us),
        Work::Spinner(plan) => spinners::run(spec, plan, ledger, slot, ready),
        Work::Loop { each, size, rest_us } => spinners::run_loop(worker(), *each, *size, *rest_us),
        Work::Answer { at, burst_us, sleep_us, upstream } => {
            spinners::answer(worker, at, [*burst_us, *sleep_us], upstream.as_ref())
        }
        Work::Pool { at, threads, sleep_us, fifo } => threaded::pool(worker, at, *threads, *sleep_us, fifo),
        Work::Interpreter { at, hold_us, rest_us } => threaded::interpreter(worker, at, [*hold_us, *rest_us]),
        Work::Guard { dir, sleep_us } => guard::run(worker, dir, *sleep_us),
        Work::ReadAudit { sleep_us } => audit::read(worker, *sleep_us),
        Work::Audited { rest_us } => audit::told_of(worker(), *rest_us),
        Work::Frozen { image, dir } => frozen::run(worker, image, dir),
        Work::Prefork { at, processes, sleep_us, fifo } => {
            prefork::run(worker, at, *processes, *sleep_us, fifo.as_deref())
        }
        Work::Visit { at, rest_us } => spinners::visit(worker(), at, *rest_us),
        Work::Fetch { at, file, block } => spinners::fetch(worker, at, file, *block),
        Work::Ask { at } => spinners::ask(worker(), at),
        Work::Lock { file, how, hold_us, asleep, rest_us } => {
            locks::run(worker(), (file, *how), [*hold_us, *rest_us], *asleep)
        }
        Work::Trace { pid } => tracer::run(worker(), *pid),
        Work::Fuse { dir, sleep_us } => fuse::serve(worker, dir, *sleep_us),
    };
    if let Err(err) = result {
        Tally::begin(ledger, slot).failed(&err);
        eprintln!("victim {}: {err}", spec.comm);
        sys::leave(3);
    }
}

impl Worker<'_> {
    pub(crate) fn goes_on(&self) -> bool {
        self.ledger.word(Word::Stop).load(Ordering::Relaxed) == 0
    }

    /// One more piece is done.
    pub(crate) fn did_one(&mut self) {
        self.tally.did_one();
    }

    pub(crate) fn word(&self, word: Word) -> u64 {
        self.ledger.word(word).load(Ordering::Relaxed)
    }

    /// Run `warm` if the harness requested it since the last time.
    fn warm_if_asked(&mut self, warm: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let asked = self.word(Word::Warm);
        if asked != self.warmed {
            warm()?;
            self.warmed = asked;
            self.ledger.fact(self.slot, Fact::Warmed).store(asked, Ordering::Release);
        }
        Ok(())
    }

    /// Any number below `n`: xorshift, cheap compared with the work.
    fn below(&mut self, n: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % n.max(1)
    }

    pub(crate) fn compute(&self, us: u64) {
        (self.computer())(us);
    }

    /// A function that computes, for further threads of the worker.
    fn computer(&self) -> impl Fn(u64) + Copy + Send + use<> {
        let turns = self.spec.turns_per_us;
        move |us| {
            cpu::turn((us as f64 * turns) as u64);
        }
    }

    /// Run `piece` at each tick of a clock that began with the work and that all threads share. A piece that ends after the next tick skips
    /// that tick: the rate falls.
    fn at_each_tick(
        &mut self,
        every_us: u64,
        mut piece: impl FnMut(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let (base, every) = (self.word(Word::Go), every_us * 1000);
        let mut tick = (sys::monotonic_ns().saturating_sub(base) / every) + 1;
        while self.goes_on() {
            let due = base + tick * every;
            sys::sleep_until(due);
            piece(self)?;
            let ended = sys::monotonic_ns();
            self.tally.took(ended.saturating_sub(due));
            self.tally.did_one();
            tick = (tick + 1).max(ended.saturating_sub(base) / every + u64::from(ended > due + every));
        }
        Ok(())
    }
}
