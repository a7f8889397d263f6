//! Commands in a report must do what the report says of them. A check only reads; a fix and its undo command are complete; and on a real
//! host with a real fault each check is run and shows what the finding says (`root_...`).

mod fault;
mod given;
mod harmless;
mod here;
mod line;
#[path = "../hosts/overlay.rs"]
mod overlay;
mod shows;
mod stand;
mod written;

use std::process::Command;

use given::Given;
use harmless::{can_be_pasted, only_reads};

/// What a shell says of a line that it parses but does not run.
fn parsed(line: &str) -> Result<(), String> {
    let done = Command::new("bash").args(["-n", "-c", line]).output().map_err(|err| err.to_string())?;
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.success() && said.is_empty() { Ok(()) } else { Err(format!("{line}: {said}")) }
}

/// A requirement on a line.
type IsRight = fn(&str) -> Result<(), String>;

/// The lines that break one of these requirements.
fn wrong(all: &[Given], is_right: &[IsRight]) -> Vec<String> {
    let of = |given: &Given| {
        let why: Vec<String> = is_right.iter().filter_map(|is_right| is_right(&given.line).err()).collect();
        (!why.is_empty()).then(|| format!("{} ({}): {}", given.case, given.rule, why.join("; ")))
    };
    all.iter().filter_map(of).collect()
}

fn changes(line: &str) -> Result<(), String> {
    if only_reads(line).is_err() { Ok(()) } else { Err(format!("it changes nothing: {line}")) }
}

#[test]
fn every_check_is_a_line_of_a_shell_and_only_reads() {
    let (checks, _) = written::lines();
    let wrong = wrong(&checks, &[parsed, can_be_pasted, only_reads]);
    assert!(checks.len() > 50 && wrong.is_empty(), "of {}: {wrong:#?}", checks.len());
}

#[test]
fn every_fix_and_every_undo_is_a_line_of_a_shell_and_changes_something() {
    let (_, fixes) = written::lines();
    let wrong = wrong(&fixes, &[parsed, can_be_pasted, changes]);
    assert!(fixes.len() > 40 && wrong.is_empty(), "of {}: {wrong:#?}", fixes.len());
}

#[test]
fn a_shell_is_asked() {
    assert!(parsed("cat 'a").is_err() && parsed("for f in a; do").is_err() && parsed("cat a | head").is_ok());
}

macro_rules! faults {
    ($($name:ident => $kind:ident;)*) => {
        $(
        #[test]
        fn $name() {
            fault::run(whyslow_faults::FaultKind::$kind);
        }
    )*
    };
}

faults! {
    root_a_cpu_quota_is_shown_by_its_check => CpuQuota;
    root_a_mask_is_shown_by_its_check => CpuPinned;
    root_a_memory_limit_is_shown_by_its_check => MemoryLimit;
    root_a_limit_on_block_io_is_shown_by_its_check => BlkioThrottle;
    root_a_full_accept_queue_is_shown_by_its_check => ListenOverflow;
    root_swapping_is_shown_by_its_check => SwapIn;
}
