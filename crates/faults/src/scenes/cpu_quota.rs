//! A cgroup's CPU quota runs out.
//!
//! Fault: in one to four nested cgroups of which one, some or all have a quota, 2 to 6 threads, some of which sleep between bursts, with 25 to 60 % of the CPU that they got just before:
//! a quota above that would bite nobody on a busy host. Twin: the same threads with an ample quota or none. Decoy:
//! bursts on a timer, each larger than the quota of one period and smaller than that of the periods until the next:
//! throttled again and again, never late.

use std::io;
use std::time::Duration;

use crate::clock;
use crate::scene::{Form, Kind, Scene, Stage, Switch};
use crate::spec::Work;
use crate::{Draw, Victim};

use super::tree::Tree;

/// The victim's CPU is taken over this time before the quota is set.
const LOOK_BACK: Duration = Duration::from_millis(800);
/// The kernel refuses less.
const LEAST_QUOTA: Duration = Duration::from_millis(1);

/// Draw one and start it.
pub fn set(stage: &Stage<'_>, form: Form, draw: &mut Draw) -> io::Result<Scene> {
    let period = Duration::from_millis(draw.between(20, 100));
    let tree = Tree::draw(stage, form, draw)?;
    let group = tree.leaf().clone();
    let (threads, work, switch, said) = match form {
        Form::Decoy => decoy(period, &tree, draw),
        Form::Fault | Form::Twin => busy(form, period, &tree, draw),
    };
    let comm = format!("quota-{}", draw.word(4));
    let victim = Victim::spawn(stage.fence.spec(&group, &comm, threads, work))?;
    let (counted, limits) = (tree.binding().clone(), tree.must_change());
    Ok(Scene {
        victim,
        others: Vec::new(),
        resources: vec![tree.outermost().path().to_owned()],
        group,
        kind: Kind::CpuQuota,
        form,
        said,
        switch,
        counter: Some(Box::new(move |_| counted.throttled_periods())),
        without: Vec::new(),
        limits,
        _belongings: Vec::new(),
    })
}

type Drawn = (u64, Work, Switch, String);

fn busy(form: Form, period: Duration, tree: &Tree, draw: &mut Draw) -> Drawn {
    let threads = draw.between(2, 6);
    let sleepy = draw.one_in(3);
    let (burst_us, rest_us) =
        if sleepy { (draw.between(2_000, 6_000), draw.between(1_000, 5_000)) } else { (200, 0) };
    let bite = draw.real(0.25, 0.6);
    let (switch, what) = match form {
        Form::Fault => (bitten(tree.clone(), period, bite), format!("{:.0} % of its CPU", bite * 100.0)),
        // Each thread may use a CPU all the time, and what a CPU took in advance and lost does not matter.
        _ if draw.one_in(2) => {
            let ample = period * 2 * threads as u32;
            (fixed(tree.clone(), Some((ample, period))), format!("{ample:?}"))
        }
        _ => (fixed(tree.clone(), None), "none".to_owned()),
    };
    let said = format!(
        "{threads} threads, {burst_us} us of CPU then {rest_us} us of sleep, quota {what}, period {period:?}; quotas by level, the outermost first: {tree}"
    );
    (threads, Work::Spin { burst_us, rest_us }, switch, said)
}

fn decoy(period: Duration, tree: &Tree, draw: &mut Draw) -> Drawn {
    let quota = period * draw.between(20, 35) as u32 / 100;
    // More than a period allows, less than two: done before the third begins.
    let burst = quota * draw.between(150, 180) as u32 / 100;
    let every = period * draw.between(30, 36) as u32 / 10;
    let said = format!("{burst:?} of CPU every {every:?}, quota {quota:?}, period {period:?}");
    let work = Work::Paced { burst_us: burst.as_micros() as u64, every_us: every.as_micros() as u64 };
    (1, work, fixed(tree.clone(), Some((quota, period))), said)
}

fn fixed(tree: Tree, quota: Option<(Duration, Duration)>) -> Switch {
    Box::new(move |_, on| tree.set_quota(if on { quota } else { None }))
}

/// A quota of `bite` times the CPU that the victim uses just before it is first set. By the kernel's own account: that is what
/// a quota limits, and on an emulated CPU a burst takes longer than it was meant to.
fn bitten(tree: Tree, period: Duration, bite: f64) -> Switch {
    let mut quota = None;
    Box::new(move |_, on| {
        if !on {
            return tree.set_quota(None);
        }
        let quota = match quota {
            Some(quota) => quota,
            None => {
                let before = tree.leaf().cpu_used()?;
                let over = clock::span_of(LOOK_BACK).length();
                let used = tree.leaf().cpu_used()?.saturating_sub(before);
                *quota.insert(period.mul_f64(used.as_secs_f64() / over.as_secs_f64() * bite).max(LEAST_QUOTA))
            }
        };
        tree.set_quota(Some((quota, period)))
    })
}
