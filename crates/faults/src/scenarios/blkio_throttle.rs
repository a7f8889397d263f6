//! A cgroup's block I/O is throttled.
//!
//! Fault: direct reads, direct writes or uncached reads, limited to 15 to 50 % of what the disk just delivered, by the limit of one of up
//! to four nested cgroups, or of some of them, or of the parent of siblings. On v1 only the victim's own limit counts: limits above it
//! exist, and have no effect. Twin: the same I/O without an effective limit: no limit, a limit far above the disk's rate, or on v1 only
//! limits of the groups above. False-positive control: a batch of reads on a timer under a limit that delays part of each batch, and still
//! lets each batch end long before the next.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::cgroup::IoLimit;
use crate::clock::{self, Span};
use crate::ledger::Fact;
use crate::scenario::{FaultKind, Form, Scenario, Switch, TestBed};
use crate::spec::{Direct, Work};
use crate::{Draw, Victim, host};

use super::tree::Tree;

const FILE_SIZE: u64 = 64 << 20;
/// The disk's rate is measured over this time before the limit is set.
const LOOK_BACK_NS: u64 = 400_000_000;
/// A limit of so many times the disk's rate delays no I/O.
const AMPLE: f64 = 10.0;

/// Draw a scenario and start it.
pub fn set(testbed: &TestBed<'_>, form: Form, draw: &mut Draw) -> io::Result<Scenario> {
    let file = testbed.fence.dir().join(draw.word(8));
    host::make_file(&file, FILE_SIZE)?;
    let disk = host::disk_of(&file)?;
    let mut tree = Tree::of_io(testbed, form, draw)?;
    let (threads, work, switch, said) = match form {
        Form::Control => control(&file, &tree, &disk, draw),
        Form::Fault | Form::Twin => busy(&file, form, &mut tree, &disk, draw)?,
    };
    let comm = format!("disk-{}", draw.word(4));
    let victim = Victim::spawn(tree.spec(testbed, &comm, threads, work))?;
    Ok(Scenario {
        victim,
        others: Vec::new(),
        group: tree.leaf().clone(),
        kind: FaultKind::BlkioThrottle,
        form,
        said,
        switch,
        // No file counts throttled bios: the time of the batches stands for it.
        counter: (form == Form::Control).then(|| Box::new(busy_ms) as crate::scenario::Counter),
        without: Vec::new(),
        limits: if form == Form::Fault { tree.must_change() } else { Vec::new() },
        _belongings: Vec::new(),
    })
}

type Drawn = (u64, Work, Switch, String);

fn busy(file: &Path, form: Form, tree: &mut Tree, disk: &str, draw: &mut Draw) -> io::Result<Drawn> {
    let how = draw.pick(&[Direct::Read, Direct::Write, Direct::Uncached]);
    let (threads, block) = (draw.between(1, 4), draw.between(1, 16) << 12);
    let by_requests = draw.one_in(2);
    let bite = tree.bite(draw, [0.15, 0.5]);
    let bite = match form {
        Form::Fault => Some(bite),
        // The limits of groups above are as tight as a fault's.
        _ if tree.leaf().io_is_flat()? && draw.one_in(2) => Some(bite),
        _ => draw.one_in(2).then_some(AMPLE),
    };
    let said = format!(
        "{threads} threads, {how:?} of {block} bytes, limited to {bite:?} of the free rate, {}; limits by level, the outermost first: {tree}",
        if by_requests { "by requests" } else { "by bytes" }
    );
    let write = how == Direct::Write;
    let unit = if by_requests { 1 } else { block };
    let switch = held_to(bite, tree.clone(), disk.to_owned(), write, unit);
    Ok((threads, Work::Direct { file: file.to_owned(), block, how }, switch, said))
}

/// A limit of `bite` times the victim's rate at the moment when it is first set. `unit`: bytes of a request for a limit in bytes, 1 for a
/// limit in requests.
fn held_to(bite: Option<f64>, tree: Tree, disk: String, write: bool, unit: u64) -> Switch {
    let mut limit = None;
    Box::new(move |victim, on| {
        let Some(bite) = bite else { return Ok(()) };
        if !on {
            return tree.set_io(&disk, write, None);
        }
        let limit = *limit.get_or_insert_with(|| {
            let now = clock::now();
            let free = victim.ledger().rate(Span { from: now - LOOK_BACK_NS, to: now });
            let held = ((free * bite) as u64).max(1) * unit;
            if unit == 1 { IoLimit::Requests(held) } else { IoLimit::Bytes(held) }
        });
        tree.set_io(&disk, write, Some(limit))
    })
}

fn control(file: &Path, tree: &Tree, disk: &str, draw: &mut Draw) -> Drawn {
    let (count, block) = (draw.between(12, 24), draw.between(1, 4) << 14);
    let every_us = draw.between(300, 400) * 1000;
    // The kernel grants the allowance of 20 or 100 ms at once (throtl_slice); the rest of a batch must wait, and the whole batch must end
    // well before the next one: half of the time between ticks.
    let limit = count * block * 1_000_000 / (every_us / 2);
    let said = format!("{count} reads of {block} bytes every {every_us} us, limit {limit} bytes/s");
    let (tree, disk) = (tree.clone(), disk.to_owned());
    let switch: Switch =
        Box::new(move |_, on| tree.set_io(&disk, false, on.then_some(IoLimit::Bytes(limit))));
    (1, Work::DirectPaced { file: file.to_owned(), block, count, every_us }, switch, said)
}

fn busy_ms(victim: &Victim) -> io::Result<u64> {
    Ok(victim.ledger().fact(0, Fact::Busy).load(Ordering::Relaxed) / 1_000_000)
}
