//! The test bed, in a guest or on the host: all parts start healthy, the fault is turned on, whyslow runs, the fault is turned off.

pub mod audit;
pub mod cases;
pub mod cpu_fault;
pub mod fault_module;
pub mod few_rights;
pub mod held_lock;
pub mod irqs_off;
pub mod live_fault;
pub mod loads;
pub mod masks;
pub mod memory_high;
pub mod part;
pub mod read_fault;
pub mod readers;
pub mod reclaim;
pub mod saturated;
pub mod scheduler;
pub mod sleeping_work;
pub mod slow_cpu;
pub mod slow_disk;
pub mod slow_file;
pub mod urgent;
pub mod wakeup_latency;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use whyslow_faults::expected::{DOCTOR, with_names};
use whyslow_faults::host::Calm;
use whyslow_faults::look::Look;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Fence, Span, clock, sys};

use crate::plan::{BASELINE, DOCUMENT, LookSpec, Plan, RECORDING, RUN_FACTS, RunFacts};
use fault_module::Folio;
use part::Parts;

/// Free memory that a guest must have: less than a host, since losing a guest does no harm.
const GUEST_MUST_HAVE: u64 = 256 << 20;

/// The surroundings of the parts.
pub struct TestBed {
    /// Directory for files of the run.
    pub dir: PathBuf,
    /// Directory that the host sees, too.
    pub share: PathBuf,
    /// Surrounds all processes of the run.
    pub fence: Fence,
    /// "6.1", "6.12", "host".
    pub kernel: String,
    /// The program under test.
    pub whyslow: PathBuf,
    /// The fault module of this kernel.
    pub folio: Folio,
    /// The sched_ext scheduler, built.
    pub scheduler: Option<PathBuf>,
    /// The project's sources.
    pub project: PathBuf,
}

impl TestBed {
    /// The test bed for one plan.
    pub fn enter(plan: &Plan, share: &Path) -> Result<Self, Trouble> {
        let fence = if plan.kernel == "host" { Fence::enter()? } else { Fence::with_room(GUEST_MUST_HAVE)? };
        Ok(TestBed {
            dir: fence.dir().to_owned(),
            share: share.to_owned(),
            fence,
            kernel: plan.kernel.clone(),
            whyslow: plan.whyslow.clone(),
            folio: Folio::of(plan.module.clone()),
            scheduler: plan.scheduler.clone(),
            project: plan.project.clone(),
        })
    }

    /// Whether it is a guest: there everything is allowed.
    #[must_use]
    pub fn is_guest(&self) -> bool {
        self.kernel != "host"
    }
}

/// Run a plan, and leave the results in its folder.
pub fn run(plan: &Path) -> Result<(), Trouble> {
    let share = plan.parent().unwrap_or(Path::new("."));
    let text = fs::read_to_string(plan).map_err(|err| format!("cannot read {}: {err}", plan.display()))?;
    let plan: Plan = serde_json::from_str(&text)?;
    let ran = in_order(&plan, share)
        .unwrap_or_else(|trouble| RunFacts { trouble: Some(trouble.to_string()), ..RunFacts::default() });
    fs::write(share.join(RUN_FACTS), serde_json::to_string_pretty(&ran)?)?;
    Ok(())
}

fn in_order(plan: &Plan, share: &Path) -> Result<RunFacts, Trouble> {
    let testbed = TestBed::enter(plan, share)?;
    let mut parts = Parts::set(plan, &testbed)?;
    if let Some(seconds) = plan.records_s {
        return record(&testbed, seconds);
    }
    let before = parts.without(&plan.look)?;
    parts.impose()?;
    std::thread::sleep(Duration::from_millis(plan.look.settle_ms));
    let mut ran = RunFacts::default();
    let window = watched(plan, &testbed, &parts, &mut ran)?;
    parts.lift()?;
    let without = [before, parts.without(&plan.look)?];
    testbed.fence.check_time()?;
    ran.faults = Parts::facts(&parts.faults, window, &without)?;
    ran.loads = Parts::facts(&parts.loads, window, &without)?;
    Ok(ran)
}

/// Run whyslow; returns when it ran.
fn watched(plan: &Plan, testbed: &TestBed, parts: &Parts, ran: &mut RunFacts) -> Result<Span, Trouble> {
    // The account of an emulated CPU is too coarse for both.
    let top = (!testbed.is_guest()).then(|| testbed.fence.top());
    let groups = parts.all().flat_map(|part| part.groups()).filter(|_| top.is_some());
    let used = groups.map(|group| Ok((group, group.cpu_used()?))).collect::<Result<Vec<_>, Trouble>>()?;
    let (asked, from, calm) = (Instant::now(), clock::now(), Calm::watch(top)?);
    let look = look(plan, testbed, &parts.names());
    ran.answered_s = asked.elapsed().as_secs_f64();
    let own = look.as_ref().map_or(Duration::ZERO, Look::own_cpu);
    if let Some(top) = top {
        ran.disturbed = calm.crowded(Some(top), own, plan.look.others)?;
    }
    let look = match look {
        Ok(look) => look,
        // The error comes from a starved kernel, not from whyslow.
        Err(trouble) if top.is_some() && trouble.is::<std::io::Error>() => return Err(trouble),
        Err(trouble) => {
            ran.no_answer = Some(trouble.to_string());
            return Ok(Span { from, to: clock::now() });
        }
    };
    ran.seen = used.into_iter().map(|(group, used)| look.sight(group, used)).collect::<Result<_, _>>()?;
    ran.status = look.status;
    ran.unsound = look.is_of_its_time().err();
    ran.window_s = look.window.length().as_secs_f64();
    Ok(look.window)
}

