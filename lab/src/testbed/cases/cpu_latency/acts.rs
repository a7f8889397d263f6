//! What the processes of a late CPU's case do.

use std::fs::{self, File};
use std::io::{self, Read as _};

use serde::{Deserialize, Serialize};
use whyslow_faults::{clock, host};

use super::super::actor::Pen;
use super::super::{policies, sys};
use super::Ask;

/// Queries all CPUs at once.
const CPUINFO: &str = "/proc/cpuinfo";
/// Queries every CPU in turn; records how long each answer took, and from which CPU.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AskCpus {
    pub ask: Ask,
    pub cpus: Vec<usize>,
    pub every_ms: u64,
}

/// System calls for a while, sleep for a while.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Calls {
    pub busy_us: u64,
    pub every_us: u64,
}

/// How long a CPU took to answer, and to which CPU.
pub struct Answer {
    pub ns: u64,
    pub of: usize,
    pub to: usize,
}

/// No CPU: its timer's answer.
const TIMER: usize = 0xff;

impl Answer {
    /// Lateness of a tick.
    fn late(ns: u64) -> u64 {
        Answer { ns, of: TIMER, to: TIMER }.packed()
    }

    pub fn is_of_timer(&self) -> bool {
        self.of == TIMER
    }

    fn packed(&self) -> u64 {
        self.ns << 16 | (self.of as u64 & 0xff) << 8 | (self.to as u64 & 0xff)
    }

    pub fn unpacked(what: u64) -> Self {
        Answer { ns: what >> 16, of: (what >> 8 & 0xff) as usize, to: (what & 0xff) as usize }
    }
}

impl AskCpus {
    pub fn live(&self, mut pen: Pen) -> io::Result<()> {
        let counters = match self.ask {
            Ask::Frequency | Ask::Cpuinfo => Vec::new(),
            Ask::Counter => {
                self.cpus.iter().map(|cpu| sys::cpu_counter(*cpu)).collect::<io::Result<Vec<File>>>()?
            }
        };
        if self.ask == Ask::Cpuinfo {
            // A thread on the queried CPU sends no interrupt.
            let elsewhere: Vec<usize> =
                host::cpus().into_iter().filter(|cpu| !self.cpus.contains(cpu)).collect();
            whyslow_faults::sys::pin(0, &elsewhere)?;
        }
        pen.ready();
        pen.at_each_tick(self.every_ms * 1_000_000, |pen| {
            pen.note_lateness(Answer::late);
            for (place, cpu) in self.cpus.iter().enumerate() {
                let (began, from) = (clock::now(), sys::this_cpu());
                match counters.get(place) {
                    Some(mut counter) => drop(counter.read(&mut [0; 8])?),
                    None if self.ask == Ask::Cpuinfo => drop(fs::read(CPUINFO)?),
                    None => drop(fs::read(policies::present_frequency(*cpu))?),
                }
                pen.note(
                    began,
                    Answer { ns: clock::now().saturating_sub(began), of: *cpu, to: from }.packed(),
                );
            }
            pen.did_one();
            Ok(())
        })
    }
}

impl Calls {
    pub fn live(&self, mut pen: Pen) -> io::Result<()> {
        pen.ready();
        pen.at_each_tick(self.every_us * 1000, |pen| {
            pen.note_lateness(Answer::late);
            let until = clock::now() + self.busy_us * 1000;
            while clock::now() < until {
                fs::metadata("/proc/self/mountinfo")?;
            }
            pen.did_one();
            Ok(())
        })
    }
}
