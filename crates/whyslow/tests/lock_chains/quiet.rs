//! Healthy lock chains, an idle host and a compiling host: no chain of the test's tasks may be reported.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use whyslow_faults::honest::Compile;
use whyslow_faults::host::Calm;
use whyslow_faults::lock_chain::{Ask, Told};
use whyslow_faults::look::Look;
use whyslow_faults::report_checks::{self, Sight};
use whyslow_faults::rounds::{Trouble, Verdict};
use whyslow_faults::{Draw, Fence, LockChain, Span, Wrong, thresholds};

use crate::chains::names_any;
use crate::climb::{begin, look};

/// If no small file is compiled after this time, the host has no compiler.
const ONE_FILE_WITHIN: Duration = Duration::from_secs(20);

/// A run of whyslow on a host for which no chain should be reported.
pub struct Quiet {
    /// The tasks that must have no chain.
    pub whose: Whose,
    /// What disturbed the host.
    pub disturbed: Option<String>,
    /// The group that the document must contain.
    pub sight: Option<Sight>,
    /// Threads of the test that only waited for whyslow.
    pub innocents: Vec<u32>,
    /// whyslow's document.
    pub look: Arc<Look>,
    /// What was drawn.
    pub said: String,
}

/// The tasks for which no chain should be reported.
pub enum Whose {
    /// A healthy lock chain, with the truth by its threads' own clocks.
    Healthy(Told),
    /// All tasks.
    Anybodys,
    /// Compilers: all compilers on the host belong to the test.
    Compilers,
}

fn is_quiet(whose: Whose, disturbed: Option<String>, look: Look, said: String) -> Quiet {
    let innocents = vec![std::process::id()];
    Quiet { whose, disturbed, sight: None, innocents, look: Arc::new(look), said }
}

/// CPU time of a group during the run, scaled to the window.
fn sight(group: &whyslow_faults::cgroup::Group, before: Duration, look: &Look) -> Result<Sight, Trouble> {
    let asked = look.asked.map_or(look.window.length(), Span::length).as_secs_f64();
    let part = (look.window.length().as_secs_f64() / asked.max(1e-9)).min(1.0);
    let used = group.cpu_used()?.saturating_sub(before).mul_f64(part);
    Ok(Sight { group: group.path().to_owned(), used })
}

/// The same threads and locks, and no thread waits for long.
pub fn healthy(fence: &Fence, ask: Ask, draw: &mut Draw, label: &str) -> Result<Quiet, Trouble> {
    let lock_chain = LockChain::set(fence, ask, draw)?;
    let mut victim = begin(&lock_chain, ask.kind)?;
    let calm = Calm::watch(Some(fence.top()))?;
    let look = look(&["chains"], label)?;
    let disturbed = calm.disturbed(Some(fence.top()), look.own_cpu())?;
    lock_chain.stop(&victim);
    victim.ended(thresholds::patient(ONE_FILE_WITHIN))?;
    Ok(is_quiet(Whose::Healthy(lock_chain.reported(&victim)), disturbed, look, lock_chain.to_string()))
}

/// An idle host.
pub fn idle(label: &str) -> Result<Quiet, Trouble> {
    let calm = Calm::watch(None)?;
    let look = look(&["chains"], label)?;
    let disturbed = calm.disturbed(None, look.own_cpu())?;
    Ok(is_quiet(Whose::Anybodys, disturbed, look, "idle".to_owned()))
}

/// This many compilers run, in a cgroup of their own.
pub fn compile(fence: &Fence, jobs: usize, draw: &mut Draw, label: &str) -> Result<Quiet, Trouble> {
    let compile = Compile::start(fence, jobs, draw)?;
    compile.until_one_is_done(thresholds::patient(ONE_FILE_WITHIN))?;
    let calm = Calm::watch(Some(fence.top()))?;
    let cpu = compile.group().cpu_used()?;
    let look = look(&["chains"], label)?;
    let sight = Some(sight(compile.group(), cpu, &look)?);
    let disturbed = calm.disturbed(Some(fence.top()), look.own_cpu())?;
    Ok(Quiet { sight, ..is_quiet(Whose::Compilers, disturbed, look, format!("{jobs} compilers")) })
}