fn look(plan: &Plan, testbed: &TestBed, names: &BTreeMap<String, String>) -> Result<Look, Trouble> {
    let mut names = names.clone();
    names.insert("baseline".to_owned(), testbed.share.join(BASELINE).display().to_string());
    let mut args = arguments(&plan.look.args, &names);
    if plan.captures {
        keep_recording(&mut args, &testbed.share.join(RECORDING));
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let length = Duration::from_secs(plan.look.window_s);
    let kept = testbed.share.join(DOCUMENT);
    let whyslow = &testbed.whyslow;
    let look = few_rights::with_only(&plan.look.capabilities, || {
        let command = placed(&plan.look, whyslow, &names)?;
        // The command's own output comes before the document.
        let mut look = Look::of(command, &args, length, &kept)?;
        if plan.look.doctor {
            look.document[DOCTOR] = lost_capabilities(whyslow)?.into();
        }
        Ok(look)
    })?;
    fs::write(&kept, serde_json::to_vec(&look.document)?)?;
    Ok(look)
}

/// whyslow, where it shall run.
fn placed(look: &LookSpec, whyslow: &Path, names: &BTreeMap<String, String>) -> Result<Command, Trouble> {
    let mut command = Command::new(whyslow);
    let (network, cpu) = (with_names(&look.netns, names), with_names(&look.cpu, names));
    if !network.is_empty() {
        let file = File::open(&network).map_err(|err| format!("cannot open {network}: {err}"))?;
        sys::start_in_network(&mut command, file);
    }
    if !cpu.is_empty() {
        sys::start_on(&mut command, cpu.parse().map_err(|err| format!("{cpu}: {err}"))?);
    }
    Ok(command)
}

/// The capabilities that `whyslow doctor` lists as lost, and why.
fn lost_capabilities(whyslow: &Path) -> Result<Vec<String>, Trouble> {
    let done = Command::new(whyslow).arg("doctor").stdin(Stdio::null()).output()?;
    if !done.status.success() {
        return Err(format!(
            "the doctor ended with {}: {}",
            done.status,
            String::from_utf8_lossy(&done.stderr)
        )
        .into());
    }
    Ok(lost(&String::from_utf8_lossy(&done.stdout)))
}

/// The lost capabilities of a doctor's page. A capability begins at the left margin, and continues on indented lines.
fn lost(page: &str) -> Vec<String> {
    let mut capabilities: Vec<String> = Vec::new();
    for line in page.lines() {
        match (line.starts_with(' '), capabilities.last_mut()) {
            (true, Some(capability)) => *capability = format!("{capability} {}", line.trim()),
            _ => capabilities.push(line.to_owned()),
        }
    }
    capabilities.retain(|capability| capability.starts_with("lost "));
    capabilities
}

/// whyslow's arguments: with names replaced, and with --json.
fn arguments(args: &[String], names: &BTreeMap<String, String>) -> Vec<String> {
    let is_json = args.iter().any(|arg| arg == "--json");
    let args = args.iter().map(|arg| with_names(arg, names));
    let split = args.flat_map(|arg| arg.lines().map(str::to_owned).collect::<Vec<_>>());
    split.chain((!is_json).then(|| "--json".to_owned())).collect()
}

/// Insert after the verb, where there is one.
fn keep_recording(args: &mut Vec<String>, file: &Path) {
    let at = usize::from(args.first().is_some_and(|first| !first.starts_with('-')));
    args.splice(at..at, ["-o".to_owned(), file.display().to_string()]);
}

/// The earlier boot: whyslow makes a recording, and nothing is judged.
fn record(testbed: &TestBed, seconds: u64) -> Result<RunFacts, Trouble> {
    let file = testbed.share.join(BASELINE);
    let mut whyslow = Command::new(&testbed.whyslow);
    whyslow.args(["record", "--for", &format!("{seconds}s"), "-o"]).arg(&file).stdin(Stdio::null());
    let done = whyslow.output()?;
    if file.exists() {
        return Ok(RunFacts::default());
    }
    Err(format!("no recording ({}): {}", done.status, String::from_utf8_lossy(&done.stderr)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_rung_is_reported_with_its_reason() {
        let page =
            "ok    a: there\nlost  b: refused; the\n      way out\n      lost: c\n\n1 of 2 capabilities\n";
        assert_eq!(lost(page), ["lost  b: refused; the way out lost: c"]);
        assert!(lost("").is_empty() && lost("  x").is_empty());
    }

    #[test]
    fn a_recording_is_asked_for_behind_the_verb() {
        let kept = |args: &[&str]| {
            let mut args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            keep_recording(&mut args, Path::new("/x"));
            args.join(" ")
        };
        assert_eq!(kept(&["run", "--", "true"]), "run -o /x -- true");
        assert_eq!(kept(&["--for", "4s"]), "-o /x --for 4s");
        assert_eq!(kept(&[]), "-o /x");
    }

    #[test]
    fn arguments_are_named_split_and_end_in_json_once() {
        let names = BTreeMap::from([("pid", "7"), ("files", "/a\n/b")]);
        let names = names.into_iter().map(|(key, name)| (key.to_owned(), name.to_owned())).collect();
        let reported = |args: &[&str]| {
            arguments(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>(), &names).join(" ")
        };
        assert_eq!(reported(&["attach", "{pid}"]), "attach 7 --json");
        assert_eq!(reported(&["run", "--json", "--", "cat", "{files}"]), "run --json -- cat /a /b");
        assert_eq!(reported(&["{nobody}"]), "{nobody} --json");
    }
}
