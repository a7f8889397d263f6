//! What was made, and what became of it by the clocks of those who were in it: all that a judge may know beside the document.

use std::time::Duration;

use whyslow_faults::honest::Crowd;
use whyslow_faults::look::Look;
use whyslow_faults::said::Sight;
use whyslow_faults::{Kind, Scenario, Span, Truth, bars};

use crate::live::cell::Cell;

/// A cell that was made.
pub struct Made {
    /// Which one.
    pub cell: Cell,
    /// Its scenarios.
    pub parties: Vec<Party>,
    /// Busy processes beside them.
    pub mob: Option<Mob>,
    /// Compilers.
    pub built: Option<Built>,
    /// Threads of the test that did nothing meanwhile but wait for whyslow.
    pub innocents: Vec<u32>,
    /// What others did with the host.
    pub disturbed: Option<String>,
    /// CPUs' worth of time that nobody used, where that was asked.
    pub left_over: Option<f64>,
}

/// A scenario, after the look.
pub struct Party {
    /// Which fault.
    pub kind: Kind,
    /// What its victim lost.
    pub truth: Truth,
    /// What its victim lost to a crowd.
    pub to_crowd: Option<Truth>,
    /// The cgroup whose limit binds: its victim's or one above.
    pub group: String,
    /// Cgroups whose limit must change, where that is known.
    pub limits: Vec<String>,
    /// What that used.
    pub sight: Sight,
    /// Its victim: process and threads.
    pub victim: Vec<u32>,
    /// The same of all its processes.
    pub all: Vec<u32>,
    /// Names of its processes and resources.
    pub names: Vec<String>,
    /// Whether the counter rose that rises with the fault and with the false-positive control, where the kernel has one.
    pub counter: Option<[u64; 2]>,
    /// What was drawn.
    pub said: String,
}

/// Busy processes.
pub struct Mob {
    pub group: String,
    /// They.
    pub tids: Vec<u32>,
    /// Task-seconds that they lost to each other.
    pub lost_s: f64,
}

/// Compilers.
pub struct Built {
    /// The group around them.
    pub group: String,
    /// What they used.
    pub sight: Sight,
    /// Files that they compiled while whyslow looked.
    pub files: u64,
}

impl Party {
    /// Of a scenario. `used`: CPU time of its victim's group while whyslow was asked.
    pub fn of(scenario: &Scenario, look: &Look, used: Duration, counter: [Option<u64>; 2]) -> Self {
        let tids = |victim: &whyslow_faults::Victim| {
            let mut all = victim.tids();
            all.push(victim.pid());
            all
        };
        let names = scenario.processes().map(|victim| victim.comm().to_owned());
        Party {
            kind: scenario.kind(),
            truth: scenario.truth(look.window),
            to_crowd: None,
            sight: Sight { group: scenario.group().path().to_owned(), used: look.part(used) },
            group: scenario.binding().to_owned(),
            limits: scenario.limits().to_vec(),
            victim: tids(scenario.victim()),
            all: scenario.processes().flat_map(tids).collect(),
            names: names.chain(scenario.resources().iter().cloned()).collect(),
            counter: counter[0].zip(counter[1]).map(|(before, after)| [before, after]),
            said: scenario.to_string(),
        }
    }
}

impl Mob {
    /// Of a crowd.
    pub fn of(crowd: &Crowd, window: Span) -> Self {
        let mut tids = crowd.all().tids();
        tids.push(crowd.all().pid());
        Mob { group: crowd.group().path().to_owned(), tids, lost_s: crowd.lost_s(window) }
    }
}

impl Made {
    /// Why nothing can be concluded from what was said, by the clocks of the test alone.
    pub fn is_void(&self) -> Option<String> {
        self.is_not_made().or_else(|| self.disturbed.clone())
    }

    /// Why it did not come about.
    pub fn is_not_made(&self) -> Option<String> {
        let least = match self.cell {
            Cell::Fault(_) => bars::A_FAULT,
            Cell::Crowd(_) | Cell::Pair(..) => bars::A_FAULT_IN_CROWD,
            Cell::Twin(_) | Cell::Control(_) | Cell::Idle | Cell::Compile(_) => 0.0,
        };
        if let Some(party) = self.parties.iter().find(|party| party.truth.share() < least) {
            return Some(format!("{}: the fault did not come about: {}", party.said, party.truth));
        }
        let drifted = |party: &&Party| matches!(self.cell, Cell::Fault(_)) && party.truth.drift > bars::DRIFT;
        if let Some(party) = self.parties.iter().find(drifted) {
            let percent = party.truth.drift * 100.0;
            return Some(format!("{}: without the fault its rate changed by {percent:.0} %", party.said));
        }
        let is_quiet = matches!(self.cell, Cell::Twin(_) | Cell::Control(_));
        if let Some(party) =
            self.parties.iter().find(|party| is_quiet && party.truth.share() >= bars::NO_FAULT)
        {
            return Some(format!("{}: something was lost all the same: {}", party.said, party.truth));
        }
        let pinned = self.parties.iter().any(|party| party.kind == Kind::CpuPinned);
        if pinned && self.left_over.is_some_and(|left| left < bars::A_FAULT_IN_CROWD) {
            return Some("the other fault left no CPU to threads that are pinned to one".to_owned());
        }
        if self.built.as_ref().is_some_and(|built| built.files == 0) {
            return Some("no file was compiled while whyslow looked".to_owned());
        }
        self.parties.iter().find_map(|party| self.counted(party))
    }

    fn counted(&self, party: &Party) -> Option<String> {
        let [before, after] = party.counter?;
        match self.cell {
            // A second or more of a client each, in both halves of the truth alike.
            Cell::Twin(Kind::ListenOverflow) if after > before => {
                Some(format!("{}: the queue overflowed {} times all the same", party.said, after - before))
            }
            Cell::Control(_) if after <= before => {
                Some(format!("{}: the counter stood still at {before}", party.said))
            }
            _ => None,
        }
    }
}
