//! Whether whyslow's document about a program is true. No I/O: takes the scenario and the document, returns a verdict (`stand_ins`).

use std::collections::BTreeMap;

use whyslow_faults::look::Look;
use whyslow_faults::report_checks::{self, Sight};
use whyslow_faults::rounds;
use whyslow_faults::spinners::{Program, Told};
use whyslow_faults::wrong::{Sort, Wrong};

use crate::spin::cell::Cell;
use crate::spin::finding::{Accusation, accusations, why_not};
use crate::spin::table::Row;

/// Largest difference between the reported share and the truth, for a program alone on a calm host.
pub const EXACT: f64 = 0.15;
/// Largest width of the reported interval beside other load; it must contain the truth.
pub const WIDE: f64 = 0.40;
/// Distance from the end of an interval that samples cannot resolve.
const EDGE: f64 = 0.02;
/// Each bound holds in 99 of 100 windows; with this part of the interval's width added, in all but one of some thousands.
const LUCK: f64 = 0.25;
/// A spinner must be found if it spun for at least this share of its CPU time.
pub const MUST: f64 = 0.25;
/// And for so long in the window of 3 s: a twentieth of a CPU. Beside 20 other processes a thread gets about twice that.
pub const MUST_S: f64 = 0.15;

/// The outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A spinner that was found.
    Found,
    /// A spinner that was missed.
    Missed,
    /// An honest program that was accused.
    False,
    /// An honest program that was not accused.
    Quiet,
}

/// Other load on the CPUs beside the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// None.
    Nobody,
    /// The test's own crowd.
    Crowd,
    /// Processes outside the test.
    Others,
}

/// The subject of an accusation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whom {
    Program,
    /// Another process of the test, or whyslow.
    Innocent,
    /// A process outside the test.
    Stranger,
}

/// A cell that was made, by the clocks of its processes: all that the judge may know besides the document.
pub struct Made {
    /// The cell.
    pub cell: Cell,
    /// Name of its process.
    pub comm: String,
    /// Its process; `None`: there are several.
    pub pid: Option<u32>,
    /// Its own account.
    pub reported: Told,
    /// Its progress.
    pub progress: u64,
    /// Other processes used the host.
    pub disturbed: bool,
    /// The program's group, and the CPU time of that group.
    pub sight: Sight,
    /// Names of the crowd.
    pub crowd: Vec<String>,
    /// Threads of the test that only waited for whyslow.
    pub innocents: Vec<u32>,
    /// Whether each accused process is in the test's groups; unknown for a process that is gone.
    pub ours: BTreeMap<u32, bool>,
}

impl Made {
    /// The subject of the accusation. A process that is gone is identified by its name.
    fn whom(&self, accusation: &Accusation<'_>) -> Whom {
        let Some(pid) = accusation.pid() else { return Whom::Stranger };
        if self.pid == Some(pid) {
            return Whom::Program;
        }
        let name = accusation.name();
        let is_ours =
            || name == "whyslow" || name == self.comm || self.crowd.iter().any(|crowd| crowd == name);
        match self.ours.get(&pid) {
            _ if self.innocents.contains(&pid) => Whom::Innocent,
            Some(true) => Whom::Innocent,
            Some(false) => Whom::Stranger,
            None if is_ours() => Whom::Innocent,
            None => Whom::Stranger,
        }
    }

    /// Why the fault did not come about, by its own clocks.
    fn is_not_made(&self) -> Option<String> {
        let (program, reported) = (self.cell.program, &self.reported);
        match program.spins() {
            false if self.progress == 0 => Some(format!("{program} made no progress in the window")),
            true if reported.share() < MUST || reported.spin_s < MUST_S => {
                Some(format!("it spun for {:.3} s of {:.3} s of CPU only", reported.spin_s, reported.cpu_s))
            }
            _ => None,
        }
    }

    fn beside(&self) -> Beside {
        match (self.disturbed, self.cell.crowded) {
            (true, _) => Beside::Others,
            (false, true) => Beside::Crowd,
            (false, false) => Beside::Nobody,
        }
    }
}

/// The row of the table, with its error; `None` where the cell was not made.
pub fn judge(made: &Made, look: &Look) -> (rounds::Verdict, Option<Row>) {
    let could_look = look
        .is_sound(report_checks::Verb::Exam)
        .and_then(|()| report_checks::could_tell(&look.document, &["spin"]))
        .and_then(|()| Ok(made.sight.is_in(&look.document)?));
    let all = accusations(&look.document);
    let about = |who: Whom| all.iter().find(|each| made.whom(each) == who);
    let (innocent, program) = (about(Whom::Innocent), about(Whom::Program));
    let (verdict, wrong) = match (made.cell.program.spins(), program, innocent) {
        (_, _, Some(innocent)) => {
            (Verdict::False, Some(Wrong::accused(format!("{} is accused", innocent.name()))))
        }
        (false, Some(_), None) => (Verdict::False, Some(Wrong::accused("it is accused"))),
        _ if could_look.is_err() => (Verdict::Missed, could_look.err()),
        _ if made.is_not_made().is_some() => {
            return (rounds::Verdict::Again(made.is_not_made().unwrap_or_default()), None);
        }
        (false, None, None) => (Verdict::Quiet, None),
        (true, None, None) => {
            (Verdict::Missed, Some(Wrong::missed(why_not(&look.document).unwrap_or("nothing is said"))))
        }
        (true, Some(said), None) => (Verdict::Found, is_true(said, made).err()),
    };
    let sort: Option<Sort> = wrong.as_ref().map(|wrong| wrong.sort);
    let row = row(made, look, program, verdict, wrong.map_or(String::new(), |wrong| wrong.what));
    let what = || format!("{row}; true: {:?}; all that was said: {}", made.reported, look.kept.display());
    let verdict = match sort {
        None => rounds::Verdict::Passed,
        Some(sort) => rounds::Verdict::Wrong(Wrong { sort, what: what() }),
    };
    (verdict, Some(row))
}

