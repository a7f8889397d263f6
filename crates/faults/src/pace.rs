//! How fast each CPU is, by a loop of the harness's own: nothing of whyslow's is in it. Here and not in a test: tests are not optimised,
//! and of a loop that keeps its numbers on the stack the time varies by a third on one and the same CPU.

use std::hint::black_box;
use std::time::Instant;

use crate::{host, sys};

/// So many turns are a loop: a third of a millisecond.
const TURNS: u64 = 150_000;
/// What is slower than the fastest of them had something else beside it.
const LOOPS: usize = 4000;

/// The fastest of many loops on each CPU, in seconds.
#[must_use]
pub fn of_cpus() -> Vec<f64> {
    let of_cpu = |cpu: usize| std::thread::spawn(move || fastest_on(cpu)).join().expect("it only computes");
    host::cpus().into_iter().map(of_cpu).collect()
}

fn fastest_on(cpu: usize) -> f64 {
    // 0: this thread.
    sys::pin(0, &[cpu]).expect("one of this host's CPUs");
    let timed = |_| {
        let began = Instant::now();
        black_box((0..TURNS).fold(1_u64, |x, n| black_box(x.wrapping_mul(31) ^ n)));
        began.elapsed().as_secs_f64()
    };
    (0..LOOPS).map(timed).fold(f64::INFINITY, f64::min)
}
