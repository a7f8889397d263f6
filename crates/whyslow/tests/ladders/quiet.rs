//! Healthy ladders, an idle host and one that compiles: no chain of the test's tasks.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use whyslow_faults::honest::Compile;
use whyslow_faults::host::Calm;
use whyslow_faults::ladder::{Ask, Told};
use whyslow_faults::look::Look;
use whyslow_faults::rounds::{Outcome, Trouble};
use whyslow_faults::{Draw, Fence, Ladder, Span, bars};

use crate::chains::names_any;
use crate::climb::{begin, look};

/// A compiler that has not built one small file by then is not there.
const ONE_FILE_WITHIN: Duration = Duration::from_secs(20);

fn own_cpu(look: &Look) -> Duration {
    let seconds = look.document["own_cost"]["cpu_s"].as_f64().unwrap_or(0.0);
    Duration::from_secs_f64(seconds.clamp(0.0, 60.0))
}

fn told<'l>(look: &'l Look, tids: &[u32]) -> Option<&'l Value> {
    // On emulated CPUs looking takes seconds of CPU time: that whyslow itself had somebody's CPU is true there.
    let is_ours = |chain: &&Value| bars::is_emulated() && chain["leaf"]["name"] == "whyslow";
    let chains = look.document["chains"].as_array();
    chains.into_iter().flatten().find(|chain| names_any(chain, tids) && !is_ours(chain))
}

/// The host may stop an emulated CPU whose thread holds a lock: no counter of the guest shows it, but the waiter's clock does,
/// and the chain is a true one.
fn by_its_clock(chain: &Value, told: &Told, window: Span) -> Option<String> {
    let waiter = chain["tasks"][0][0][0].as_u64()?;
    let position = told.tids.iter().position(|tid| u64::from(*tid) == waiter)?;
    let waited: f64 = told.waits(position, window).iter().sum();
    let said = chain["time_s"].as_f64()?;
    let is_true = bars::is_emulated() && said <= waited + bars::slack_s(waited);
    is_true.then(|| format!("it waited {waited:.3} s by its own clock"))
}

/// The same threads and locks, and nobody waits for long.
pub fn healthy(ask: Ask, draw: &mut Draw, label: &str) -> Result<Outcome, Trouble> {
    let mut why = String::new();
    for attempt in 0..bars::TRIES {
        let fence = Fence::enter()?;
        let ladder = Ladder::set(&fence, ask, draw)?;
        let mut victim = begin(&ladder, ask.kind)?;
        let calm = Calm::watch(Some(fence.top()))?;
        let look = look(&["chains"], &format!("{label}-{attempt}"))?;
        let disturbed = calm.disturbed(Some(fence.top()), own_cpu(&look))?;
        ladder.stop(&victim);
        victim.ended(bars::patient(ONE_FILE_WITHIN))?;
        let chain = told(&look, &victim.tids());
        let true_one = chain.and_then(|chain| by_its_clock(chain, &ladder.told(&victim), look.window));
        match (chain, disturbed.or(true_one)) {
            (None, _) => return Ok(Outcome::Passed),
            // A thread that lost its CPU with a lock in its hands makes others wait: that chain is a true one.
            (Some(chain), Some(reason)) => why = format!("{reason}: {chain}"),
            (Some(chain), None) => {
                return Err(format!("{ladder}: told all the same: {chain}\n{}", look.kept.display()).into());
            }
        }
    }
    Ok(Outcome::HostNotIdle(why))
}

/// Nothing runs.
pub fn idle(label: &str) -> Result<Outcome, Trouble> {
    let mut why = String::new();
    for attempt in 0..bars::TRIES {
        let fence = Fence::enter()?;
        let calm = Calm::watch(None)?;
        let look = look(&["chains"], &format!("{label}-{attempt}"))?;
        let disturbed = calm.disturbed(None, own_cpu(&look))?;
        fence.check_time()?;
        match (look.document["chains"].as_array().is_none_or(Vec::is_empty), disturbed) {
            (true, None) => return Ok(Outcome::Passed),
            (_, Some(reason)) => why = reason,
            (false, None) => return Err(format!("a chain on an idle host: {}", look.kept.display()).into()),
        }
    }
    Ok(Outcome::HostNotIdle(why))
}

/// So many compilers run, in a cgroup of their own: all that are seen there are the test's.
pub fn compile(jobs: usize, draw: &mut Draw, label: &str) -> Result<Outcome, Trouble> {
    let mut why = String::new();
    for attempt in 0..bars::TRIES {
        let fence = Fence::enter()?;
        let compile = Compile::start(&fence, jobs, draw)?;
        compile.until_one_is_done(bars::patient(ONE_FILE_WITHIN))?;
        let calm = Calm::watch(Some(fence.top()))?;
        let look = look(&["chains"], &format!("{label}-{attempt}"))?;
        let disturbed = calm.disturbed(Some(fence.top()), own_cpu(&look))?;
        fence.check_time()?;
        let compilers = look.document["chains"].as_array().into_iter().flatten().find(|chain| {
            let text = chain["tasks"].to_string();
            ["cc1", "\"cc\"", "\"as\""].iter().any(|name| text.contains(name))
        });
        match (compilers, disturbed) {
            (None, None) => return Ok(Outcome::Passed),
            (_, Some(reason)) => why = reason,
            (Some(chain), None) => {
                let said = fs::canonicalize(&look.kept).unwrap_or_default();
                return Err(format!("compilers are told: {chain}\n{}", said.display()).into());
            }
        }
    }
    Ok(Outcome::HostNotIdle(why))
}
