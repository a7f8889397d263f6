//! A sched_ext scheduler for all tasks of the guest: `lab/sched_ext`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, Span};

use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting};

/// Linux 6.12 and later, with CONFIG_SCHED_CLASS_EXT.
const FOLDER: &str = "/sys/kernel/sched_ext";

/// It has no parameters.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {}

/// The scheduler stays until the guest is off.
struct Decides;

impl Setting for Spec {
    fn needs_scheduler(&self) -> bool {
        true
    }

    fn set(&self, testbed: &TestBed, _: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        if !testbed.is_guest() {
            return Err("no host's scheduler is replaced".into());
        }
        let object = testbed.scheduler.as_ref().ok_or("the scheduler was not built")?;
        let mut register = Command::new("bpftool");
        let done = register.args(["struct_ops", "register"]).arg(object).stdin(Stdio::null()).output()?;
        if decides() {
            return Ok(Box::new(Decides));
        }
        Err(format!("no scheduler ({}): {}", done.status, String::from_utf8_lossy(&done.stderr)).into())
    }
}

fn decides() -> bool {
    fs::read_to_string(Path::new(FOLDER).join("state")).is_ok_and(|state| state.trim() == "enabled")
}

impl Part for Decides {
    fn impose(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    /// The kernel removes a scheduler that starves a task or makes an error: if it is there at the end, it was there all the time.
    fn facts(&self, _: Span, _: &[Span]) -> Result<Facts, Trouble> {
        let proof = Proof::stays("schedulers of sched_ext that decide", f64::from(decides()), 1.0, 1.0);
        Ok(Facts { proof, lost_s: None, names: self.names() })
    }
}
