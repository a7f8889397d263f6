//! Make a cell, and run whyslow on it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use whyslow_faults::look::Look;
use whyslow_faults::rounds::{self, Outcome, Trouble};
use whyslow_faults::user_lock::{Held, Plan, Shape};
use whyslow_faults::{Draw, Fence, Wrong, report_checks, sys, thresholds};

use crate::user_locks::Cell;
use crate::user_locks::judge::{Made, judge};

/// Longest run of a program that shares its CPU with a crowd.
const ENDS_WITHIN: Duration = Duration::from_secs(40);
/// Window of an attach.
const LENGTH: Duration = Duration::from_secs(2);

pub fn make(cell: Cell, draw: &mut Draw) -> Result<Outcome, Trouble> {
    fs::create_dir_all(crate::kept_in("user-locks"))?;
    let label = format!("{cell}-{}", draw.seed());
    rounds::until_judged(&cell, |attempt| {
        let fence = Fence::enter()?;
        let plan = cell.plan(fence.dir().to_owned(), draw);
        let kept = crate::kept_in("user-locks").join(format!("{label}-{attempt}.json"));
        // A permanent deadlock never ends: attach observes it from outside.
        let made = match plan.shape {
            Shape::Free(..) if plan.lasts => {
                let dir = fence.dir().join("beside");
                fs::create_dir_all(&dir)?;
                let held = draw.pick(&[Held::FlockRetried, Held::FcntlRetried]);
                let beside = Cell::HeldOnHost(held).plan(dir, draw);
                on_whole_host(plan, Some(beside), &kept)?
            }
            _ if plan.lasts => on_whole_host(plan, None, &kept)?,
            Shape::Cycle(_) if !plan.timed => attached(plan, &kept)?,
            _ => ran(plan, &kept)?,
        };
        fence.check_time()?;
        Ok(judge(&made))
    })
}

fn whyslow() -> OsString {
    whyslow_faults::program!()
}

fn ran(plan: Plan, kept: &std::path::Path) -> Result<Made, Trouble> {
    let (name, value) = plan.environment()?;
    let child = Command::new(whyslow())
        .args(["run", "--json", "--"])
        .arg(std::env::current_exe()?)
        .env(name, value)
        .stdin(Stdio::null())
        .stdout(File::create(kept)?)
        .stderr(File::create(kept.with_extension("stderr"))?)
        .spawn()?;
    let mut child = Reaped(child);
    if !sys::ends_within(child.0.id(), thresholds::patient(ENDS_WITHIN))? {
        return Err(Wrong::missed("whyslow run did not end").into());
    }
    let status = child.0.wait()?.code();
    let look = Look::read(kept, status, ENDS_WITHIN)?;
    report_checks::has_its_probes(&look.document)?;
    let waited = plan.waited()?;
    Ok(Made { plan, beside: None, waited: Some(waited), document: look.document })
}

fn attached(plan: Plan, kept: &std::path::Path) -> Result<Made, Trouble> {
    let (name, value) = plan.environment()?;
    let program = Command::new(std::env::current_exe()?).env(name, value).stdin(Stdio::null()).spawn()?;
    let program = Reaped(program);
    let pid = program.0.id().to_string();
    let length = format!("{}s", LENGTH.as_secs());
    let look = Look::now(&whyslow(), &["attach", &pid, "--for", &length, "--json"], LENGTH, kept)?;
    Ok(Made { plan, beside: None, waited: None, document: look.document })
}

fn started(plan: &Plan) -> Result<Reaped, Trouble> {
    let (name, value) = plan.environment()?;
    let program = Command::new(std::env::current_exe()?).env(name, value).stdin(Stdio::null()).spawn()?;
    let program = Reaped(program);
    let until = Instant::now() + thresholds::patient(ENDS_WITHIN);
    while !plan.has_begun() {
        if Instant::now() > until {
            return Err("it does not begin".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(program)
}

fn on_whole_host(plan: Plan, beside: Option<Plan>, kept: &std::path::Path) -> Result<Made, Trouble> {
    let _programs = std::iter::once(&plan).chain(&beside).map(started).collect::<Result<Vec<_>, _>>()?;
    let length = format!("{}s", LENGTH.as_secs());
    let look = Look::now(&whyslow(), &["chains", "--for", &length, "--json"], LENGTH, kept)?;
    report_checks::has_its_probes(&look.document)?;
    Ok(Made { plan, beside, waited: None, document: look.document })
}

/// It ends when this is dropped.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        // A child that has not been waited for: no other process can have its pid.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
