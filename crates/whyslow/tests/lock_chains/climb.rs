//! Run a lock chain while whyslow observes it.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use whyslow_faults::lock_chain::{self, Ask, LinkKind, Plan, Told};
use whyslow_faults::look::Look;
use whyslow_faults::report_checks;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::victim::Launch;
use whyslow_faults::{Draw, Fence, LockChain, Span, Victim, thresholds};

use crate::cell::Verb;
use crate::make::kept_in;

/// Time from the first round until whyslow starts: the lock chain is under way by then.
const HEAD_START: Duration = Duration::from_millis(300);
/// A lock chain that is observed from outside must not end before the window does.
const LONGER_MS: u64 = 15_000;
/// Largest delay of a leaf that shares its CPU with a crowd.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// A round that the host disturbed is no failure; this share must be complete.
const MOST: f64 = 0.7;
/// Least share of the leaf's action in which all threads wait: with less the chain is too short.
const SHARE: f64 = 0.3;

/// The record of a lock chain, and whyslow's document.
pub struct Climbed {
    /// The verb of whyslow.
    pub verb: Verb,
    /// The verb, as its exit status depends on it.
    pub asked: report_checks::Verb,
    pub kind: LinkKind,
    /// The plan of the lock chain.
    pub plan: Plan,
    /// The truth.
    pub reported: Told,
    /// whyslow's document.
    pub look: Arc<Look>,
    /// The window of whyslow; for a command that it ran: all the time.
    pub window: Span,
    /// What was drawn.
    pub said: String,
}

impl Climbed {
    /// Checks, by the threads' own clocks, that the window contains enough rounds in which each thread waited for the next, in order.
    pub fn is_a_lock_chain(&self) -> Result<(), String> {
        let inside = |round: &&lock_chain::Round| {
            round.waits.iter().all(|wait| wait.from >= self.window.from && wait.to <= self.window.to)
        };
        let rounds: Vec<&lock_chain::Round> = self.reported.rounds.iter().filter(inside).collect();
        let is_whole = |round: &&&lock_chain::Round| {
            let acted = round.waits.last().map_or(0.0, |leaf| leaf.length().as_secs_f64());
            let is_long = round.together().length().as_secs_f64() >= SHARE * acted;
            round.is_in_order() && is_long
        };
        let whole = rounds.iter().filter(is_whole).count();
        if whole < 3 || (whole as f64) < MOST * rounds.len() as f64 {
            return Err(format!("only {whole} of {} rounds were a lock_chain", rounds.len()));
        }
        Ok(())
    }
}

impl fmt::Display for Climbed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "  {}: {}\n{}\n  whyslow said: {}",
            self.kind,
            self.said,
            self.reported,
            self.look.kept.display()
        )
    }
}

/// The binary under test: the one that was just built, or an installed or older one.
pub fn whyslow() -> OsString {
    whyslow_faults::program!()
}

/// Observe a lock chain with `verb`.
pub fn watched(
    fence: &Fence,
    verb: Verb,
    ask: Ask,
    draw: &mut Draw,
    label: &str,
) -> Result<Climbed, Trouble> {
    match verb {
        Verb::Run => run(fence, ask, draw, label),
        Verb::Attach | Verb::Chains => {
            let lock_chain = LockChain::set(fence, Ask { lasts_ms: LONGER_MS, ..ask }, draw)?;
            let victim = begin(&lock_chain, ask.kind)?;
            let pids = processes(&lock_chain, &victim);
            let args = if verb == Verb::Attach { vec!["attach", &pids] } else { vec!["chains"] };
            let look = Arc::new(look(&args, label)?);
            let asked =
                if verb == Verb::Attach { report_checks::Verb::Looked } else { report_checks::Verb::Chains };
            climbed((verb, asked), ask.kind, &lock_chain, victim, look)
        }
    }
}

/// Observe a lock chain with `whyslow locks`.
pub fn locked(fence: &Fence, ask: Ask, draw: &mut Draw, label: &str) -> Result<Climbed, Trouble> {
    let lock_chain = LockChain::set(fence, Ask { lasts_ms: LONGER_MS, ..ask }, draw)?;
    let victim = begin(&lock_chain, ask.kind)?;
    let look = Arc::new(look(&["locks"], label)?);
    climbed((Verb::Chains, report_checks::Verb::Looked), ask.kind, &lock_chain, victim, look)
}

