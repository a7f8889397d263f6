//! Tasks bound to CPUs: a task that waits because of its mask loses only the unused time of the CPUs outside it; a spinning task loses
//! nothing.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use whyslow_faults::cgroup::Group;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::spec::Work;
use whyslow_faults::spinners::{Plan, Shape, SpinWait};
use whyslow_faults::{Draw, Span, Victim, host};

use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting, group_and_victim};

/// A CPU was full if one task bound to it ran there or was ready for a CPU for this part of the time.
const FULL: f64 = 0.97;
/// A task that waits for less of the time is no victim that must be found.
const A_LOSS: f64 = 0.3;
const WAITED: &str = "part of the time that it was ready and did not run";

/// A task of its own fills each CPU but one; on that one are tasks with hundreds of short sleeps a second. Its idle time is their own
/// sleep, and no other CPU has unused time.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FullElsewhere {
    cpu: usize,
    tasks: u64,
    burst_us: u64,
    /// Percent of that.
    rest: u64,
    /// All are in one cgroup.
    together: bool,
    /// Each is bound to its CPU; else the same work without masks.
    bound: bool,
}

/// Threads that poll a flag, and one that computes, all bound to one CPU: the waiting time of the computing thread is a loss, that of the
/// pollers is none.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spinners {
    cpu: usize,
    pairs: u64,
    comm: String,
    /// The computing thread is bound to another CPU.
    #[serde(default)]
    twin: bool,
}

/// Time that a victim ran, and time that it was ready for a CPU: schedstat, ns.
type Had = (u64, u64);

struct Running {
    /// The first is the one that could lose time.
    victims: Vec<Victim>,
    groups: Vec<Group>,
    before: Option<(Instant, Vec<Had>)>,
    /// Parts of the time.
    had: Vec<[f64; 2]>,
    proof: fn(&[[f64; 2]]) -> Proof,
}

impl Running {
    fn start(victims: Vec<Victim>, groups: Vec<Group>, proof: fn(&[[f64; 2]]) -> Proof) -> Box<dyn Part> {
        victims.iter().for_each(Victim::go);
        Box::new(Running { victims, groups, before: None, had: Vec::new(), proof })
    }

    fn had(&self) -> Vec<Had> {
        self.victims.iter().map(Victim::ran_and_waited).collect()
    }
}

impl Setting for FullElsewhere {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let (fence, cpus) = (&testbed.fence, host::cpus());
        let mut groups = vec![fence.group(&draw.word(6))?];
        if !self.together {
            groups.push(fence.group(&draw.word(7))?);
        }
        let theirs = chosen(self.cpu)?;
        let of = |cpu: &usize| if self.bound { vec![*cpu] } else { cpus.clone() };
        let work = Work::Spin { burst_us: self.burst_us, rest_us: self.burst_us * self.rest / 100 };
        let resting = Victim::spawn(fence.spec(&groups[0], &draw.word(9), self.tasks, work))?;
        resting.pin(&of(&theirs))?;
        let mut victims = vec![resting];
        for cpu in cpus.iter().filter(|cpu| **cpu != theirs) {
            let (group, work) = (&groups[groups.len() - 1], Work::Spin { burst_us: 200, rest_us: 0 });
            let filler = Victim::spawn(fence.spec(group, &format!("fill-{cpu}"), 1, work))?;
            filler.pin(&of(cpu))?;
            victims.push(filler);
        }
        let proof: fn(&[[f64; 2]]) -> Proof = match self.bound {
            true => {
                |had| Proof::rises("part of the time that each other CPU was full", fullness(had), FULL, 1.0)
            }
            false => |had| Proof::rises("part of the time that others wanted CPUs", fullness(had), 0.0, 1.0),
        };
        Ok(Running::start(victims, groups, proof))
    }
}

/// The n-th of the allowed CPUs, of two at least.
fn chosen(n: usize) -> Result<usize, Trouble> {
    match host::cpus()[..] {
        [] | [_] => Err("one CPU leaves no room".into()),
        ref cpus => Ok(cpus[n % cpus.len()]),
    }
}

/// The smallest of all but the first.
fn fullness(had: &[[f64; 2]]) -> f64 {
    had.iter().skip(1).map(|had| had[0] + had[1]).fold(1.0, f64::min)
}

impl Setting for Spinners {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let fence = &testbed.fence;
        let group = fence.group(&draw.word(6))?;
        let wait = draw.pick(&[SpinWait::FlagPause, SpinWait::FlagBare]);
        let plan = Box::new(Plan::draw(wait, Shape::Pure, self.pairs as usize, draw));
        let spin = Victim::spawn(fence.spec(&group, &draw.word(10), 2 * self.pairs, Work::Spinner(plan)))?;
        let work = Work::Spin { burst_us: draw.between(150, 300), rest_us: 0 };
        let victim = Victim::spawn(fence.spec(&group, &self.comm, 1, work))?;
        let (cpu, other) = (chosen(self.cpu)?, chosen(self.cpu + 1)?);
        spin.pin(&[cpu])?;
        victim.pin(&[if self.twin { other } else { cpu }])?;
        let proof: fn(&[[f64; 2]]) -> Proof = match self.twin {
            true => |had| Proof::falls(WAITED, had[0][1], A_LOSS, 1.0),
            false => |had| Proof::rises(WAITED, had[0][1], A_LOSS, 1.0),
        };
        Ok(Running::start(vec![victim, spin], vec![group], proof))
    }
}

impl Part for Running {
    fn impose(&mut self) -> Result<(), Trouble> {
        self.before = Some((Instant::now(), self.had()));
        Ok(())
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        let (began, before) = self.before.take().ok_or("it was not imposed")?;
        let wall = began.elapsed().as_nanos() as f64;
        let part = |before: u64, after: u64| after.saturating_sub(before) as f64 / wall;
        let both = before.iter().zip(self.had());
        self.had = both.map(|(from, to)| [part(from.0, to.0), part(from.1, to.1)]).collect();
        Ok(())
    }

    fn names(&self) -> BTreeMap<String, String> {
        group_and_victim(&self.groups[0], &self.victims[0])
    }

    fn groups(&self) -> Vec<&Group> {
        self.groups.iter().collect()
    }

    fn facts(&self, window: Span, _: &[Span]) -> Result<Facts, Trouble> {
        let lost = self.had[0][1] * window.length().as_secs_f64();
        Ok(Facts { proof: (self.proof)(&self.had), lost_s: Some((lost, lost)), names: self.names() })
    }
}
