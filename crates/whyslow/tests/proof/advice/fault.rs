//! With a real fault on: whyslow observes the host, then each check of its finding is run twice while the fault lasts, and must show the
//! fault.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use whyslow_faults::host::Calm;
use whyslow_faults::rounds::{self, Trouble, Verdict};
use whyslow_faults::scenario::TestBed;
use whyslow_faults::{Draw, FaultKind, Fence, Form, Scenario, Wrong, thresholds};

use crate::advice::shows::{Shown, shows};

/// Time between two runs of a check: counters must have risen by then.
const APART: Duration = Duration::from_secs(1);

/// One fault, and the checks of its finding.
pub struct Checked(pub FaultKind);

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-checks", self.0.rule())
    }
}

/// Run it as a test.
pub fn run(kind: FaultKind) {
    let cell = Checked(kind);
    rounds::run_judged(&cell, &crate::kept_in("advice"), |draw, label| made(kind, draw, label));
}

fn made(kind: FaultKind, draw: &mut Draw, label: &str) -> Result<Verdict, Trouble> {
    let fence = Fence::enter()?;
    let mut scenario = Scenario::set(&TestBed::alone(&fence), kind, Form::Fault, draw)?;
    scenario.work_without(thresholds::WITHOUT);
    scenario.impose()?;
    std::thread::sleep(thresholds::SETTLE);
    let calm = Calm::watch(Some(fence.top()))?;
    let look = crate::look("advice", label, &["exam"])?;
    let disturbed = calm.disturbed(Some(fence.top()), look.own_cpu())?;
    let findings = look.document["findings"].as_array().cloned().unwrap_or_default();
    let finding = findings.into_iter().find(|f| f["rule"] == kind.rule() && f["kind"] == "cause");
    let shown = finding.as_ref().map(all_shown).transpose()?;
    scenario.lift()?;
    scenario.work_without(thresholds::WITHOUT);
    let truth = scenario.truth(look.window);
    let (Some(finding), Some(shown)) = (finding, shown) else {
        let what = format!("{scenario}: {truth}: not found, see {}", look.kept.display());
        let is_void = truth.share() < thresholds::A_FAULT || disturbed.is_some();
        return Ok(if is_void { Verdict::Again(what) } else { Verdict::Wrong(Wrong::missed(what)) });
    };
    Ok(match shows(kind, &finding, &shown) {
        Ok(()) => Verdict::Passed,
        Err(why) => Verdict::Wrong(Wrong::inexact(format!("{scenario}: {why}: {shown:#?}"))),
    })
}

/// Output of its checks, each run twice.
fn all_shown(finding: &Value) -> Result<Vec<Shown>, Trouble> {
    let checks = finding["check"].as_array().into_iter().flatten();
    let lines: Vec<&str> = checks.filter_map(|check| check["command"].as_str()).collect();
    let first = lines.iter().map(|line| pasted(line)).collect::<Result<Vec<_>, _>>()?;
    std::thread::sleep(APART);
    let twice = |(line, before): (&&str, String)| {
        Ok(Shown { line: (*line).to_owned(), before, after: pasted(line)? })
    };
    lines.iter().zip(first).map(twice).collect()
}

/// Output of a line that a reader pastes. If it fails, the error is ours, not the host's.
pub fn pasted(line: &str) -> Result<String, Trouble> {
    let here = PathBuf::from(whyslow_faults::program!());
    let path = std::env::var("PATH")?;
    let folder = here.parent().unwrap_or(&here).display();
    let done = Command::new("bash")
        .args(["-c", line])
        .env("PATH", format!("{folder}:{path}:/usr/sbin:/sbin"))
        .current_dir("/")
        .stdin(std::process::Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    // Status 1 is an answer of whyslow; find returns it when a process has ended meanwhile.
    let is_answer = ["whyslow ", "find "].iter().any(|program| line.starts_with(program))
        && done.status.code() == Some(1);
    if done.status.success() || is_answer {
        return Ok(said);
    }
    let why = String::from_utf8_lossy(&done.stderr).into_owned();
    Err(format!("{line}: {}: {why}{said}", done.status).into())
}
