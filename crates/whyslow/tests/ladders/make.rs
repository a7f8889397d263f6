//! Run a cell, once or many times.

use std::path::PathBuf;

use whyslow_faults::honest::Crowd;
use whyslow_faults::ladder::{self, Ask, Foot, Kind};
use whyslow_faults::rounds::{self, Outcome, Trouble};
use whyslow_faults::{Draw, Fence, bars};

use crate::cell::{Cell, Verb};
use crate::climb::{self, Climbed};
use crate::{chains, locks, quiet};

/// Busy processes beside a ladder have the default's weight divided by one of these: of full weight they would leave its
/// foot no CPU to burn.
const LIGHTEST: u64 = 16;
const LEAST_LIGHT: u64 = 6;

/// Where all is kept that whyslow said: `WHYSLOW_KEPT`, where the folder of the build cannot be written to.
pub fn kept_in() -> PathBuf {
    let place = std::env::var_os("WHYSLOW_KEPT").unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
    PathBuf::from(place).join("ladders")
}

/// One cell as a test: not drawn, once, or the rounds of a soak.
pub fn run(cell: Cell) {
    rounds::run(&cell, |seed| cell.is_drawn(seed), &kept_in(), |draw| make(cell, draw));
}

fn make(cell: Cell, draw: &mut Draw) -> Result<Outcome, Trouble> {
    std::fs::create_dir_all(kept_in())?;
    let label = format!("{cell}-{}", draw.seed());
    if let Cell::Chain(_, Kind::Go) | Cell::Crowd(Kind::Go) | Cell::Healthy(Kind::Go) = cell
        && let Err(why) = ladder::build_go(&kept_in())
    {
        return if rounds::is_set("WHYSLOW_NEEDS_GO") {
            Err(why.to_string().into())
        } else {
            Ok(Outcome::NotRun(why.to_string()))
        };
    }
    match cell {
        Cell::Chain(Verb::Chains, kind) => until_it_is_one(
            draw,
            &label,
            |fence, draw, label| {
                let ask = Ask { foot: Some(draw.pick(&long_feet(kind))), ..asked(kind) };
                climb::watched(fence, Verb::Chains, ask, draw, label)
            },
            chains::judge,
        ),
        Cell::Chain(verb, kind) => until_it_is_one(
            draw,
            &label,
            |fence, draw, label| climb::watched(fence, verb, asked(kind), draw, label),
            chains::judge,
        ),
        Cell::Crowd(kind) => until_it_is_one(
            draw,
            &label,
            |fence, draw, label| in_a_crowd(fence, kind, draw, label),
            chains::judge,
        ),
        Cell::Locks(kind) => until_it_is_one(
            draw,
            &label,
            |fence, draw, label| climb::locked(fence, asked(kind), draw, label),
            locks::judge,
        ),
        Cell::Healthy(kind) => quiet::healthy(Ask { healthy: true, ..asked(kind) }, draw, &label),
        Cell::Two => two(draw, &label),
        Cell::Idle => quiet::idle(&label),
        Cell::Compile(jobs) => quiet::compile(jobs, draw, &label),
    }
}

/// What is long enough to be told of a whole host, where nobody asked for these threads: a grace period often takes less
/// than the threshold that keeps healthy hosts quiet.
fn long_feet(kind: Kind) -> Vec<Foot> {
    kind.feet().iter().copied().filter(|foot| *foot != Foot::GracePeriod).collect()
}

fn asked(kind: Kind) -> Ask {
    Ask { kind, foot: None, healthy: false, in_a_crowd: false, lasts_ms: bars::WINDOW_S * 1000 }
}

/// Make it until the threads' own clocks say that it was a ladder, and judge what was said of it.
fn until_it_is_one(
    draw: &mut Draw,
    label: &str,
    mut climb: impl FnMut(&Fence, &mut Draw, &str) -> Result<Climbed, Trouble>,
    judge: impl Fn(&Climbed) -> Result<(), Trouble>,
) -> Result<Outcome, Trouble> {
    let mut why = String::new();
    for attempt in 0..bars::TRIES {
        let fence = Fence::enter()?;
        let climbed = climb(&fence, draw, &format!("{label}-{attempt}"))?;
        fence.check_time()?;
        match climbed.is_a_ladder() {
            Ok(()) => return judge(&climbed).map(|()| Outcome::Passed),
            Err(reason) => why = format!("{reason}\n{climbed}"),
        }
    }
    Ok(Outcome::HostNotIdle(why))
}

fn in_a_crowd(fence: &Fence, kind: Kind, draw: &mut Draw, label: &str) -> Result<Climbed, Trouble> {
    let _crowd = Crowd::start(fence, bars::crowd(), draw.between(LEAST_LIGHT, LIGHTEST), draw)?;
    std::thread::sleep(bars::SETTLE);
    let ask = Ask { in_a_crowd: true, ..asked(kind) };
    climb::watched(fence, Verb::Run, ask, draw, label)
}

fn two(draw: &mut Draw, label: &str) -> Result<Outcome, Trouble> {
    let kinds = [Kind::Futex, Kind::Pthread, Kind::Std, Kind::File, Kind::Directory, Kind::PipeLock];
    let mut why = String::new();
    for attempt in 0..bars::TRIES {
        let fence = Fence::enter()?;
        let kinds = draw.some(2, &kinds);
        let asks = [kinds[0], kinds[1]];
        let asks = asks.map(|kind| Ask { foot: Some(draw.pick(&long_feet(kind))), ..asked(kind) });
        let both = climb::two(asks, &fence, draw, &format!("{label}-{attempt}"))?;
        fence.check_time()?;
        match both.iter().try_for_each(Climbed::is_a_ladder) {
            Ok(()) => return both.iter().try_for_each(chains::judge).map(|()| Outcome::Passed),
            Err(reason) => why = reason,
        }
    }
    Ok(Outcome::HostNotIdle(why))
}
