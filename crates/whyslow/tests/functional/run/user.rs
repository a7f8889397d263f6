//! The user of the command.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;

use super::{last_line, run_script, status, text, whyslow};

const WHO: &str =
    "id -u; id -g; echo $HOME $USER $LOGNAME $SHELL; grep -c '^CapEff:.*[1-9a-f]' /proc/self/status";

/// Fields of a user's line in /etc/passwd.
fn account(name: &str) -> Vec<String> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = passwd.lines().find(|l| l.split(':').next() == Some(name)).expect("the user is there");
    line.split(':').map(str::to_owned).collect()
}

fn reported_by(name: &str) -> String {
    let a = account(name);
    format!("{}\n{}\n{} {name} {name} {}\n0\n", a[2], a[3], a[5], a[6])
}

#[test]
fn root_under_sudo_the_command_is_the_callers() {
    let nobody = account("nobody");
    let mut command = run_script(&[], WHO);
    command.env("SUDO_UID", &nobody[2]).env("SUDO_GID", &nobody[3]).env("SUDO_USER", "nobody");
    let output = command.current_dir("/").output().unwrap();
    assert_eq!(text(&output.stdout), reported_by("nobody"), "{}", text(&output.stderr));
    // Not a child of sudo: the user of such a shell may not expect it.
    assert!(
        text(&output.stderr).starts_with("whyslow: the command runs as nobody"),
        "{}",
        text(&output.stderr)
    );
    for (variable, value) in [("DOAS_USER", "nobody"), ("PKEXEC_UID", nobody[2].as_str())] {
        let output = run_script(&[], WHO).env(variable, value).current_dir("/").output().unwrap();
        assert_eq!(text(&output.stdout), reported_by("nobody"), "{variable}: {}", text(&output.stderr));
    }
}

#[test]
fn root_another_user_or_root_can_be_asked_for() {
    let output = run_script(&["--user", "nobody"], WHO).current_dir("/").output().unwrap();
    assert_eq!(text(&output.stdout), reported_by("nobody"), "{}", text(&output.stderr));
    let mut command = run_script(&["--as-root"], "id -u; echo $HOME");
    let output = command.env("SUDO_UID", "65534").env("HOME", "/odd").current_dir("/").output().unwrap();
    assert_eq!(text(&output.stdout), "0\n/odd\n", "{}", text(&output.stderr));
}

#[test]
fn root_command_that_its_user_may_not_execute_gives_126() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = program.to_str().unwrap();
    assert_eq!(status(&whyslow(&["run", "--user", "nobody", "--", program]).output().unwrap()), 126);
    assert_eq!(status(&whyslow(&["run", "--", program]).output().unwrap()), 0);
}

/// The command matters more than the report: it runs, and whyslow reports what the kernel shows to every user.
#[test]
fn root_may_drop_to_a_user_whose_command_still_runs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = folder.path().join("whyslow");
    std::fs::copy(whyslow_faults::program!(), &program).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let nobody: u32 = account("nobody")[2].parse().unwrap();
    let mut command = std::process::Command::new(&program);
    command.args(["run", "--json", "--", "sh", "-c", "sleep 0.3; exit 6"]).uid(nobody).gid(nobody);
    let output = command.current_dir("/").output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(status(&output), 6, "{said}");
    assert!(said.contains("not root") && said.contains("sudo whyslow run"), "{said}");
    let document = last_line(&output.stdout);
    let wall = &document["wall"];
    assert!(wall["wall_s"].as_f64().unwrap() >= 0.3, "{wall}");
    assert!(wall["unexplained_s"].as_f64().unwrap() >= 0.3, "what was not traced is not explained: {wall}");
    let mut command = std::process::Command::new(&program);
    let output = command.args(["run", "--user", "root", "true"]).uid(nobody).gid(nobody).output().unwrap();
    assert_eq!(status(&output), 125);
}
