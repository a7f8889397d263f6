//! Whether what whyslow said of a program is true.

use whyslow_faults::Fence;
use whyslow_faults::spinners::{Program, Running, Told};

use crate::finding::Accusation;

/// Alone on a calm host, the share that is told may differ so much from the truth.
pub const EXACT: f64 = 0.15;
/// Beside others, the interval that is told may be so wide, and must contain the truth.
pub const WIDE: f64 = 0.40;
/// What samples cannot tell apart from the end of an interval.
const EDGE: f64 = 0.02;
/// A spinner must be found if it spun so much of its CPU time.
pub const MUST: f64 = 0.25;
/// And for so long in the window of 3 s: a twentieth of a CPU. Beside 20 others a thread gets about twice that.
pub const MUST_S: f64 = 0.15;

/// What came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A spinner, found.
    Found,
    /// A spinner, not found.
    Missed,
    /// Honest, and accused.
    False,
    /// Honest, and not accused.
    Quiet,
}

/// Who wanted the CPUs beside the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// Nobody.
    Nobody,
    /// The test's own crowd.
    Crowd,
    /// Others, of whom the test knows nothing.
    Others,
}

/// Whom an accusation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// The program.
    Program,
    /// Something else of the test's, or whyslow.
    Innocent,
    /// Somebody with whom the test has nothing to do.
    Stranger,
}

/// Whom it is about. A process that is gone is known by its name.
pub fn whom(accusation: &Accusation<'_>, running: &Running, fence: &Fence, names: &[&str]) -> Whom {
    let Some(pid) = accusation.pid() else { return Whom::Stranger };
    if running.pid() == Some(pid) {
        return Whom::Program;
    }
    let name = accusation.name();
    match std::fs::read_to_string(format!("/proc/{pid}/cgroup")) {
        Ok(groups) if groups.contains(fence.top().path()) => Whom::Innocent,
        Ok(_) => Whom::Stranger,
        Err(_) if name == "whyslow" || name == running.comm() || names.contains(&name) => Whom::Innocent,
        Err(_) => Whom::Stranger,
    }
}

/// What a finding says of a spinner is true. Else: why not.
pub fn is_true(said: &Accusation<'_>, told: &Told, running: &Running, beside: Beside) -> Result<(), String> {
    let mut wrong = Vec::new();
    if said.name() != running.comm() {
        wrong.push(format!("the process is called {}, not {}", running.comm(), said.name()));
    }
    let runtime = running.program().runtime();
    if !runtime.is_empty() && !runtime.iter().any(|word| said.says(word) || said.function().contains(word)) {
        wrong.push(format!("none of {runtime:?} is said"));
    }
    // The main thread's name is that of the process.
    wrong.extend(
        told.spinning
            .iter()
            .filter(|name| *name != running.comm() && !said.says(name))
            .map(|name| format!("{name} spins and is not named")),
    );
    wrong.extend(
        told.others
            .iter()
            .filter(|name| *name != running.comm() && said.says(name))
            .map(|name| format!("{name} does not spin and is named")),
    );
    match said.cpu_s() {
        None => wrong.push("it does not say how much CPU would come back".to_owned()),
        // What a VM costs that does not spin was measured at another time, when others did something else.
        Some(_) if beside == Beside::Others && matches!(running.program(), Program::Erlang(_)) => {}
        Some(cpu_s) => wrong.extend(is_near(cpu_s, told, beside).err()),
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

fn is_near(cpu_s: [f64; 3], told: &Told, beside: Beside) -> Result<(), String> {
    let [share, low, high] = cpu_s.map(|s| s / told.cpu_s.max(1e-9));
    let truth = told.share();
    let near = (share - truth).abs() <= EXACT;
    let within = high - low <= WIDE + EDGE && (low - EDGE..=high + EDGE).contains(&truth);
    let holds = match beside {
        Beside::Nobody => near,
        Beside::Crowd => within,
        Beside::Others => near || within,
    };
    if holds {
        return Ok(());
    }
    Err(format!("a share of {share:.2}, between {low:.2} and {high:.2}, is told, {truth:.2} is true"))
}

#[test]
fn alone_a_share_is_near_and_in_a_crowd_its_interval_contains_the_truth() {
    let told = Told { spin_s: 1.2, cpu_s: 2.0, ..Told::default() };
    assert!(is_near([1.4, 1.4, 1.4], &told, Beside::Nobody).is_ok());
    assert!(is_near([1.6, 1.0, 1.8], &told, Beside::Nobody).is_err());
    assert!(is_near([1.5, 1.1, 1.9], &told, Beside::Crowd).is_ok());
    assert!(is_near([0.7, 0.6, 1.3], &told, Beside::Others).is_ok());
    assert!(is_near([1.2, 0.8, 1.9], &told, Beside::Crowd).is_err(), "too wide");
    assert!(is_near([1.5, 1.4, 1.9], &told, Beside::Crowd).is_err(), "beside it");
}
