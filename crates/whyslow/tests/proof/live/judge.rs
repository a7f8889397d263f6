//! Whether what was said of a cell is right. Pure: what was made and the document in, a verdict out; so that stand-ins can be
//! put before the judge of each cell without making it (`stand_ins`).

use whyslow_faults::look::Look;
use whyslow_faults::rounds::Verdict;
use whyslow_faults::said::{self, Verb};
use whyslow_faults::{Kind, Wrong, bars};

use crate::live::cell::Cell;
use crate::live::exam::{Finding, causes, findings, summary};
use crate::live::made::{Made, Mob, Party};

/// Steal is the hypervisor's doing: a host in a cloud may have it at any time.
const NOT_OURS: &str = "steal";
/// ... also what it does not count as such (the threads that do a guest's I/O share its CPUs): loops of known length have met it.
pub const NOT_COUNTED: &str = "taken in pieces by what no counter names";

/// Judge a look at what was made.
pub fn judge(made: &Made, look: &Look) -> Verdict {
    let reported = on_any_host(made, look).and_then(|()| match made.is_void() {
        Some(why) => Ok(Some(why)),
        None => as_asked(made, look).map(|()| None),
    });
    match reported {
        Ok(None) => Verdict::Passed,
        Ok(Some(why)) => Verdict::Again(format!("{why}; {}", context(made, look))),
        Err(wrong) if is_taken(&wrong.what) => Verdict::Again(format!("{wrong}; {}", context(made, look))),
        Err(wrong) => Verdict::Wrong(wrong.told(|what| format!("{what}: {}", context(made, look)))),
    }
}

/// Who is said to have lost something has lost it to the host's hypervisor.
fn is_taken(what: &str) -> bool {
    what.contains("cause slow-cpu") && what.contains(NOT_COUNTED)
}

fn context(made: &Made, look: &Look) -> String {
    let mut text: String =
        made.parties.iter().map(|party| format!("{}\n  truth: {}\n  ", party.said, party.truth)).collect();
    if let (Some(mob), Some(to_crowd)) = (&made.mob, made.parties.first().and_then(|party| party.to_crowd)) {
        let (to, by) = (to_crowd.lost_s(), mob.lost_s);
        text.push_str(&format!("lost to the crowd: {to:.2} s; by the crowd itself: {by:.2} s\n  "));
    }
    text + &summary(look)
}

/// It looked, and nobody is accused who did and lost nothing, whatever else goes on.
fn on_any_host(made: &Made, look: &Look) -> Result<(), Wrong> {
    let all = causes(look);
    // Of a twin or false-positive control that lost something all the same it may be true.
    let is_quiet = matches!(made.cell, Cell::Twin(_) | Cell::Control(_)) && made.is_not_made().is_none();
    let is_false = |finding: &&Finding<'_>| {
        finding.blames_task_of(&made.innocents)
            || made.built.as_ref().is_some_and(|built| finding.mentions(&built.group))
            || (is_quiet && made.parties.iter().any(|party| finding.names(party)))
    };
    if let Some(blame) = all.iter().find(is_false) {
        return Err(Wrong::accused(format!("the innocent is accused: \"{blame}\"")));
    }
    look.is_sound(Verb::Exam)?;
    let not_to_tell: &[Kind] = match &made.cell {
        Cell::Twin(kind) | Cell::Control(kind) => std::slice::from_ref(kind),
        Cell::Idle | Cell::Compile(_) => &Kind::ALL,
        Cell::Fault(_) | Cell::Crowd(_) | Cell::Pair(..) => &[],
    };
    said::could_tell(&look.document, &not_to_tell.iter().map(|kind| kind.rule()).collect::<Vec<_>>())?;
    said::rules_out(&look.document)?;
    let of_built = made.built.iter().map(|built| &built.sight);
    let mut sights = made.parties.iter().map(|party| &party.sight).chain(of_built);
    Ok(sights.try_for_each(|sight| sight.is_in(&look.document))?)
}

