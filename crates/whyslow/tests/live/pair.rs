//! Two faults at once: both found, ranked as the victims' clocks rank them.

use whyslow_faults::host::Calm;
use whyslow_faults::rounds::{Outcome, Trouble};
use whyslow_faults::scene::Stage;
use whyslow_faults::{Draw, Fence, Form, Kind, Scene, bars, clock};

use crate::exam::Exam;
use crate::single::told;

/// Make both, look, and compare ranks.
pub fn check(kinds: [Kind; 2], draw: &mut Draw, label: &str) -> Result<Outcome, Trouble> {
    let mut why = String::new();
    for attempt in 0..bars::TRIES {
        let fence = Fence::enter()?;
        let stage = Stage::one_of_two(&fence);
        let mut a = Scene::set(&stage, kinds[0], Form::Fault, draw)?;
        let mut b = Scene::set(&stage, kinds[1], Form::Fault, draw)?;
        std::thread::sleep(bars::WITHOUT);
        // The rate without one fault is measured with the other in place: that is the counterfactual of each.
        without_the_second(&mut a, &mut b)?;
        without_the_second(&mut b, &mut a)?;
        a.impose()?;
        std::thread::sleep(bars::SETTLE);
        let calm = Calm::watch(None)?;
        let exam = Exam::look(&format!("{label}-{attempt}"))?;
        let left_over = calm.left_over()?;
        without_the_second(&mut a, &mut b)?;
        without_the_second(&mut b, &mut a)?;
        fence.check_time()?;
        let (x, y) = (a.truth(exam.window), b.truth(exam.window));
        let context = format!("{a}\n  truth: {x}\n{b}\n  truth: {y}\n  {}", exam.summary());
        if x.share().min(y.share()) < bars::A_FAULT_IN_CROWD {
            why = format!("a fault did not come about: {context}");
            continue;
        }
        if kinds.contains(&Kind::CpuPinned) && left_over < bars::A_FAULT_IN_CROWD {
            why = format!("the other fault left no CPU to threads that are pinned to one: {context}");
            continue;
        }
        let (Some((rank_a, _)), Some((rank_b, _))) = (told(&exam, &a), told(&exam, &b)) else {
            return Err(format!("not both were found: {context}").into());
        };
        let apart = x.lost_s().max(y.lost_s()) > (1.0 + bars::APART) * x.lost_s().min(y.lost_s());
        if apart && (rank_a < rank_b) != (x.lost_s() > y.lost_s()) {
            return Err(format!("the smaller loss ranks above the larger: {context}").into());
        }
        return Ok(Outcome::Passed);
    }
    Ok(Outcome::HostNotIdle(why))
}

/// `on` has its fault, `off` does not: a measure of `off` without. Both are left as they are then.
fn without_the_second(on: &mut Scene, off: &mut Scene) -> Result<(), Trouble> {
    on.impose()?;
    off.lift()?;
    std::thread::sleep(bars::SETTLE);
    off.count_as_without(clock::span_of(bars::WITHOUT));
    Ok(())
}
