//! Loops that are as hot as a spin and do useful work. Runs in the victim process.

use std::hint::black_box;
use std::io;

use serde::{Deserialize, Serialize};

use super::unseen;
use crate::Draw;
use crate::sys;
use crate::work::Worker;

/// The kind of computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Loop {
    /// A linear congruential generator: one register.
    Lcg,
    /// Xorshift: one register, no multiplication.
    Xorshift,
    /// The sum of an array.
    ArraySum,
    /// `qsort` of an array.
    Qsort,
    /// An equation of motion: nothing but floating-point registers changes.
    Floats,
    /// A loop of the unseen set, which no detector was tuned on.
    Unseen(unseen::Loop),
}

/// One piece of work, a millisecond or so.
pub trait Piece {
    /// Do it.
    fn piece(&mut self);
}

impl Loop {
    /// Loops that detectors may be tuned on.
    pub const ALL: [Loop; 5] = [Loop::Lcg, Loop::Xorshift, Loop::ArraySum, Loop::Qsort, Loop::Floats];

    /// The work; `size` is the memory that it uses, in words, if any.
    pub(crate) fn work(self, size: usize, draw: &mut Draw) -> Box<dyn Piece> {
        match self {
            Loop::Lcg => Box::new(Register { x: draw.any() | 1, run: lcg }),
            Loop::Xorshift => Box::new(Register { x: draw.any() | 1, run: xorshift }),
            Loop::ArraySum => Box::new(Array { all: (0..size).map(|_| draw.any()).collect() }),
            Loop::Qsort => Box::new(Sort { from: (0..size).map(|_| draw.any()).collect(), to: Vec::new() }),
            Loop::Floats => Box::new(Motion { at: draw.real(0.5, 2.0) }),
            Loop::Unseen(each) => each.work(size, draw),
        }
    }
}

/// One thread: pieces of work, and a rest after each, until the harness stops it.
pub fn run(mut worker: Worker<'_>, each: Loop, size: usize, rest_us: u64) -> io::Result<()> {
    let mut work = each.work(size, &mut Draw::with(sys::thread_id()));
    while worker.goes_on() {
        work.piece();
        worker.did_one();
        if rest_us > 0 {
            sys::sleep_us(rest_us);
        }
    }
    Ok(())
}

struct Register {
    x: u64,
    run: fn(u64) -> u64,
}

impl Piece for Register {
    fn piece(&mut self) {
        self.x = (self.run)(black_box(self.x));
    }
}

const TURNS: u32 = 1_000_000;

#[inline(never)]
fn lcg(mut x: u64) -> u64 {
    for _ in 0..TURNS {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    x
}

#[inline(never)]
fn xorshift(mut x: u64) -> u64 {
    for _ in 0..TURNS {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x
}

struct Array {
    all: Vec<u64>,
}

impl Piece for Array {
    #[inline(never)]
    fn piece(&mut self) {
        for _ in 0..(TURNS as usize / self.all.len().max(1)).max(1) {
            black_box(black_box(&self.all).iter().fold(0_u64, |sum, x| sum.wrapping_add(*x)));
        }
    }
}

struct Sort {
    from: Vec<u64>,
    to: Vec<u64>,
}

extern "C" fn order(a: *const libc::c_void, b: *const libc::c_void) -> libc::c_int {
    // SAFETY: qsort gives places in the array, which holds u64.
    let (a, b) = unsafe { (*a.cast::<u64>(), *b.cast::<u64>()) };
    a.cmp(&b) as libc::c_int
}

impl Piece for Sort {
    fn piece(&mut self) {
        self.to.clone_from(&self.from);
        // SAFETY: an array of so many elements of eight bytes.
        unsafe { libc::qsort(self.to.as_mut_ptr().cast(), self.to.len(), 8, Some(order)) };
        black_box(&self.to);
    }
}

/// The time is counted in floating point, too, so that no general register changes from turn to turn.
struct Motion {
    at: f64,
}

impl Piece for Motion {
    #[inline(never)]
    fn piece(&mut self) {
        let (mut x, mut v, mut t) = (self.at, 0.0_f64, 0.0_f64);
        let step = black_box(1e-4);
        while t < 30.0 {
            v -= x * step;
            x += v * step;
            t += step;
        }
        self.at = black_box(x).clamp(0.5, 2.0);
    }
}
