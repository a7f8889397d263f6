//! The lab itself, run to its end with a stand-in in place of whyslow.

use std::path::Path;
use std::process::{Command, Stdio};

use whyslow_faults::host;
use whyslow_faults::stand_in::{self, StandIn};

whyslow_faults::may_become_victim!();

#[test]
fn root_a_stand_in_is_found_right_in_no_run() {
    assert!(host::is_root(), "it needs root");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for (scenario, which, word) in [
        ("live-cpu-quota", StandIn::Silent, "missed"),
        ("control-idle", StandIn::Silent, "missed"),
        ("control-idle", StandIn::Accuser, "false"),
    ] {
        let script = stand_in::script(folder, which).unwrap();
        let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"));
        lab.args(["run", "--kernel", "host", "--scenario", scenario, "--whyslow"]).arg(script);
        let done = lab.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let is_wrong = said.lines().last().is_some_and(|sum| sum == format!("1 ran: 1 {word}"));
        // On a host with other load nothing can be concluded.
        let is_unmade = said.lines().last() == Some("1 ran: 1 failed") && said.contains("not made");
        assert!(is_wrong || is_unmade, "{which:?} in {scenario}: {said}");
        assert_eq!(done.status.code(), Some(1), "{which:?} in {scenario}: {said}");
    }
}
