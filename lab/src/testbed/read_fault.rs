//! A fault of the module, with the processes that read one of its files.

use std::collections::BTreeMap;
use std::rc::Rc;

use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, Span, Victim};

use crate::guest::module::Fault;
use crate::testbed::TestBed;
use crate::testbed::fault_module::Loaded;
use crate::testbed::part::{Facts, Part};
use crate::testbed::readers::{self, Readers};

/// Its parts.
pub struct Made {
    // Dropped first: the readers must have ended before the file is removed.
    victim: Option<Victim>,
    folio: Rc<Loaded>,
    /// On while the fault is on.
    faults: Vec<Fault>,
    /// On while the fault is off.
    instead: Option<Fault>,
    names: BTreeMap<String, String>,
}

impl Made {
    /// `standing` is on from the beginning.
    pub fn new(folio: Rc<Loaded>, standing: Vec<Fault>, faults: Vec<Fault>) -> Result<Self, Trouble> {
        standing.iter().try_for_each(|fault| folio.module.make(fault))?;
        Ok(Made { victim: None, folio, faults, instead: None, names: BTreeMap::new() })
    }

    /// Set what is on while the fault is off.
    pub fn instead_of(&mut self, healthy: Fault) -> Result<(), Trouble> {
        self.folio.module.make(&healthy)?;
        self.instead = Some(healthy);
        Ok(())
    }

    /// A name that an answer can refer to.
    pub fn name(&mut self, key: &str, name: &str) {
        self.names.insert(key.to_owned(), name.to_owned());
    }

    /// Its victims read this file of the module.
    pub fn read_by(
        &mut self,
        victims: &Readers,
        testbed: &TestBed,
        file: &str,
        draw: &mut Draw,
    ) -> Result<(), Trouble> {
        let path = self.folio.module.file(file);
        self.name("file", &path.display().to_string());
        let victim = victims.start(testbed, path, draw)?;
        self.names.extend(readers::names(&victim));
        self.victim = Some(victim);
        Ok(())
    }
}

impl Part for Made {
    fn impose(&mut self) -> Result<(), Trouble> {
        self.instead.iter().try_for_each(|healthy| self.folio.module.end(healthy))?;
        Ok(self.faults.iter().try_for_each(|fault| self.folio.module.make(fault))?)
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        self.faults.iter().rev().try_for_each(|fault| self.folio.module.end(fault))?;
        self.instead.iter().try_for_each(|healthy| self.folio.module.make(healthy))?;
        match &mut self.victim {
            Some(victim) => Ok(victim.until_it_moves()?),
            None => Ok(()),
        }
    }

    fn names(&self) -> BTreeMap<String, String> {
        self.names.clone()
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let victim = self.victim.as_ref().ok_or("it has no victim")?;
        Ok(readers::facts(victim, window, without, self.names.clone()))
    }
}