fn row(made: &Made, look: &Look, program: Option<&Accusation<'_>>, verdict: Verdict, wrong: String) -> Row {
    let reported = &made.reported;
    let is_named = |said: &Accusation<'_>, name: &str| name == made.comm || said.says(name);
    let named = |said| reported.spinning.iter().filter(|name| is_named(said, name)).count();
    let share = |cpu_s: [f64; 3]| cpu_s.map(|s| s / reported.cpu_s.max(1e-9));
    Row {
        cell: made.cell,
        disturbed: made.disturbed,
        verdict,
        reported: program.and_then(Accusation::cpu_s).map(share),
        truth: reported.share(),
        cpu_s: reported.cpu_s,
        function: program.map_or("-", Accusation::function).to_owned(),
        named: [program.map_or(0, named), reported.spinning.len()],
        own: look.own_cpu(),
        wrong,
    }
}

/// Whether a finding about a spinner is true. Otherwise: why not.
fn is_true(said: &Accusation<'_>, made: &Made) -> Result<(), Wrong> {
    let (reported, comm, beside) = (&made.reported, &made.comm, made.beside());
    let is_idle = |name: &&String| *name != comm && said.says(name);
    if let Some(name) = reported.others.iter().find(is_idle) {
        return Err(Wrong::accused(format!("{name} does not spin and is named")));
    }
    let mut wrong = Vec::new();
    // The name of an interpreter contains its program, too: "java Waiters".
    if said.name() != comm && said.name().split(' ').next() != Some(comm.as_str()) {
        wrong.push(format!("the process is called {comm}, not {}", said.name()));
    }
    let runtime = made.cell.program.runtime();
    if !runtime.is_empty() && !runtime.iter().any(|word| said.says(word) || said.function().contains(word)) {
        wrong.push(format!("none of {runtime:?} is said"));
    }
    // The main thread has the name of the process.
    wrong.extend(
        reported
            .spinning
            .iter()
            .filter(|name| *name != comm && !said.says(name))
            .map(|name| format!("{name} spins and is not named")),
    );
    match said.cpu_s() {
        None => wrong.push("it does not say how much CPU is reclaimable".to_owned()),
        // The cost of a VM that does not spin was measured at another time, when the other load was different.
        Some(_) if beside == Beside::Others && matches!(made.cell.program, Program::Erlang(_)) => {}
        Some(cpu_s) => wrong.extend(is_near(cpu_s, reported, beside).err()),
    }
    if wrong.is_empty() { Ok(()) } else { Err(Wrong::inexact(wrong.join("; "))) }
}

fn is_near(cpu_s: [f64; 3], reported: &Told, beside: Beside) -> Result<(), String> {
    let [share, low, high] = cpu_s.map(|s| s / reported.cpu_s.max(1e-9));
    let truth = reported.share();
    let near = share >= truth - EXACT && share <= reported.most() + EXACT;
    let edge = EDGE + LUCK * (high - low);
    let within = high - low <= WIDE + EDGE && low - edge <= reported.most() && truth <= high + edge;
    let holds = match beside {
        // The cost of a VM that does not spin is an estimate of this one's work: the reported interval must contain it.
        Beside::Nobody => near || reported.most_s > 0.0 && within,
        Beside::Crowd => within,
        Beside::Others => near || within,
    };
    if holds {
        return Ok(());
    }
    Err(format!(
        "a share of {share:.2}, between {low:.2} and {high:.2}, is reported, {truth:.2} to {:.2} is true",
        reported.most()
    ))
}

#[test]
fn alone_a_share_is_near_and_in_a_crowd_its_interval_contains_the_truth() {
    let reported = Told { spin_s: 1.2, cpu_s: 2.0, ..Told::default() };
    assert!(is_near([1.4, 1.4, 1.4], &reported, Beside::Nobody).is_ok());
    assert!(is_near([1.6, 1.0, 1.8], &reported, Beside::Nobody).is_err());
    assert!(is_near([1.5, 1.1, 1.9], &reported, Beside::Crowd).is_ok());
    assert!(is_near([0.7, 0.6, 1.3], &reported, Beside::Others).is_ok());
    assert!(is_near([1.2, 0.8, 1.9], &reported, Beside::Crowd).is_err(), "too wide");
    assert!(is_near([1.5, 1.4, 1.9], &reported, Beside::Crowd).is_err(), "beside it");
}

/// A VM whose twin gives its work, at least and at most.
#[test]
fn where_the_truth_is_an_interval_what_is_reported_meets_it() {
    let reported = Told { spin_s: 0.8, most_s: 1.0, cpu_s: 2.0, ..Told::default() };
    let alone = |cpu_s| is_near(cpu_s, &reported, Beside::Nobody).is_ok();
    assert!(alone([1.2, 1.2, 1.2]) && alone([0.6, 0.6, 0.6]), "within a seventh of the ends");
    assert!(alone([1.4, 0.9, 1.6]), "its interval holds what may be true");
    assert!(!alone([1.6, 1.3, 1.9]) && !alone([0.2, 0.0, 0.4]), "its interval is beside it");
    assert!(!alone([1.4, 0.9, 1.8]), "too wide");
    assert!(!alone([0.0, 0.0, 0.0]) && !alone([2.0, 2.0, 2.0]), "nothing, and all of it");
    let crowd = |cpu_s| is_near(cpu_s, &reported, Beside::Crowd).is_ok();
    assert!(crowd([1.2, 0.9, 1.6]) && !crowd([1.6, 1.3, 1.9]) && !crowd([0.5, 0.2, 0.5]));
}
