//! A cgroup's CPU quota runs out.
//!
//! Fault: 2 to 6 threads, some of which sleep between bursts, with 25 to 60 % of the CPU they could use.
//! Twin: the same threads with an ample quota or none. Decoy: bursts on a timer, each larger than the quota of
//! one period and smaller than that of the periods until the next: throttled again and again, never late.

use std::io;
use std::time::Duration;

use crate::scene::{Form, Kind, Scene, Stage};
use crate::spec::Work;
use crate::{Draw, Victim, host};

/// Draw one and start it.
pub fn set(stage: &Stage<'_>, form: Form, draw: &mut Draw) -> io::Result<Scene> {
    let period_us = draw.between(20, 100) * 1000;
    let (threads, work, quota_us, said) = match form {
        Form::Decoy => decoy(period_us, draw),
        Form::Fault | Form::Twin => busy(stage, form, period_us, draw),
    };
    let group = stage.fence.group(&draw.word(6))?;
    let comm = format!("quota-{}", draw.word(4));
    let victim = Victim::spawn(stage.fence.spec(&group, &comm, threads, work))?;
    let (imposed, counted) = (group.clone(), group.clone());
    let quota = quota_us.map(|us| (Duration::from_micros(us), Duration::from_micros(period_us)));
    Ok(Scene {
        victim,
        others: Vec::new(),
        resources: vec![group.path().to_owned()],
        group,
        kind: Kind::CpuQuota,
        form,
        said,
        switch: Box::new(move |_, on| imposed.set_quota(if on { quota } else { None })),
        counter: Some(Box::new(move |_| counted.throttled_periods())),
        without: Vec::new(),
        _belongings: Vec::new(),
    })
}

type Drawn = (u64, Work, Option<u64>, String);

fn busy(stage: &Stage<'_>, form: Form, period_us: u64, draw: &mut Draw) -> Drawn {
    let threads = draw.between(2, 6);
    let sleepy = draw.one_in(3);
    let (burst_us, rest_us) =
        if sleepy { (draw.between(2_000, 6_000), draw.between(1_000, 5_000)) } else { (200, 0) };
    // In a crowd of the same weight the group gets half of the CPUs; the quota must bite below that.
    let cpus = host::cpus().len() as f64 * if stage.crowded { 0.5 } else { 1.0 };
    let demand = (threads as f64 * burst_us as f64 / (burst_us + rest_us) as f64).min(cpus);
    let bite = draw.real(0.25, 0.6);
    let quota_us = match form {
        Form::Fault => Some(((demand * bite * period_us as f64) as u64).max(1_000)),
        // Each thread may use a CPU all the time, and what a CPU took in advance and lost does not matter.
        _ if draw.one_in(2) => Some(2 * threads * period_us),
        _ => None,
    };
    let said = format!(
        "{threads} threads, {burst_us} us of CPU then {rest_us} us of sleep, quota {quota_us:?} us of {period_us} us"
    );
    (threads, Work::Spin { burst_us, rest_us }, quota_us, said)
}

fn decoy(period_us: u64, draw: &mut Draw) -> Drawn {
    let quota_us = period_us * draw.between(20, 35) / 100;
    // More than a period allows, less than two: done before the third begins.
    let burst_us = quota_us * draw.between(150, 180) / 100;
    let every_us = period_us * draw.between(30, 36) / 10;
    let said = format!("{burst_us} us of CPU every {every_us} us, quota {quota_us} us of {period_us} us");
    (1, Work::Paced { burst_us, every_us }, Some(quota_us), said)
}
