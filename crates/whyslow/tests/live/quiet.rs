//! Healthy twins and decoys: nobody of the test is accused.

use whyslow_faults::host::Calm;
use whyslow_faults::rounds::{Outcome, Trouble};
use whyslow_faults::scene::Stage;
use whyslow_faults::{Draw, Fence, Form, Kind, Scene, bars};

use crate::cell::Cell;
use crate::exam::{Exam, Finding};

/// Steal is the hypervisor's doing: a host in a cloud may have it at any time.
const NOT_OURS: &str = "steal";

/// The causes that an idle host should not have.
pub fn accusations(exam: &Exam) -> Vec<String> {
    exam.causes().iter().filter(|finding| finding.rule() != NOT_OURS).map(Finding::to_string).collect()
}

/// Make the twin or decoy, look, and expect no blame.
pub fn check(cell: Cell, draw: &mut Draw, label: &str) -> Result<Outcome, Trouble> {
    let (kind, form) = match cell {
        Cell::Twin(kind) => (kind, Form::Twin),
        Cell::Decoy(kind) => (kind, Form::Decoy),
        other => return Err(format!("{other} is neither twin nor decoy").into()),
    };
    let mut why = String::new();
    for attempt in 0..bars::TRIES {
        let fence = Fence::enter()?;
        let mut scene = Scene::set(&Stage::alone(&fence), kind, form, draw)?;
        scene.work_without(bars::WITHOUT);
        scene.impose()?;
        std::thread::sleep(bars::SETTLE);
        let calm = Calm::watch(Some(fence.top()))?;
        let before = scene.counter()?;
        let exam = Exam::look(&format!("{label}-{attempt}"))?;
        let after = scene.counter()?;
        let disturbed = calm.disturbed(Some(fence.top()), exam.own_cpu())?;
        scene.lift()?;
        scene.work_without(bars::WITHOUT);
        fence.check_time()?;
        let truth = scene.truth(exam.window);
        let context = || format!("{scene}\n  truth: {truth}\n  {}", exam.summary());
        if truth.share() >= bars::NO_FAULT {
            why = format!("something was lost all the same: {}", context());
            continue;
        }
        if cell == Cell::Twin(Kind::ListenOverflow) && after > before {
            // A second or more of a client each, in both halves of the truth alike.
            why = format!("the queue overflowed all the same, {before:?} to {after:?} times: {}", context());
            continue;
        }
        if form == Form::Decoy && after.is_some() && after <= before {
            why = format!("the counter stood still at {before:?}: {}", context());
            continue;
        }
        if let Some(blame) = exam.causes().iter().find(|finding| finding.names(&scene)) {
            return Err(format!("the innocent is accused: \"{blame}\": {}", context()).into());
        }
        match disturbed {
            Some(reason) => why = reason,
            None if accusations(&exam).is_empty() => return Ok(Outcome::Passed),
            None => return Err(format!("a cause on an idle host: {}", context()).into()),
        }
    }
    Ok(Outcome::HostNotIdle(why))
}
