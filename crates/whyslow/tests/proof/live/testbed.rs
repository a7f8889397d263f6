//! Make a cell, let whyslow look at it, and note what became of it.

use std::time::Duration;

use whyslow_faults::cgroup::Group;
use whyslow_faults::honest::{Compile, Crowd};
use whyslow_faults::host::Calm;
use whyslow_faults::look::Look;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::said::Sight;
use whyslow_faults::scenario::TestBed;
use whyslow_faults::{Draw, Fence, Form, Kind, Scenario, Truth, bars, clock};

use crate::live::cell::Cell;
use crate::live::exam;
use crate::live::made::{Built, Made, Mob, Party};

/// A compiler that has not built one small file by then is not there.
const ONE_FILE_WITHIN: Duration = Duration::from_secs(40);

/// Beside a crowd, a second fault or one of disk and memory some more use of the host does not matter: the kernel's own work for them
/// (reclaim, block I/O) is some. More than this is a second crowd, of which the truth knows nothing.
const SOME: f64 = 0.15;
const WORK_OF_THE_KERNEL: [Kind; 3] = [Kind::MemoryLimit, Kind::BlkioThrottle, Kind::SwapIn];

/// Once.
pub fn make(cell: Cell, draw: &mut Draw, label: &str) -> Result<(Made, Look), Trouble> {
    match cell {
        Cell::Fault(kind) => alone(cell, kind, Form::Fault, draw, label),
        Cell::Twin(kind) => alone(cell, kind, Form::Twin, draw, label),
        Cell::Control(kind) => alone(cell, kind, Form::Control, draw, label),
        Cell::Crowd(kind) => in_a_crowd(kind, draw, label),
        Cell::Pair(a, b) => pair([a, b], draw, label),
        Cell::Idle => idle(label),
        Cell::Compile(jobs) => compile(jobs, draw, label),
    }
}

fn made(cell: Cell) -> Made {
    let innocents = vec![std::process::id()];
    Made { cell, parties: Vec::new(), mob: None, built: None, innocents, disturbed: None, left_over: None }
}

/// What a group used meanwhile.
fn used(group: &Group, before: Duration) -> Result<Duration, Trouble> {
    Ok(group.cpu_used()?.saturating_sub(before))
}

fn alone(cell: Cell, kind: Kind, form: Form, draw: &mut Draw, label: &str) -> Result<(Made, Look), Trouble> {
    let fence = Fence::enter()?;
    let mut scenario = Scenario::set(&TestBed::alone(&fence), kind, form, draw)?;
    scenario.work_without(bars::WITHOUT);
    scenario.impose()?;
    std::thread::sleep(bars::SETTLE);
    let calm = Calm::watch(Some(fence.top()))?;
    let (counter, cpu) = (scenario.counter()?, scenario.group().cpu_used()?);
    let look = exam::look(label)?;
    let counter = [counter, scenario.counter()?];
    let cpu = used(scenario.group(), cpu)?;
    let disturbed = match WORK_OF_THE_KERNEL.contains(&kind) {
        true => calm.crowded(Some(fence.top()), look.own_cpu(), SOME)?,
        false => calm.disturbed(Some(fence.top()), look.own_cpu())?,
    };
    scenario.lift()?;
    scenario.work_without(bars::WITHOUT);
    fence.check_time()?;
    let parties = vec![Party::of(&scenario, &look, cpu, counter)];
    Ok((Made { parties, disturbed, ..made(cell) }, look))
}

/// A crowd of full weight takes as much from unpinned threads as pinning does: only beside a lighter one (batch work)
/// does a mask cost them anything.
fn weight_of_crowd(kind: Kind, draw: &mut Draw) -> u64 {
    if kind == Kind::CpuPinned { draw.between(6, 16) } else { 1 }
}

