//! Make a cell: run the program and whyslow, and compare the document with the truth.

use std::io::ErrorKind;
use std::time::Duration;

use whyslow_faults::cgroup::Group;
use whyslow_faults::honest::Crowd;
use whyslow_faults::host::Calm;
use whyslow_faults::look::Look;
use whyslow_faults::report_checks::Sight;
use whyslow_faults::rounds::{self, Outcome, Trouble, Verdict};
use whyslow_faults::spinners::{Meter, Program, Running, Shape, SpinWait};
use whyslow_faults::{Draw, Fence};

use crate::spin::cell::Cell;
use crate::spin::finding::{Accusation, accusations};
use crate::spin::judge::{self, Made};
use crate::spin::table::Row;

/// Busy processes of the crowd: ten per CPU of the machine in the table.
const CROWD: usize = 20;
/// Time from its first work until a program behaves as it will from then on: code is compiled, buffers are full.
const SETTLE: Duration = Duration::from_millis(300);

/// Run one cell as a test.
pub fn run(cell: Cell) {
    rounds::run(&cell, &crate::kept_in("spin"), |draw| make(cell, draw));
}

fn make(cell: Cell, draw: &mut Draw) -> Result<Outcome, Trouble> {
    let made = rounds::until_judged(&cell, |_| match made(cell, draw) {
        // A program that gets no CPU time proves nothing.
        Err(trouble) if is(&trouble, ErrorKind::TimedOut) => Ok(Verdict::Again(trouble.to_string())),
        done => done,
    });
    match made {
        Err(trouble) if is(&trouble, ErrorKind::Unsupported) => Ok(Outcome::NotRun(trouble.to_string())),
        done => done,
    }
}

fn is(trouble: &Trouble, kind: ErrorKind) -> bool {
    trouble.downcast_ref::<std::io::Error>().is_some_and(|err| err.kind() == kind)
}

fn made(cell: Cell, draw: &mut Draw) -> Result<Verdict, Trouble> {
    let fence = Fence::enter()?;
    let crowd = if cell.crowded { Some(Crowd::start(&fence, CROWD, 1, draw)?) } else { None };
    let group = match &crowd {
        Some(crowd) if !has_its_own_group(cell.program) => crowd.group().clone(),
        _ => fence.group(&draw.word(7))?,
    };
    let shape = if cell.crowded { Shape::Mostly } else { Shape::Drawn };
    let running = Running::start(&fence, &group, cell.program, shape, draw)?;
    std::thread::sleep(SETTLE);
    let (made, look) = look_at(cell, &running, &fence, &group, crowd.as_ref(), draw)?;
    let (verdict, row) = judge::judge(&made, &look);
    row.iter().for_each(Row::note);
    // The first value is dropped first.
    drop((running, crowd));
    fence.check_time()?;
    Ok(verdict)
}

fn look_at(
    cell: Cell,
    running: &Running,
    fence: &Fence,
    group: &Group,
    crowd: Option<&Crowd>,
    draw: &Draw,
) -> Result<(Made, Look), Trouble> {
    let calm = Calm::watch(Some(fence.top()))?;
    let meter = running.pid().map(|pid| Meter::of(pid, running.tellers()));
    let (before, cpu) = (running.progress(), group.cpu_used()?);
    let look = crate::look("spin", &format!("{cell}-{}", draw.seed()), &["exam"])?;
    let (progress, cpu) = (running.progress() - before, group.cpu_used()?.saturating_sub(cpu));
    let disturbed = calm.disturbed(Some(fence.top()), look.own_cpu())?;
    let mut reported = running.reported(look.window)?;
    if let Some(meter) = meter.filter(|_| cell.program.spins()) {
        reported.scale_to(meter.within(look.window));
    }
    let asked = look.asked.unwrap_or(look.window).length().as_secs_f64().max(1e-9);
    let used = cpu.mul_f64((look.window.length().as_secs_f64() / asked).min(1.0));
    let is_ours = |pid: u32| {
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        Some((pid, groups.contains(fence.top().path())))
    };
    let made = Made {
        cell,
        comm: running.comm().to_owned(),
        pid: running.pid(),
        reported,
        progress,
        disturbed: disturbed.is_some(),
        sight: Sight { group: group.path().to_owned(), used },
        crowd: crowd.iter().map(|crowd| crowd.all().comm().to_owned()).collect(),
        innocents: vec![std::process::id()],
        ours: accusations(&look.document).iter().filter_map(Accusation::pid).filter_map(is_ours).collect(),
    };
    Ok((made, look))
}

/// Most programs are in the crowd's own group: in a group of their own they would have half of the machine. A program that yields gets
/// almost no CPU time in the crowd's group, and a program that spins only when it has no work always has some there: neither would spin. Of
/// the samples of a program whose calls find nothing, one in twenty shows a result: of the 60 samples that it gets there, too few.
fn has_its_own_group(program: Program) -> bool {
    matches!(program, Program::Erlang(_) | Program::Wait(SpinWait::Yield | SpinWait::Epoll | SpinWait::Recv))
}
