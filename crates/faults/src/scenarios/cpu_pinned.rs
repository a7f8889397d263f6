//! Many busy threads may use one CPU only, while another CPU idles.
//!
//! Fault: 12 to 20 threads that never sleep, pinned to one drawn CPU. Twin: the same threads on all CPUs. False-positive control: as many
//! threads, pinned, all woken by the same tick: they queue for each other at every tick, need little CPU time, and are never late.

use std::io;

use crate::scenario::{FaultKind, Form, Scenario, TestBed};
use crate::spec::Work;
use crate::{Draw, Victim, host};

/// Draw a scenario and start it.
pub fn set(testbed: &TestBed<'_>, form: Form, draw: &mut Draw) -> io::Result<Scenario> {
    let all = host::cpus();
    if all.len() < 2 && form == Form::Fault {
        return Err(io::Error::other("pinning costs nothing on a host with one CPU"));
    }
    let threads = draw.between(12, 20);
    let cpu = draw.pick(&all);
    let work = match form {
        Form::Control => {
            let every_us = draw.between(100, 150) * 1000;
            // All threads together need at most a fifth of the time between ticks.
            Work::Paced { burst_us: draw.between(every_us / 20, every_us / 5) / threads, every_us }
        }
        Form::Fault | Form::Twin => Work::Spin { burst_us: draw.between(150, 300), rest_us: 0 },
    };
    let pinned = if form == Form::Twin { all.clone() } else { vec![cpu] };
    let said = format!("{threads} threads, {work:?}, on CPUs {pinned:?} of {all:?}");
    let group = testbed.fence.group(&draw.word(6))?;
    let comm = format!("pin-{}", draw.word(4));
    let victim = Victim::spawn(testbed.fence.spec(&group, &comm, threads, work))?;
    Ok(Scenario {
        victim,
        others: Vec::new(),
        group,
        kind: FaultKind::CpuPinned,
        form,
        said,
        switch: Box::new(move |victim, on| victim.pin(if on { &pinned } else { &all })),
        counter: Some(Box::new(waited_ms)),
        without: Vec::new(),
        limits: Vec::new(),
        _belongings: Vec::new(),
    })
}

/// Time that its threads were ready for a CPU and did not run, in ms: the second number of schedstat.
fn waited_ms(victim: &Victim) -> io::Result<u64> {
    let tasks = format!("/proc/{}/task", victim.pid());
    let mut waited_ns = 0;
    for tid in victim.tids() {
        let text = std::fs::read_to_string(format!("{tasks}/{tid}/schedstat"))?;
        waited_ns += text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(waited_ns / 1_000_000)
}
