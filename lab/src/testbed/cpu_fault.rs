//! A fault of the module that keeps CPUs from working, with threads bound to these CPUs that have work at each tick of a clock: work that
//! is not done in time is not made up for.

use std::collections::BTreeMap;
use std::rc::Rc;

use whyslow_faults::rounds::Trouble;
use whyslow_faults::spec::Work;
use whyslow_faults::{Draw, Span, Truth, Victim};

use crate::guest::module::Fault;
use crate::testbed::TestBed;
use crate::testbed::fault_module::Loaded;
use crate::testbed::part::{Facts, Part, Proof};
use crate::testbed::readers;

/// On an emulated CPU, whyslow itself and a noisy host take CPU time, too.
const LEAST: f64 = 1.25;
const EXACT: f64 = 0.15;

/// A healthy thread does at least so much of its work: whyslow uses emulated CPUs, too.
const ALIKE: f64 = 3.0;

/// Its parts.
pub struct Hindered {
    victim: Victim,
    folio: Rc<Loaded>,
    fault: Fault,
    /// The fault is never turned on.
    twin: bool,
    names: BTreeMap<String, String>,
}

impl Hindered {
    /// Threads that do `work` on these CPUs; `fault` is made when it is turned on.
    pub fn on(
        testbed: &TestBed,
        draw: &mut Draw,
        cpus: &[u32],
        work: Work,
        fault: Fault,
    ) -> Result<Self, Trouble> {
        let folio = testbed.folio.loaded(draw)?;
        let group = testbed.fence.group(&draw.word(6))?;
        let comm = draw.word(7);
        let victim = Victim::spawn(testbed.fence.spec(&group, &comm, cpus.len().max(1) as u64, work))?;
        victim.pin(&cpus.iter().map(|cpu| *cpu as usize).collect::<Vec<_>>())?;
        victim.go();
        let mut names = readers::names(&victim);
        let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
        names.insert("cpu".to_owned(), cpus.join("|"));
        names.insert("group".to_owned(), group.path().to_owned());
        names.insert("function".to_owned(), fault.function().to_owned());
        Ok(Hindered { victim, folio, fault, twin: false, names })
    }

    /// The same work without the fault.
    #[must_use]
    pub fn or_twin(mut self, twin: bool) -> Self {
        self.twin = twin;
        self
    }

    /// A name that an answer can refer to.
    pub fn name(&mut self, key: &str, name: &str) {
        self.names.insert(key.to_owned(), name.to_owned());
    }
}

impl Part for Hindered {
    fn impose(&mut self) -> Result<(), Trouble> {
        if self.twin {
            return Ok(());
        }
        Ok(self.folio.module.make(&self.fault)?)
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        if !self.twin {
            self.folio.module.end(&self.fault)?;
        }
        Ok(self.victim.until_it_moves()?)
    }

    fn names(&self) -> BTreeMap<String, String> {
        self.names.clone()
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let truth = Truth::reported_by(self.victim.ledger(), window, without);
        let what = "its victims' pieces of work a second";
        if self.twin {
            let proof = Proof::stays(what, truth.rate_with, truth.rate_without, ALIKE);
            return Ok(Facts { proof, lost_s: None, names: self.names.clone() });
        }
        let proof = Proof::falls(what, truth.rate_with, truth.rate_without, LEAST);
        let (lost, slack) = (truth.lost_s(), EXACT * truth.tasks as f64 * truth.window_s);
        let lost_s = Some(((lost - slack).max(0.0), lost + slack));
        Ok(Facts { proof, lost_s, names: self.names.clone() })
    }
}