fn in_a_crowd(kind: Kind, draw: &mut Draw, label: &str) -> Result<(Made, Look), Trouble> {
    let fence = Fence::enter()?;
    let mut scenario = Scenario::set(&TestBed::alone(&fence), kind, Form::Fault, draw)?;
    let alone = clock::span_of(bars::WITHOUT);
    let alone = scenario.victim().ledger().rate(alone);
    let crowd = Crowd::start(&fence, bars::CROWD, weight_of_crowd(kind, draw), draw)?;
    std::thread::sleep(bars::SETTLE);
    scenario.work_without(bars::WITHOUT_IN_CROWD);
    scenario.impose()?;
    std::thread::sleep(bars::SETTLE);
    let calm = Calm::watch(Some(fence.top()))?;
    let cpu = scenario.group().cpu_used()?;
    let look = exam::look(label)?;
    let cpu = used(scenario.group(), cpu)?;
    let disturbed = calm.crowded(Some(fence.top()), look.own_cpu(), SOME)?;
    scenario.lift()?;
    scenario.work_without(bars::WITHOUT_IN_CROWD);
    fence.check_time()?;
    let mut party = Party::of(&scenario, &look, cpu, [None; 2]);
    let truth = party.truth;
    party.to_crowd = Some(Truth { rate_with: truth.rate_without, rate_without: alone, ..truth });
    let mob = Some(Mob::of(&crowd, look.window));
    Ok((Made { parties: vec![party], mob, disturbed, ..made(Cell::Crowd(kind)) }, look))
}

/// Two faults at once.
fn pair(kinds: [Kind; 2], draw: &mut Draw, label: &str) -> Result<(Made, Look), Trouble> {
    let fence = Fence::enter()?;
    let testbed = TestBed::one_of_two(&fence);
    let mut a = Scenario::set(&testbed, kinds[0], Form::Fault, draw)?;
    let mut b = Scenario::set(&testbed, kinds[1], Form::Fault, draw)?;
    std::thread::sleep(bars::WITHOUT);
    // The rate without one fault is measured with the other in place: that is the counterfactual of each.
    without_the_second(&mut a, &mut b)?;
    without_the_second(&mut b, &mut a)?;
    a.impose()?;
    std::thread::sleep(bars::SETTLE);
    let (calm, all) = (Calm::watch(Some(fence.top()))?, Calm::watch(None)?);
    let cpu = [a.group().cpu_used()?, b.group().cpu_used()?];
    let look = exam::look(label)?;
    let cpu = [used(a.group(), cpu[0])?, used(b.group(), cpu[1])?];
    let left_over = Some(all.left_over()?);
    let disturbed = calm.crowded(Some(fence.top()), look.own_cpu(), SOME)?;
    without_the_second(&mut a, &mut b)?;
    without_the_second(&mut b, &mut a)?;
    fence.check_time()?;
    let parties = vec![Party::of(&a, &look, cpu[0], [None; 2]), Party::of(&b, &look, cpu[1], [None; 2])];
    Ok((Made { parties, left_over, disturbed, ..made(Cell::Pair(kinds[0], kinds[1])) }, look))
}

/// `on` has its fault, `off` does not: a measure of `off` without. Both are left as they are then.
fn without_the_second(on: &mut Scenario, off: &mut Scenario) -> Result<(), Trouble> {
    on.impose()?;
    off.lift()?;
    std::thread::sleep(bars::SETTLE);
    off.count_as_without(clock::span_of(bars::WITHOUT));
    Ok(())
}

/// Nothing runs.
fn idle(label: &str) -> Result<(Made, Look), Trouble> {
    let fence = Fence::enter()?;
    let calm = Calm::watch(None)?;
    let look = exam::look(label)?;
    let disturbed = calm.disturbed(None, look.own_cpu())?;
    fence.check_time()?;
    Ok((Made { disturbed, ..made(Cell::Idle) }, look))
}

/// So many compilers run, in a cgroup of their own.
fn compile(jobs: usize, draw: &mut Draw, label: &str) -> Result<(Made, Look), Trouble> {
    let fence = Fence::enter()?;
    let compile = Compile::start(&fence, jobs, draw)?;
    compile.until_one_is_done(ONE_FILE_WITHIN)?;
    let calm = Calm::watch(Some(fence.top()))?;
    let (files, cpu) = (compile.done(), compile.group().cpu_used()?);
    let look = exam::look(label)?;
    let files = (compile.done() - files) as u64;
    let cpu = used(compile.group(), cpu)?;
    let disturbed = calm.disturbed(Some(fence.top()), look.own_cpu())?;
    fence.check_time()?;
    let sight = Sight { group: compile.group().path().to_owned(), used: look.part(cpu) };
    let built = Some(Built { group: fence.top().path().to_owned(), sight, files });
    Ok((Made { built, disturbed, ..made(Cell::Compile(jobs)) }, look))
}