/// Observe two lock chains with `whyslow chains`.
pub fn two(asks: [Ask; 2], fence: &Fence, draw: &mut Draw, label: &str) -> Result<[Climbed; 2], Trouble> {
    let [a, b] = asks;
    let set = |ask: Ask, draw: &mut Draw| LockChain::set(fence, Ask { lasts_ms: LONGER_MS, ..ask }, draw);
    let (first, second) = (set(a, draw)?, set(b, draw)?);
    let (one, other) = (begin(&first, a.kind)?, begin(&second, b.kind)?);
    let look = Arc::new(look(&["chains"], label)?);
    let verbs = (Verb::Chains, report_checks::Verb::Chains);
    Ok([climbed(verbs, a.kind, &first, one, look.clone())?, climbed(verbs, b.kind, &second, other, look)?])
}

/// Run whyslow for `thresholds::WINDOW_S`.
pub fn look(args: &[&str], label: &str) -> Result<Look, Trouble> {
    let length = format!("{}s", thresholds::WINDOW_S);
    let args: Vec<&str> = args.iter().copied().chain(["--for", &length, "--json"]).collect();
    let kept = kept_in().join(format!("{label}.json"));
    Look::now(&whyslow(), &args, Duration::from_secs(thresholds::WINDOW_S), &kept)
}

/// Start the lock chain, and give it its head start.
pub fn begin(lock_chain: &LockChain, kind: LinkKind) -> Result<Victim, Trouble> {
    let victim = lock_chain.start(Launch { program: program(kind)?, ..Launch::default() })?;
    victim.go();
    std::thread::sleep(HEAD_START);
    Ok(victim)
}

fn program(kind: LinkKind) -> std::io::Result<Option<PathBuf>> {
    if kind == LinkKind::Go { lock_chain::build_go(&kept_in()).map(Some) } else { Ok(None) }
}

fn processes(lock_chain: &LockChain, victim: &Victim) -> String {
    let pids = if lock_chain.plan().apart { victim.tids() } else { vec![victim.pid()] };
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn run(fence: &Fence, ask: Ask, draw: &mut Draw, label: &str) -> Result<Climbed, Trouble> {
    let lock_chain = LockChain::set(fence, ask, draw)?;
    let kept = kept_in().join(format!("{label}.json"));
    let launch = Launch {
        program: program(ask.kind)?,
        under: [whyslow(), "run".into(), "--json".into(), "--".into()].to_vec(),
        stdout: Some(File::create(&kept)?),
        stderr: Some(File::create(kept.with_extension("stderr"))?),
    };
    let mut victim = lock_chain.start(launch)?;
    victim.go();
    let status = victim.ended(thresholds::patient(ENDS_WITHIN))?;
    let look = Look::read(&kept, status.code(), ENDS_WITHIN)?;
    let window = Span { from: 0, to: u64::MAX };
    Ok(Climbed {
        verb: Verb::Run,
        asked: report_checks::Verb::Run,
        kind: ask.kind,
        plan: lock_chain.plan().clone(),
        reported: lock_chain.reported(&victim),
        look: Arc::new(look),
        window,
        said: lock_chain.to_string(),
    })
}

fn climbed(
    (verb, asked): (Verb, report_checks::Verb),
    kind: LinkKind,
    lock_chain: &LockChain,
    mut victim: Victim,
    look: Arc<Look>,
) -> Result<Climbed, Trouble> {
    lock_chain.stop(&victim);
    let status = victim.ended(thresholds::patient(ENDS_WITHIN))?;
    if !status.success() {
        return Err(std::io::Error::other(format!("the lock_chain ended with {status}")).into());
    }
    let (reported, window) = (lock_chain.reported(&victim), look.window);
    let (plan, said) = (lock_chain.plan().clone(), lock_chain.to_string());
    Ok(Climbed { verb, asked, kind, plan, reported, look, window, said })
}
