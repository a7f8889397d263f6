//! One fault: found, with the right victim, the right loss, in the right place.

use whyslow_faults::honest::Crowd;
use whyslow_faults::host::Calm;
use whyslow_faults::rounds::{Outcome, Trouble};
use whyslow_faults::scene::Stage;
use whyslow_faults::{Draw, Fence, Form, Kind, Scene, Truth, bars, clock};

use crate::exam::{Exam, Finding};

/// Whether a finding is the one that a scene should give.
pub fn is_of(finding: &Finding<'_>, scene: &Scene) -> bool {
    let right_victim = finding.is_about_group(scene.group().path())
        // Who waits for a server is a task: its cgroup has no counter of connects.
        || (scene.kind() == Kind::ListenOverflow && finding.is_about_task_of(scene.victim()));
    finding.is_cause() && finding.rule() == scene.kind().rule() && right_victim
}

/// Where a scene's finding stands among the findings, and the loss it tells (all its victims together).
pub fn told(exam: &Exam, scene: &Scene) -> Option<(usize, f64)> {
    let findings = exam.findings();
    let rank = findings.iter().position(|finding| is_of(finding, scene))?;
    let lost = findings.iter().filter(|finding| is_of(finding, scene)).filter_map(Finding::lost_s).sum();
    Some((rank, lost))
}

/// On a host that is otherwise idle.
pub fn fault(kind: Kind, draw: &mut Draw, label: &str) -> Result<Outcome, Trouble> {
    let mut why = String::new();
    for attempt in 0..bars::TRIES {
        let fence = Fence::enter()?;
        let mut scene = Scene::set(&Stage::alone(&fence), kind, Form::Fault, draw)?;
        scene.work_without(bars::WITHOUT);
        scene.impose()?;
        std::thread::sleep(bars::SETTLE);
        let calm = Calm::watch(Some(fence.top()))?;
        let exam = Exam::look(&format!("{label}-{attempt}"))?;
        let disturbed = calm.disturbed(Some(fence.top()), exam.own_cpu())?;
        scene.lift()?;
        scene.work_without(bars::WITHOUT);
        fence.check_time()?;
        let truth = scene.truth(exam.window);
        if truth.share() < bars::A_FAULT {
            why = format!("{scene}: the fault did not come about: {truth}; {disturbed:?}");
            continue;
        }
        match judge(&exam, &scene, &truth, disturbed.is_none()) {
            Ok(()) if disturbed.is_none() => return Ok(Outcome::Passed),
            Ok(()) => why = disturbed.unwrap_or_default(),
            // On a host that others use the victim's clock and the window's tasks are not in step: look again.
            Err(trouble) if disturbed.is_some() && attempt + 1 < bars::TRIES => why = trouble.to_string(),
            Err(trouble) => return Err(trouble),
        }
    }
    Ok(Outcome::HostNotIdle(why))
}

fn judge(exam: &Exam, scene: &Scene, truth: &Truth, idle: bool) -> Result<(), Trouble> {
    let context = || format!("{scene}\n  truth: {truth}\n  {}", exam.summary());
    let Some((rank, lost)) = told(exam, scene) else {
        return Err(format!("not found: {}", context()).into());
    };
    if exam.status != Some(1) {
        return Err(format!("exit status {:?}, not 1: {}", exam.status, context()).into());
    }
    if idle && rank > 0 {
        return Err(format!("not the top finding but number {}: {}", rank + 1, context()).into());
    }
    // On a busy host somebody else's loss may be larger, but nothing else of ours.
    if let Some(above) = exam.findings().iter().take(rank).find(|finding| finding.names(scene)) {
        return Err(format!("ranks below \"{above}\": {}", context()).into());
    }
    if (lost - truth.lost_s()).abs() > bars::EXACT * truth.lost_s() {
        return Err(format!(
            "lost {lost:.2} s is not within {:.0} % of {:.2} s: {}",
            bars::EXACT * 100.0,
            truth.lost_s(),
            context()
        )
        .into());
    }
    Ok(())
}

/// A crowd of full weight takes as much from unpinned threads as pinning does: only beside a lighter one (batch work)
/// does a mask cost them anything.
fn weight_of_crowd(kind: Kind, draw: &mut Draw) -> u64 {
    if kind == Kind::CpuPinned { draw.between(6, 16) } else { 1 }
}

/// While busy processes fill the CPUs: still reported, and only larger losses rank above.
pub fn in_a_crowd(kind: Kind, draw: &mut Draw, label: &str) -> Result<Outcome, Trouble> {
    let mut why = String::new();
    for attempt in 0..bars::TRIES {
        let fence = Fence::enter()?;
        let mut scene = Scene::set(&Stage::alone(&fence), kind, Form::Fault, draw)?;
        let alone = clock::span_of(bars::WITHOUT);
        let alone = scene.victim().ledger().rate(alone);
        let crowd = Crowd::start(&fence, bars::CROWD, weight_of_crowd(kind, draw), draw)?;
        std::thread::sleep(bars::SETTLE);
        scene.work_without(bars::WITHOUT_IN_CROWD);
        scene.impose()?;
        std::thread::sleep(bars::SETTLE);
        let exam = Exam::look(&format!("{label}-{attempt}"))?;
        scene.lift()?;
        scene.work_without(bars::WITHOUT_IN_CROWD);
        fence.check_time()?;
        let truth = scene.truth(exam.window);
        if truth.share() < bars::A_FAULT_IN_CROWD {
            why = format!("{scene}: the fault did not come about: {truth}");
            continue;
        }
        let to_crowd = Truth { rate_with: truth.rate_without, rate_without: alone, ..truth };
        rank_in_crowd(&exam, &scene, &crowd, &truth, &to_crowd)?;
        return Ok(Outcome::Passed);
    }
    Ok(Outcome::HostNotIdle(why))
}

fn rank_in_crowd(
    exam: &Exam,
    scene: &Scene,
    crowd: &Crowd,
    truth: &Truth,
    to_crowd: &Truth,
) -> Result<(), Trouble> {
    let crowd_lost = crowd.lost_s(exam.window);
    let context = || {
        format!(
            "{scene}\n  truth: {truth}\n  lost to the crowd: {:.2} s; by the crowd itself: {crowd_lost:.2} s\n  {}",
            to_crowd.lost_s(),
            exam.summary()
        )
    };
    let Some((rank, _)) = told(exam, scene) else {
        return Err(format!("not found in a crowd: {}", context()).into());
    };
    for above in exam.findings().iter().take(rank) {
        let of_crowd = above.is_about_the_host()
            || above.is_about_group(crowd.group().path())
            || above.is_about_task_of(crowd.all());
        let lost = match above.names(scene) {
            _ if of_crowd => crowd_lost,
            true => to_crowd.lost_s(),
            false => 0.0,
        };
        if lost <= truth.lost_s() {
            return Err(format!("ranks below \"{above}\", a smaller loss: {}", context()).into());
        }
    }
    Ok(())
}