/// No chain may be reported, by a whyslow that observed the host. A reported chain is excused only if the waiter's own clock confirms it,
/// or, where the waiter is not of the test, if other processes used the host.
pub fn judge(quiet: &Quiet) -> Verdict {
    let reported = accused(quiet).and_then(|chain| could_look(quiet).map(|()| chain));
    let context = || format!("{}\n{}", quiet.said, quiet.look.kept.display());
    match (reported, &quiet.disturbed) {
        (Err(wrong), _) => Verdict::Wrong(wrong.told(|what| format!("{what}: {}", context()))),
        (Ok(Some(chain)), Some(reason)) => Verdict::Again(format!("{reason}: {chain}: {}", context())),
        (Ok(Some(chain)), None) => {
            Verdict::Wrong(Wrong::accused(format!("a chain that should not be: {chain}: {}", context())))
        }
        // A healthy lock chain is healthy beside other load, too.
        (Ok(None), Some(reason)) if !matches!(quiet.whose, Whose::Healthy(_)) => {
            Verdict::Again(format!("{reason}: {}", context()))
        }
        (Ok(None), _) => by_its_clock(quiet).map_or(Verdict::Passed, Verdict::Again),
    }
}

fn could_look(quiet: &Quiet) -> Result<(), Wrong> {
    quiet.look.is_sound(report_checks::Verb::Chains)?;
    report_checks::could_tell(&quiet.look.document, &["lock-wait"])?;
    report_checks::rules_out(&quiet.look.document)?;
    Ok(quiet.sight.iter().try_for_each(|sight| sight.is_in(&quiet.look.document))?)
}

fn chains(look: &Look) -> impl Iterator<Item = &Value> {
    look.document["chains"].as_array().into_iter().flatten()
}

/// A chain that should not be reported; an error if it is wrong whatever other processes did.
fn accused(quiet: &Quiet) -> Result<Option<&Value>, Wrong> {
    if let Some(chain) = chains(&quiet.look).find(|chain| names_any(chain, &quiet.innocents)) {
        return Err(Wrong::accused(format!("the innocent is reported: {chain}")));
    }
    match &quiet.whose {
        Whose::Healthy(reported) => {
            let ours =
                chains(&quiet.look).filter(|chain| names_any(chain, &reported.tids) && !is_its_own(chain));
            let mut untrue = ours.filter(|chain| !is_true(chain, reported, quiet.look.window));
            let is_waiter = |chain: &&Value| position(chain, reported).is_some();
            match untrue.next() {
                Some(chain) if is_waiter(&chain) => {
                    Err(Wrong::accused(format!("a chain that its clock does not confirm: {chain}")))
                }
                other => Ok(other),
            }
        }
        Whose::Anybodys => Ok(chains(&quiet.look).next()),
        Whose::Compilers => Ok(chains(&quiet.look).find(|chain| {
            let text = chain["tasks"].to_string();
            !is_its_own(chain) && ["cc1", "\"cc\"", "\"as\""].iter().any(|name| text.contains(name))
        })),
    }
}

/// On emulated CPUs a run of whyslow takes seconds of CPU time: there it is true that whyslow itself took a task's CPU.
fn is_its_own(chain: &Value) -> bool {
    thresholds::is_emulated() && chain["leaf"]["name"] == "whyslow"
}

fn position(chain: &Value, reported: &Told) -> Option<usize> {
    let waiter = chain["tasks"][0][0][0].as_u64()?;
    reported.tids.iter().position(|tid| u64::from(*tid) == waiter)
}

/// A thread that loses its CPU while it holds a lock makes other threads wait, and the host may stop a CPU of a guest without a counter in
/// the guest that shows it: the waiter's clock shows it, and then the chain is true.
fn is_true(chain: &Value, reported: &Told, window: Span) -> bool {
    let waited = |at: usize| reported.waits(at, window).iter().sum::<f64>();
    let is_within = |said: f64, waited: f64| said <= waited + thresholds::slack_s(waited);
    position(chain, reported)
        .is_some_and(|at| chain["time_s"].as_f64().is_some_and(|said| is_within(said, waited(at))))
}

/// Why a healthy lock chain was not healthy.
fn by_its_clock(quiet: &Quiet) -> Option<String> {
    let Whose::Healthy(reported) = &quiet.whose else { return None };
    let mut ours = chains(&quiet.look).filter(|chain| names_any(chain, &reported.tids) && !is_its_own(chain));
    ours.next().map(|chain| format!("a thread waited by its own clock: {chain}"))
}
