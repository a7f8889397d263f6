//! A cgroup touches more memory than its limit, and swaps. Only this cgroup reaches a limit, so only it swaps.
//!
//! Fault: a region of 2 to 3 times the limit, touched again and again, on a swap file or zram device of the test. Twin: a limit with room
//! for the region. False-positive control: pages that are written once and never touched again are swapped out, more with each tick, while
//! the working set stays in memory and the work continues.

use std::io;

use crate::scenario::{FaultKind, Form, Scenario, TestBed};
use crate::spec::Work;
use crate::swap::SwapSpace;
use crate::{Draw, Victim};

/// Memory that a group needs besides the region: stacks, page tables.
const ROOM: u64 = 24 << 20;

/// Draw a scenario and start it.
pub fn set(testbed: &TestBed<'_>, form: Form, draw: &mut Draw) -> io::Result<Scenario> {
    let small = draw.between(testbed.memory / 8, testbed.memory / 5) & !0xf_ffff;
    let region = (draw.real(2.0, 3.0) * small as f64) as u64 & !0xf_ffff;
    let (threads, work, limit) = match form {
        Form::Control => {
            let every_us = draw.between(20, 40) * 1000;
            let (hot, more) = (small / 8, draw.between(8, 16) << 12);
            let work = Work::Hoard { hot, cold: region - small, more, burst_us: every_us / 20, every_us };
            // Twice the hot pages fit; the cold pages do not.
            (1, work, small / 2)
        }
        Form::Fault | Form::Twin => {
            let threads = draw.between(1, 2);
            let bytes = (region / threads) & !0xffff;
            let work = Work::Touch { bytes, burst_us: draw.between(80, 200), random: draw.one_in(2) };
            (threads, work, if form == Form::Twin { region + ROOM } else { small })
        }
    };
    let on_zram = SwapSpace::has_zram() && draw.one_in(2);
    let swap_size = (region + (64 << 20)).next_multiple_of(1 << 20);
    let dir = testbed.fence.dir();
    let swap = if on_zram { SwapSpace::on_zram(dir, swap_size) } else { SwapSpace::on_file(dir, swap_size) }?;
    let said = format!(
        "limit {} MiB, {threads} x {work:?}, {} MiB of swap on {}",
        limit >> 20,
        swap_size >> 20,
        swap.path().display()
    );
    let group = testbed.fence.group(&draw.word(6))?;
    group.set_swappiness(100)?;
    let comm = format!("swap-{}", draw.word(4));
    let victim = Victim::spawn(testbed.fence.spec(&group, &comm, threads, work))?;
    let (imposed, counted) = (group.clone(), group.clone());
    Ok(Scenario {
        victim,
        others: Vec::new(),
        group,
        kind: FaultKind::SwapIn,
        form,
        said,
        switch: Box::new(move |victim, on| {
            victim.while_stopped(|| imposed.set_memory_limit(on.then_some(limit)))?;
            // Without the limit, the whole region must be in memory.
            if on { Ok(()) } else { victim.warm() }
        }),
        counter: Some(Box::new(move |_| counted.swapped_out())),
        without: Vec::new(),
        limits: Vec::new(),
        _belongings: vec![Box::new(swap)],
    })
}
