//! Busy jobs that are all bound to one of two nodes, while the other node idles.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use whyslow_faults::clock::Span;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, host};

use super::actor::{Act, Actor, Order};
use super::{named, sys};
use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting};

/// On half of the CPUs the jobs do half of their work.
const LEAST_RATIO: f64 = 1.4;
/// CPU time of a piece of work.
const PIECE_US: u64 = 1_000;

/// What is drawn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Name of the jobs.
    pub job: String,
    /// How many.
    pub jobs: u64,
    /// The node that they are bound to.
    pub node: usize,
    /// The same load, spread over both nodes.
    #[serde(default)]
    pub twin: bool,
}

struct Running {
    spec: Spec,
    jobs: Vec<Actor>,
    cpus: Vec<usize>,
}

impl Setting for Spec {
    fn set(&self, testbed: &TestBed, _: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let cpus = cpus_of(self.node)?;
        if cpus.is_empty() || cpus.len() >= host::cpus().len() {
            return Err(format!("node {} has CPUs {cpus:?}: this wants two nodes", self.node).into());
        }
        let group = testbed.fence.group(&self.job)?;
        let job = |_| Order::new(&self.job, Act::Busy(PIECE_US)).within(group.procs_files()).start();
        let jobs = (0..self.jobs).map(job).collect::<io::Result<_>>()?;
        Ok(Box::new(Running { spec: self.clone(), jobs, cpus }))
    }
}

/// The CPUs of a node, from a list like "0-1,4".
fn cpus_of(node: usize) -> Result<Vec<usize>, Trouble> {
    let file = Path::new("/sys/devices/system/node").join(format!("node{node}/cpulist"));
    let text = fs::read_to_string(&file).map_err(|err| format!("{}: {err}", file.display()))?;
    let range = |part: &str| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        Some(low.parse::<usize>().ok()?..=high.parse::<usize>().ok()?)
    };
    Ok(text.trim().split(',').filter_map(range).flatten().collect())
}

impl Running {
    fn rate(&self, span: Span) -> f64 {
        self.jobs.iter().map(|job| job.rate(span)).sum()
    }
}

impl Part for Running {
    fn impose(&mut self) -> Result<(), Trouble> {
        let cpus = if self.spec.twin { host::cpus() } else { self.cpus.clone() };
        Ok(self.jobs.iter().try_for_each(|job| sys::pin(job.pid() as i32, &cpus))?)
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        Ok(self.jobs.iter().try_for_each(|job| sys::pin(job.pid() as i32, &host::cpus()))?)
    }

    fn names(&self) -> BTreeMap<String, String> {
        named([("job", self.spec.job.clone()), ("node", self.spec.node.to_string())])
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let usual = without.iter().map(|span| self.rate(*span)).sum::<f64>() / without.len().max(1) as f64;
        let with = self.rate(window);
        if self.spec.twin {
            let proof = Proof::stays("CPU time of all jobs, ms a second", with, usual, LEAST_RATIO);
            return Ok(Facts { proof, lost_s: None, names: self.names() });
        }
        let lost =
            self.jobs.len() as f64 * window.length().as_secs_f64() * (1.0 - with / usual.max(1e-3)).max(0.0);
        let proof = Proof::falls("CPU time of all jobs, ms a second", with, usual, LEAST_RATIO);
        Ok(Facts { proof, lost_s: Some((lost * 0.7, lost * 1.3)), names: self.names() })
    }
}
