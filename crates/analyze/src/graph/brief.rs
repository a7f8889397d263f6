//! What those did on a CPU who lived for a short time: each has a few samples or none, all of one name and parent together have as many as
//! their time is worth.

use std::rc::Rc;

use whyslow_model::table::Sample;

use super::did::Did;
use super::facts::Graph;
use super::names::Name;
use crate::hashing::Table;
use crate::stacks::doing::{self, Doing};

/// With so many samples a thread tells for itself.
const ENOUGH: u64 = 10;

/// Of one name and one parent; without one, whoever bore them.
pub(super) type Siblings = (Name, Option<u32>);

impl Graph<'_> {
    /// What a thread did on a CPU.
    pub fn did(&self, pid: u32) -> Rc<Did> {
        if let Some(did) = self.did.borrow().get(&pid) {
            return did.clone();
        }
        let did = match self.is_brief(pid) && self.on_cpu.count(pid) < ENOUGH {
            true => self.siblings(pid).map_or_else(|| self.nothing(), |of| self.all_did(of)),
            false => Rc::new(self.did_of(&self.on_cpu.did(pid))),
        };
        self.did.borrow_mut().insert(pid, did.clone());
        did
    }

    /// What all of this name did, whoever bore them.
    pub fn namesakes_did(&self, comm: &str) -> Rc<Did> {
        self.all_did((self.plain(0, comm, None).key.comm, None))
    }

    fn all_did(&self, of: Siblings) -> Rc<Did> {
        let brief = self.brief.get_or_init(|| self.all_brief());
        brief.get(&of).cloned().unwrap_or_else(|| self.nothing())
    }

    fn siblings(&self, pid: u32) -> Option<Siblings> {
        let task = self.tasks.get(&pid)?;
        Some((self.plain(pid, &task.comm, None).key.comm, Some(task.ppid)))
    }

    fn all_brief(&self) -> Table<Siblings, Rc<Did>> {
        let mut samples: Table<Siblings, Vec<&Sample>> = Table::default();
        for (pid, rows) in self.on_cpu.by_pid().filter(|(pid, _)| self.is_brief(*pid)) {
            let Some(of) = self.siblings(pid) else { continue };
            for of in [of, (of.0, None)] {
                samples.entry(of).or_default().extend(rows);
            }
        }
        let did = |all: Vec<&Sample>| Rc::new(self.did_of(&doing::did(all.into_iter())));
        samples.into_iter().map(|(of, all)| (of, did(all))).collect()
    }

    fn nothing(&self) -> Rc<Did> {
        Rc::new(self.did_of(&[]))
    }

    fn did_of(&self, did: &[(Doing, f64)]) -> Did {
        Did::of(did, &self.names, &self.details, &self.rests.families)
    }
}
