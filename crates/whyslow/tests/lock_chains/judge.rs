//! Whether the document about a cell is right. No I/O: takes the scenario and the document, returns a verdict (`stand_ins`).

use whyslow_faults::Wrong;
use whyslow_faults::lock_chain::LinkKind;
use whyslow_faults::report_checks;
use whyslow_faults::rounds::Verdict;

use crate::climb::Climbed;
use crate::quiet::Quiet;
use crate::{chains, locks, quiet};

/// A cell that was made, and whyslow's document.
pub enum Watched {
    /// Lock chains that must be reported.
    LockChains(Vec<Climbed>),
    /// A lock chain whose kernel locks must be reported.
    Locks(Climbed),
    /// A host without anything that must be reported.
    Quiet(Quiet),
}

/// Judge it.
pub fn judge(watched: &Watched) -> Verdict {
    match watched {
        Watched::LockChains(all) => of_lock_chains(all, chains::judge),
        Watched::Locks(climbed) => of_lock_chains(std::slice::from_ref(climbed), locks::judge),
        Watched::Quiet(quiet) => quiet::judge(quiet),
    }
}

/// First checks that whyslow observed; then, by the threads' own clocks, that there was something to report; then the report.
fn of_lock_chains(all: &[Climbed], right: impl Fn(&Climbed) -> Result<(), Wrong>) -> Verdict {
    let could_look = |climbed: &Climbed| {
        // A thread of Go's scheduler may run any goroutine.
        let rests = (climbed.kind != LinkKind::Go).then(|| chains::of_one_that_rests(climbed)).flatten();
        if let Some(chain) = rests {
            return Err(Wrong::accused(format!("a thread that rests has a chain: {chain}")));
        }
        climbed.look.is_sound(climbed.asked)?;
        report_checks::could_tell(&climbed.look.document, &["lock-wait"])
    };
    if let Err(wrong) = all.iter().try_for_each(could_look) {
        let kept: Vec<String> = all.iter().map(ToString::to_string).collect();
        return Verdict::Wrong(wrong.told(|what| format!("{what}\n{}", kept.join("\n"))));
    }
    if let Some((climbed, why)) = all.iter().find_map(|one| Some((one, one.is_a_lock_chain().err()?))) {
        return Verdict::Again(format!("{why}\n{climbed}"));
    }
    match all.iter().try_for_each(right) {
        Ok(()) if !all.is_empty() => Verdict::Passed,
        Ok(()) => Verdict::Wrong(Wrong::missed("nothing was made")),
        Err(wrong) => Verdict::Wrong(wrong),
    }
}
