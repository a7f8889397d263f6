//! A cgroup's CPU quota runs out.
//!
//! Fault: one to four nested cgroups, or siblings below one parent; one, some or all levels have a quota. 2 to 6 threads, some of which
//! sleep between bursts, get 25 to 60 % of the CPU time that they got just before: on a busy host a larger quota would throttle no thread.
//! A quota that may be saved up does not help threads that use it up. Twin: the same threads with an ample quota or none, or bursts on a
//! timer, each larger than the quota of one period, all of which was saved up. False-positive control: bursts on a timer, each larger than
//! the quota of one period plus its savings, and smaller than the quota of the periods until the next burst: the group is throttled again
//! and again, and never late.

use std::io;
use std::time::Duration;

use crate::clock;
use crate::scenario::{FaultKind, Form, Scenario, Switch, TestBed};
use crate::spec::Work;
use crate::{Draw, Victim};

use super::tree::Tree;

/// The victim's CPU time is measured over this time before the quota is set.
const LOOK_BACK: Duration = Duration::from_millis(800);
/// The kernel refuses a smaller quota.
const LEAST_QUOTA: Duration = Duration::from_millis(1);

/// Draw a scenario and start it.
pub fn set(testbed: &TestBed<'_>, form: Form, draw: &mut Draw) -> io::Result<Scenario> {
    let period = Duration::from_millis(draw.between(20, 100));
    let mut tree = Tree::of_quotas(testbed, form, draw)?;
    let group = tree.leaf().clone();
    let (threads, work, switch, said) = match form {
        Form::Control => control(period, &tree, draw),
        Form::Fault | Form::Twin => busy(form, period, &mut tree, draw),
    };
    let comm = format!("quota-{}", draw.word(4));
    let victim = Victim::spawn(tree.spec(testbed, &comm, threads, work))?;
    let (counted, limits) = (tree.binding().clone(), tree.must_change());
    Ok(Scenario {
        victim,
        others: Vec::new(),
        group,
        kind: FaultKind::CpuQuota,
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

fn busy(form: Form, period: Duration, tree: &mut Tree, draw: &mut Draw) -> Drawn {
    if form == Form::Twin && draw.one_in(3) {
        return saved_up(period, tree, draw);
    }
    let threads = draw.between(2, 6);
    let sleepy = draw.one_in(3);
    let (burst_us, rest_us) =
        if sleepy { (draw.between(2_000, 6_000), draw.between(1_000, 5_000)) } else { (200, 0) };
    let bite = tree.bite(draw, [0.25, 0.6]);
    let saves = if draw.one_in(2) { draw.real(0.1, 1.0) } else { 0.0 };
    let (switch, what) = match form {
        Form::Fault => {
            let what =
                format!("{:.0} % of its CPU, of which {:.0} % may be saved up", bite * 100.0, saves * 100.0);
            (bitten(tree.clone(), period, bite, saves), what)
        }
        // Each thread may use a CPU all the time, and quota that a CPU took in advance and lost does not matter.
        _ if draw.one_in(2) => {
            let ample = period * 2 * threads as u32;
            (fixed(tree.clone(), Some((ample, period)), Duration::ZERO), format!("{ample:?}"))
        }
        _ => (fixed(tree.clone(), None, Duration::ZERO), "none".to_owned()),
    };
    let said = format!(
        "{threads} threads, {burst_us} us of CPU then {rest_us} us of sleep, quota {what}, period {period:?}; quotas by level, the outermost first: {tree}"
    );
    (threads, Work::Spin { burst_us, rest_us }, switch, said)
}

/// A group that leaves its quota unused for a while may use more than its quota later: no task waits.
fn saved_up(period: Duration, tree: &Tree, draw: &mut Draw) -> Drawn {
    let quota = period * draw.between(25, 35) as u32 / 100;
    let burst = quota * draw.between(140, 160) as u32 / 100;
    paced(period, tree, [quota, quota, burst], draw)
}

fn control(period: Duration, tree: &Tree, draw: &mut Draw) -> Drawn {
    let quota = period * draw.between(20, 35) as u32 / 100;
    let saves = if draw.one_in(2) { quota * draw.between(20, 50) as u32 / 100 } else { Duration::ZERO };
    // More than a period allows, less than two: done before the third begins.
    let burst = saves + quota * draw.between(150, 180) as u32 / 100;
    paced(period, tree, [quota, saves, burst], draw)
}

fn paced(period: Duration, tree: &Tree, [quota, saves, burst]: [Duration; 3], draw: &mut Draw) -> Drawn {
    let every = period * draw.between(30, 36) as u32 / 10;
    let said = format!(
        "{burst:?} of CPU every {every:?}, quota {quota:?}, period {period:?}, {saves:?} may be saved up; quotas by level, the outermost first: {tree}"
    );
    // Siblings share it.
    let burst = burst / tree.siblings() as u32;
    let work = Work::Paced { burst_us: burst.as_micros() as u64, every_us: every.as_micros() as u64 };
    (1, work, fixed(tree.clone(), Some((quota, period)), saves), said)
}

fn fixed(tree: Tree, quota: Option<(Duration, Duration)>, saves: Duration) -> Switch {
    Box::new(move |_, on| set_quota(&tree, quota.filter(|_| on), saves))
}

/// Set a quota for each period, and the part of it that may be saved up.
fn set_quota(tree: &Tree, quota: Option<(Duration, Duration)>, saves: Duration) -> io::Result<()> {
    tree.set_quota(quota)?;
    // Kernels before 5.14 have no such file.
    if quota.is_some() && !saves.is_zero() { tree.set_burst(saves) } else { Ok(()) }
}

/// A quota of `bite` times the CPU time that the victim uses just before the quota is first set. It uses the kernel's own account: that is
/// what a quota limits, and on an emulated CPU a burst takes longer than planned.
fn bitten(tree: Tree, period: Duration, bite: f64, saves: f64) -> Switch {
    let mut quota = None;
    Box::new(move |_, on| {
        if !on {
            return set_quota(&tree, None, Duration::ZERO);
        }
        let quota = match quota {
            Some(quota) => quota,
            None => {
                let before = tree.outermost().cpu_used()?;
                let over = clock::span_of(LOOK_BACK).length();
                let used = tree.outermost().cpu_used()?.saturating_sub(before);
                *quota.insert(period.mul_f64(used.as_secs_f64() / over.as_secs_f64() * bite).max(LEAST_QUOTA))
            }
        };
        set_quota(&tree, Some((quota, period)), quota.mul_f64(saves))
    })
}
