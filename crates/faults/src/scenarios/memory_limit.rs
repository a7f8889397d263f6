//! A cgroup reads a file that does not fit under its memory limit, again and again.
//!
//! Fault: the file is 3 to 4 times the limit, which one of up to four nested cgroups has, or several of them; without the limit the whole
//! file is cached. Twin: a limit with room for the file. False-positive control: a stream that reads each block once, on a timer: its
//! memory is always at the limit, and the pages that the kernel evicts are never read again.

use std::io;

use super::tree::Tree;
use crate::scenario::{FaultKind, Form, Scenario, TestBed};
use crate::spec::Work;
use crate::{Draw, Victim, host};

/// Memory that a group needs besides the file: stacks, page tables, buffers.
const ROOM: u64 = 24 << 20;

/// Draw a scenario and start it.
pub fn set(testbed: &TestBed<'_>, form: Form, draw: &mut Draw) -> io::Result<Scenario> {
    let small = draw.between(testbed.memory / 8, testbed.memory / 5) & !0xf_ffff;
    let file_size = (draw.real(3.0, 4.0) * small as f64) as u64 & !0xf_ffff;
    let limit = match form {
        Form::Fault => small,
        Form::Twin => file_size + ROOM,
        // The memory is full after about a second.
        Form::Control => file_size / 12,
    };
    let file = testbed.fence.dir().join(draw.word(8));
    host::make_file(&file, file_size)?;
    let (threads, work) = match form {
        Form::Control => {
            // One pass takes about 14 s: no window is longer.
            let every_us = draw.between(15, 25) * 1000;
            let block = (file_size * every_us / 14_000_000) & !0xfff;
            (1, Work::Stream { file: file.clone(), block, every_us })
        }
        Form::Fault | Form::Twin => {
            let random = draw.one_in(2);
            let block = if random { draw.between(1, 4) << 14 } else { draw.between(1, 4) << 16 };
            (draw.between(1, 2), Work::Reread { file: file.clone(), block, random, burst_us: 0 })
        }
    };
    let tree = Tree::draw(testbed, form, draw)?;
    let said = format!(
        "limit {} MiB, file {} MiB, {threads} x {work:?}; limits by level, the outermost first: {tree}",
        limit >> 20,
        file_size >> 20
    );
    let group = tree.leaf().clone();
    let comm = format!("read-{}", draw.word(4));
    let victim = Victim::spawn(tree.spec(testbed, &comm, threads, work))?;
    let (counted, limits) = (tree.clone(), tree.must_change());
    Ok(Scenario {
        victim,
        others: Vec::new(),
        group,
        kind: FaultKind::MemoryLimit,
        form,
        said,
        switch: Box::new(move |victim, on| {
            victim.while_stopped(|| tree.set_memory(on.then_some(limit)))?;
            // Without the limit, the whole file must be in the cache. With it, the whole file must have been refaulted once: the kernel
            // forgets part of what it evicts when a limit falls (it reclaims shadow nodes, too), and a later read of that part looks like a
            // first read.
            if on && form == Form::Control { Ok(()) } else { victim.warm() }
        }),
        counter: Some(Box::new(move |_| counted.limit_hits())),
        without: Vec::new(),
        limits,
        _belongings: Vec::new(),
    })
}
