//! Compilers of small C files, a number of them at a time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use whyslow_faults::cgroup::Group;
use whyslow_faults::honest::Compile;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, Span};

use super::GREEDY;
use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting};

/// A build.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Compilers at a time.
    jobs: u64,
    /// Functions in each file, which determine a compiler's work.
    functions: u64,
    /// Loops in each function.
    loops: u64,
}

struct Building(Compile, String);

impl Setting for Spec {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let compile = Compile::of(
            &testbed.fence,
            self.jobs as usize,
            [self.functions as usize, self.loops as usize],
            draw,
        )?;
        compile.until_one_is_done(testbed.fence.left() / 2)?;
        let what = format!("{} compilers of {} functions each; files a second", self.jobs, self.functions);
        Ok(Box::new(Building(compile, what)))
    }
}

impl Part for Building {
    fn impose(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    fn names(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("group".to_owned(), self.0.group().path().to_owned())])
    }

    fn groups(&self) -> Vec<&Group> {
        vec![self.0.group()]
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let (mut files, mut seconds) = (0.0, 0.0);
        for span in without {
            let length = span.length().as_secs_f64();
            files += self.0.rate(*span) * length;
            seconds += length;
        }
        let proof = Proof::stays(&*self.1, self.0.rate(window), files / f64::max(seconds, 1e-9), GREEDY);
        Ok(Facts { proof, lost_s: None, names: self.names() })
    }
}
