//! A lock chain on this host: its files and cgroups, started directly or under another program.

use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Ask, Leaf, Link, Plan, Told, leaf};
use crate::cgroup::{Group, IoLimit};
use crate::ledger::Word;
use crate::spec::{Spec, Work};
use crate::victim::{Launch, Victim};
use crate::{Draw, Fence, host};

/// A lock chain that is set up or runs.
pub struct LockChain {
    plan: Plan,
    spec: Spec,
    group: Group,
    cpu: Option<usize>,
    said: String,
}

impl LockChain {
    /// Whether all its threads may use one CPU only.
    #[must_use]
    pub fn is_on_one_cpu(&self) -> bool {
        self.cpu.is_some()
    }

    /// Draw a lock chain, and make its files and cgroups.
    pub fn set(fence: &Fence, ask: Ask, draw: &mut Draw) -> io::Result<Self> {
        let mut plan = ask.draw(draw);
        let label = draw.word(6);
        let group = fence.group(&label)?;
        plan.dir = fence.dir().join(&label);
        std::fs::create_dir(&plan.dir)?;
        let mut said = String::new();
        match plan.leaf {
            Leaf::Disk => said = hold_back(&plan, &group, draw)?,
            Leaf::Quota => {
                let (of, text) = with_quota(fence, draw, plan.healthy)?;
                plan.leaf_joins = of.procs_files();
                said = text;
            }
            _ => {}
        }
        if plan.links.contains(&Link::Cgroups) {
            for _ in 0..2 {
                plan.homes.extend(fence.group(&draw.word(7))?.procs_files().into_iter().next());
            }
        }
        // A crowd fills all CPUs: a lock chain pinned to one CPU would only be slower.
        let cpu = (!ask.in_a_crowd && draw.one_in(3)).then(|| draw.pick(&host::cpus()));
        let top = plan.positions.first().and_then(|p| plan.names.get(*p)).cloned().unwrap_or_default();
        let mut spec = fence.spec(&group, &top, plan.len() as u64, Work::LockChain(Box::new(plan.clone())));
        spec.apart = plan.apart;
        Ok(LockChain { plan, spec, group, cpu, said })
    }

    /// Start it; it does not begin its rounds yet.
    pub fn start(&self, launch: Launch) -> io::Result<Victim> {
        let victim = Victim::start(self.spec.clone(), launch)?;
        if let Some(cpu) = self.cpu {
            victim.pin(&[cpu])?;
        }
        Ok(victim)
    }

    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Its plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The record of its threads so far.
    #[must_use]
    pub fn reported(&self, victim: &Victim) -> Told {
        Told::read(victim.ledger(), &self.plan, &victim.tids())
    }

    fn rests(&self) -> String {
        let (each, name) = (self.plan.rests, &self.plan.rest_name);
        if each > 0 { format!(", {each} {name} beside each") } else { String::new() }
    }

    /// Start no further round.
    pub fn stop(&self, victim: &Victim) {
        victim.ledger().word(Word::Stop).store(1, Ordering::Release);
    }
}

impl fmt::Display for LockChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links: Vec<String> = self.plan.links.iter().map(|link| format!("{link:?}")).collect();
        write!(
            f,
            "{} {}, top to leaf: {} {:?}{}; rounds of {:?} us at most, every {} us{}{}{}",
            self.plan.len(),
            if self.plan.apart { "processes" } else { "threads" },
            links.join(" "),
            self.plan.leaf,
            self.said,
            self.plan.rounds.iter().max().copied().unwrap_or(0),
            self.plan.every_us,
            self.cpu.map_or(String::new(), |cpu| format!(", all on CPU {cpu}")),
            self.rests(),
            if self.plan.healthy { ", healthy" } else { "" }
        )
    }
}

/// Limit the lock chain's reads from the disk per second.
fn hold_back(plan: &Plan, group: &Group, draw: &mut Draw) -> io::Result<String> {
    if plan.healthy {
        return Ok(String::new());
    }
    leaf::make_file(plan)?;
    let disk = host::disk_of(&plan.dir.join(leaf::FILE))?;
    let reads = draw.between(40, 120);
    group.set_io_limit(&disk, false, Some(IoLimit::Requests(reads)))?;
    Ok(format!(" ({reads} reads a second)"))
}

/// A group that the leaf's process joins. A healthy leaf gets a larger quota than one thread can use: on an emulated CPU even a visit costs
/// CPU time.
fn with_quota(fence: &Fence, draw: &mut Draw, is_ample: bool) -> io::Result<(Group, String)> {
    let group = fence.group(&draw.word(8))?;
    let period = Duration::from_millis(draw.between(20, 50));
    let percent = draw.between(20, 50) + if is_ample { 130 } else { 0 };
    let quota = period * percent as u32 / 100;
    group.set_quota(Some((quota, period)))?;
    Ok((group, format!(" ({quota:?} of {period:?})")))
}