/// On an idle host.
fn as_asked(made: &Made, look: &Look) -> Result<(), Wrong> {
    match (made.cell, made.parties.as_slice()) {
        (Cell::Fault(_), [party]) => fault(party, look),
        (Cell::Crowd(_), [party]) => in_a_crowd(party, made.mob.as_ref().ok_or("there is no crowd")?, look),
        (Cell::Pair(..), [a, b]) => both(a, b, look),
        (Cell::Twin(_) | Cell::Control(_), [_]) | (Cell::Idle | Cell::Compile(_), []) => no_cause(look),
        (cell, parties) => Err(format!("{cell} has {} scenarios", parties.len()).into()),
    }
}

/// Whether a finding is the one that a scenario should give.
fn is_of(finding: &Finding<'_>, party: &Party) -> bool {
    // Of two limits alike the kernel charges the inner first, and the outer holds a few pages more, those of its children's own
    // structures (mm/memcontrol.c): either may be the one that is met.
    let is_alike =
        party.kind == Kind::MemoryLimit && party.limits.iter().any(|path| finding.is_about_group(path));
    let right_victim = finding.is_about_group(&party.group)
        || is_alike
        // Who waits for a server is a task: its cgroup has no counter of connects.
        || (party.kind == Kind::ListenOverflow && finding.is_about_task_of(&party.victim));
    finding.is_cause() && finding.rule() == party.kind.rule() && right_victim
}

/// Where a scenario's finding stands among the findings, and the loss it tells (all its victims together).
fn reported(look: &Look, party: &Party) -> Option<(usize, f64)> {
    let findings = findings(look);
    let rank = findings.iter().position(|finding| is_of(finding, party))?;
    let lost = findings.iter().filter(|finding| is_of(finding, party)).filter_map(Finding::lost_s).sum();
    Some((rank, lost))
}

/// Found, with the right victim, the right loss, in the right place.
fn fault(party: &Party, look: &Look) -> Result<(), Wrong> {
    let (rank, lost) = reported(look, party).ok_or("not found")?;
    if rank > 0 {
        return Err(Wrong::inexact(format!("not the top finding but number {}", rank + 1)));
    }
    let findings = findings(look);
    let names_others = |finding: &Finding<'_>| is_of(finding, party) && !finding.lifts(&party.limits);
    if !party.limits.is_empty() && findings.iter().any(names_others) {
        return Err(Wrong::inexact(format!("its fixes do not lift just {:?}", party.limits)));
    }
    let truth = party.truth.lost_s();
    if (lost - truth).abs() > bars::EXACT * truth {
        let percent = bars::EXACT * 100.0;
        return Err(Wrong::inexact(format!("lost {lost:.2} s is not within {percent:.0} % of {truth:.2} s")));
    }
    Ok(())
}

/// While busy processes fill the CPUs: still reported, and only larger losses rank above.
fn in_a_crowd(party: &Party, mob: &Mob, look: &Look) -> Result<(), Wrong> {
    let (rank, _) = reported(look, party).ok_or("not found in a crowd")?;
    for above in findings(look).iter().take(rank) {
        let of_crowd = above.is_about_the_host()
            || above.is_about_group(&mob.group)
            || above.is_about_task_of(&mob.tids);
        let lost = match above.names(party) {
            _ if of_crowd => mob.lost_s,
            true => party.to_crowd.map_or(0.0, |truth| truth.lost_s()),
            false => 0.0,
        };
        if lost <= party.truth.lost_s() {
            return Err(Wrong::inexact(format!("ranks below \"{above}\", a smaller loss")));
        }
    }
    Ok(())
}

/// Both found, ranked as the victims' clocks rank them.
fn both(a: &Party, b: &Party, look: &Look) -> Result<(), Wrong> {
    let (Some((rank_a, _)), Some((rank_b, _))) = (reported(look, a), reported(look, b)) else {
        return Err("not both were found".into());
    };
    let (x, y) = (a.truth.lost_s(), b.truth.lost_s());
    let apart = x.max(y) > (1.0 + bars::APART) * x.min(y);
    if apart && (rank_a < rank_b) != (x > y) {
        return Err(Wrong::inexact("the smaller loss ranks above the larger"));
    }
    Ok(())
}

/// Nothing is wrong.
fn no_cause(look: &Look) -> Result<(), Wrong> {
    match causes(look).iter().find(|finding| finding.rule() != NOT_OURS) {
        Some(blame) => Err(Wrong::accused(format!("a cause on a healthy host: \"{blame}\""))),
        None => Ok(()),
    }
}
