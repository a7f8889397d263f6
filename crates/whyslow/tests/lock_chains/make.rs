//! Run a cell, once or many times.

use std::path::PathBuf;

use whyslow_faults::honest::Crowd;
use whyslow_faults::lock_chain::{self, Ask, Leaf, LinkKind};
use whyslow_faults::rounds::{self, Outcome, Trouble};
use whyslow_faults::{Draw, Fence, thresholds};

use crate::cell::{Cell, Verb};
use crate::climb::{self, Climbed};
use crate::judge::{Watched, judge};
use crate::quiet;

/// Busy processes beside a lock chain have the default's weight divided by up to this number: at full weight they would leave the leaf no
/// CPU time.
const LIGHTEST: u64 = 16;
const LEAST_LIGHT: u64 = 6;

/// Where whyslow's documents are kept: `WHYSLOW_KEPT`, where the build folder is not writable.
pub fn kept_in() -> PathBuf {
    let place = std::env::var_os("WHYSLOW_KEPT").unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
    PathBuf::from(place).join("lock_chains")
}

/// Run one cell as a test.
pub fn run(cell: Cell) {
    rounds::run(&cell, &kept_in(), |draw| make(cell, draw));
}

fn make(cell: Cell, draw: &mut Draw) -> Result<Outcome, Trouble> {
    std::fs::create_dir_all(kept_in())?;
    let label = format!("{cell}-{}", draw.seed());
    if let Cell::Chain(_, LinkKind::Go) | Cell::Crowd(LinkKind::Go) | Cell::Healthy(LinkKind::Go) = cell
        && let Err(why) = lock_chain::build_go(&kept_in())
    {
        return if rounds::is_set("WHYSLOW_NEEDS_GO") {
            Err(why.to_string().into())
        } else {
            Ok(Outcome::NotRun(why.to_string()))
        };
    }
    rounds::until_judged(&cell, |attempt| {
        let fence = Fence::enter()?;
        let watched = once(cell, &fence, draw, &format!("{label}-{attempt}"))?;
        fence.check_time()?;
        Ok(judge(&watched))
    })
}

/// Make it, and run whyslow.
fn once(cell: Cell, fence: &Fence, draw: &mut Draw, label: &str) -> Result<Watched, Trouble> {
    let watched = match cell {
        Cell::Chain(Verb::Chains, kind) => {
            let ask = Ask { leaf: Some(draw.pick(&long_feet(kind))), ..asked(kind) };
            Watched::LockChains(vec![climb::watched(fence, Verb::Chains, ask, draw, label)?])
        }
        Cell::Chain(verb, kind) => {
            Watched::LockChains(vec![climb::watched(fence, verb, asked(kind), draw, label)?])
        }
        Cell::Crowd(kind) => Watched::LockChains(vec![in_a_crowd(fence, kind, draw, label)?]),
        Cell::Locks(kind) => Watched::Locks(climb::locked(fence, asked(kind), draw, label)?),
        Cell::Healthy(kind) => {
            Watched::Quiet(quiet::healthy(fence, Ask { healthy: true, ..asked(kind) }, draw, label)?)
        }
        Cell::Two => Watched::LockChains(two(fence, draw, label)?),
        Cell::Idle => Watched::Quiet(quiet::idle(label)?),
        Cell::Compile(jobs) => Watched::Quiet(quiet::compile(fence, jobs, draw, label)?),
    };
    Ok(watched)
}

/// Leaves that act long enough to be reported for a whole host, where no command names these threads: a grace period often takes less than
/// the threshold that keeps healthy hosts quiet.
fn long_feet(kind: LinkKind) -> Vec<Leaf> {
    kind.feet().iter().copied().filter(|leaf| *leaf != Leaf::GracePeriod).collect()
}

fn asked(kind: LinkKind) -> Ask {
    Ask { kind, leaf: None, healthy: false, in_a_crowd: false, lasts_ms: thresholds::WINDOW_S * 1000 }
}

fn in_a_crowd(fence: &Fence, kind: LinkKind, draw: &mut Draw, label: &str) -> Result<Climbed, Trouble> {
    let _crowd = Crowd::start(fence, thresholds::crowd(), draw.between(LEAST_LIGHT, LIGHTEST), draw)?;
    std::thread::sleep(thresholds::SETTLE);
    let ask = Ask { in_a_crowd: true, ..asked(kind) };
    climb::watched(fence, Verb::Run, ask, draw, label)
}

fn two(fence: &Fence, draw: &mut Draw, label: &str) -> Result<Vec<Climbed>, Trouble> {
    let kinds = [
        LinkKind::Futex,
        LinkKind::Pthread,
        LinkKind::Std,
        LinkKind::File,
        LinkKind::Directory,
        LinkKind::PipeLock,
    ];
    let kinds = draw.some(2, &kinds);
    let asks = [kinds[0], kinds[1]];
    let asks = asks.map(|kind| Ask { leaf: Some(draw.pick(&long_feet(kind))), ..asked(kind) });
    Ok(climb::two(asks, fence, draw, label)?.into())
}
