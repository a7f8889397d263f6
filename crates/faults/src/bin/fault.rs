//! Make one fault and print what its victim really lost, for checks by hand.
//!
//! `fault cpu-quota [fault|twin|control] [seconds]`; `WHYSLOW_SEED=n` repeats a run.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use whyslow_faults::scenario::TestBed;
use whyslow_faults::{Draw, FaultKind, Fence, Form, Scenario, clock, draw, thresholds};

whyslow_faults::may_become_victim!();

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match asked(&words) {
        None => {
            eprintln!("usage: fault RULE [fault|twin|control] [seconds, at most 40]; RULE is one of");
            FaultKind::ALL.iter().for_each(|kind| eprintln!("  {}", kind.rule()));
            ExitCode::from(2)
        }
        Some((kind, form, seconds)) => match show(kind, form, seconds) {
            Ok(()) => ExitCode::SUCCESS,
            Err(err) => {
                eprintln!("fault: {err}");
                ExitCode::FAILURE
            }
        },
    }
}

fn asked(words: &[String]) -> Option<(FaultKind, Form, Duration)> {
    let kind =
        FaultKind::ALL.into_iter().find(|kind| Some(kind.rule()) == words.first().map(String::as_str))?;
    let form = match words.get(1).map_or("fault", String::as_str) {
        "fault" => Form::Fault,
        "twin" => Form::Twin,
        "control" => Form::Control,
        _ => return None,
    };
    let seconds = words.get(2).map_or(Some(8), |text| text.parse().ok())?;
    Some((kind, form, Duration::from_secs(u64::min(seconds, 40))))
}

fn show(kind: FaultKind, form: Form, length: Duration) -> io::Result<()> {
    let mut draw = Draw::with(draw::run_seed()).branch(kind.rule());
    let mut out = io::stdout().lock();
    let fence = Fence::enter()?;
    let mut scenario = Scenario::set(&TestBed::alone(&fence), kind, form, &mut draw)?;
    writeln!(out, "{scenario}")?;
    writeln!(out, "cgroup {}, pids {:?}", scenario.group().path(), scenario.victim().tids())?;
    scenario.work_without(thresholds::WITHOUT);
    scenario.impose()?;
    std::thread::sleep(thresholds::SETTLE);
    writeln!(out, "on for {} s", length.as_secs())?;
    let before = scenario.counter()?;
    let window = clock::span_of(length);
    let after = scenario.counter()?;
    scenario.lift()?;
    scenario.work_without(thresholds::WITHOUT);
    writeln!(out, "{}; counter {before:?} -> {after:?}", scenario.truth(window))
}
