//! Healthy lock chains, an idle host and one that compiles: no chain of the test's tasks.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use whyslow_faults::honest::Compile;
use whyslow_faults::host::Calm;
use whyslow_faults::lock_chain::{Ask, Told};
use whyslow_faults::look::Look;
use whyslow_faults::rounds::{Trouble, Verdict};
use whyslow_faults::said::{self, Sight};
use whyslow_faults::{Draw, Fence, LockChain, Span, Wrong, bars};

use crate::chains::names_any;
use crate::climb::{begin, look};

/// A compiler that has not built one small file by then is not there.
const ONE_FILE_WITHIN: Duration = Duration::from_secs(20);

/// A look at something of which no chain should be reported.
pub struct Quiet {
    /// Of whom not.
    pub whose: Whose,
    /// What others did with the host.
    pub disturbed: Option<String>,
    /// Who must have been seen.
    pub sight: Option<Sight>,
    /// Threads of the test that did nothing meanwhile but wait for whyslow.
    pub innocents: Vec<u32>,
    /// What whyslow said.
    pub look: Arc<Look>,
    /// What was drawn.
    pub said: String,
}

/// Of whom no chain should be reported.
pub enum Whose {
    /// A healthy lock chain: what its threads did by their own clocks.
    Healthy(Told),
    /// Anybody.
    Anybodys,
    /// Compilers: all that are seen in the host are the test's.
    Compilers,
}

fn is_quiet(whose: Whose, disturbed: Option<String>, look: Look, said: String) -> Quiet {
    let innocents = vec![std::process::id()];
    Quiet { whose, disturbed, sight: None, innocents, look: Arc::new(look), said }
}

/// What a group used while whyslow was asked, the window's part of it.
fn sight(group: &whyslow_faults::cgroup::Group, before: Duration, look: &Look) -> Result<Sight, Trouble> {
    let asked = look.asked.map_or(look.window.length(), Span::length).as_secs_f64();
    let part = (look.window.length().as_secs_f64() / asked.max(1e-9)).min(1.0);
    let used = group.cpu_used()?.saturating_sub(before).mul_f64(part);
    Ok(Sight { group: group.path().to_owned(), used })
}

/// The same threads and locks, and nobody waits for long.
pub fn healthy(fence: &Fence, ask: Ask, draw: &mut Draw, label: &str) -> Result<Quiet, Trouble> {
    let lock_chain = LockChain::set(fence, ask, draw)?;
    let mut victim = begin(&lock_chain, ask.kind)?;
    let calm = Calm::watch(Some(fence.top()))?;
    let look = look(&["chains"], label)?;
    let disturbed = calm.disturbed(Some(fence.top()), look.own_cpu())?;
    lock_chain.stop(&victim);
    victim.ended(bars::patient(ONE_FILE_WITHIN))?;
    Ok(is_quiet(Whose::Healthy(lock_chain.reported(&victim)), disturbed, look, lock_chain.to_string()))
}

/// Nothing runs.
pub fn idle(label: &str) -> Result<Quiet, Trouble> {
    let calm = Calm::watch(None)?;
    let look = look(&["chains"], label)?;
    let disturbed = calm.disturbed(None, look.own_cpu())?;
    Ok(is_quiet(Whose::Anybodys, disturbed, look, "idle".to_owned()))
}

/// So many compilers run, in a cgroup of their own.
pub fn compile(fence: &Fence, jobs: usize, draw: &mut Draw, label: &str) -> Result<Quiet, Trouble> {
    let compile = Compile::start(fence, jobs, draw)?;
    compile.until_one_is_done(bars::patient(ONE_FILE_WITHIN))?;
    let calm = Calm::watch(Some(fence.top()))?;
    let cpu = compile.group().cpu_used()?;
    let look = look(&["chains"], label)?;
    let sight = Some(sight(compile.group(), cpu, &look)?);
    let disturbed = calm.disturbed(Some(fence.top()), look.own_cpu())?;
    Ok(Quiet { sight, ..is_quiet(Whose::Compilers, disturbed, look, format!("{jobs} compilers")) })
}

/// Nothing is reported, by somebody who looked. Is something told of whom nothing should be, it is void only if the one who waits
/// there says so himself by his own clock, or, where he is none of the test's, if others used the host.
pub fn judge(quiet: &Quiet) -> Verdict {
    let reported = accused(quiet).and_then(|chain| could_look(quiet).map(|()| chain));
    let context = || format!("{}\n{}", quiet.said, quiet.look.kept.display());
    match (reported, &quiet.disturbed) {
        (Err(wrong), _) => Verdict::Wrong(wrong.told(|what| format!("{what}: {}", context()))),
        (Ok(Some(chain)), Some(reason)) => Verdict::Again(format!("{reason}: {chain}: {}", context())),
        (Ok(Some(chain)), None) => {
            Verdict::Wrong(Wrong::accused(format!("told all the same: {chain}: {}", context())))
        }
        // A healthy lock_chain is one beside others, too.
        (Ok(None), Some(reason)) if !matches!(quiet.whose, Whose::Healthy(_)) => {
            Verdict::Again(format!("{reason}: {}", context()))
        }
        (Ok(None), _) => by_its_clock(quiet).map_or(Verdict::Passed, Verdict::Again),
    }
}

fn could_look(quiet: &Quiet) -> Result<(), Wrong> {
    quiet.look.is_sound(said::Verb::Chains)?;
    said::could_tell(&quiet.look.document, &["lock-wait"])?;
    said::rules_out(&quiet.look.document)?;
    Ok(quiet.sight.iter().try_for_each(|sight| sight.is_in(&quiet.look.document))?)
}

fn chains(look: &Look) -> impl Iterator<Item = &Value> {
    look.document["chains"].as_array().into_iter().flatten()
}

/// A chain that should not be reported; an error if that is sure whatever others did.
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
                    Err(Wrong::accused(format!("told, and not by its clock: {chain}")))
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

/// On emulated CPUs looking takes seconds of CPU time: that whyslow itself had somebody's CPU is true there.
fn is_its_own(chain: &Value) -> bool {
    bars::is_emulated() && chain["leaf"]["name"] == "whyslow"
}

fn position(chain: &Value, reported: &Told) -> Option<usize> {
    let waiter = chain["tasks"][0][0][0].as_u64()?;
    reported.tids.iter().position(|tid| u64::from(*tid) == waiter)
}

/// A thread that lost its CPU with a lock in its hands makes others wait, and the host may stop a CPU of a guest without that any
/// counter there shows it: the waiter's clock does, and then the chain is a true one.
fn is_true(chain: &Value, reported: &Told, window: Span) -> bool {
    let waited = |at: usize| reported.waits(at, window).iter().sum::<f64>();
    let is_within = |said: f64, waited: f64| said <= waited + bars::slack_s(waited);
    position(chain, reported)
        .is_some_and(|at| chain["time_s"].as_f64().is_some_and(|said| is_within(said, waited(at))))
}

/// Why a healthy lock chain was none.
fn by_its_clock(quiet: &Quiet) -> Option<String> {
    let Whose::Healthy(reported) = &quiet.whose else { return None };
    let mut ours = chains(&quiet.look).filter(|chain| names_any(chain, &reported.tids) && !is_its_own(chain));
    ours.next().map(|chain| format!("somebody waited by his own clock: {chain}"))
}
