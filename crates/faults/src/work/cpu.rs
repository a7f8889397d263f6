//! A computation whose speed depends on CPU time only.

use std::hint::black_box;
use std::io;

use super::Worker;
use crate::sys;

/// A chain of multiplications, each of which waits for the last one: its speed does not depend on caches, memory, or a sibling hyperthread.
pub fn turn(turns: u64) {
    let mut x = black_box(0x2545_f491_4f6c_dd1d_u64);
    for _ in 0..turns {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(x);
}

/// Turns per microsecond without interruption: the best of many short tries.
pub fn turns_per_us() -> f64 {
    const TURNS: u64 = 200_000;
    let best = (0..30).map(|_| {
        let began = sys::monotonic_ns();
        turn(TURNS);
        sys::monotonic_ns() - began
    });
    TURNS as f64 * 1000.0 / best.min().unwrap_or(1).max(1) as f64
}

pub fn spin(mut w: Worker<'_>, burst_us: u64, rest_us: u64) -> io::Result<()> {
    while w.goes_on() {
        w.compute(burst_us);
        if rest_us > 0 {
            sys::sleep_us(rest_us);
        }
        w.tally.did_one();
    }
    Ok(())
}

pub fn paced(mut w: Worker<'_>, burst_us: u64, every_us: u64) -> io::Result<()> {
    w.at_each_tick(every_us, |w| {
        w.compute(burst_us);
        Ok(())
    })
}
