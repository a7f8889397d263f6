//! `run` and `attach` on the live host.

mod answers;
mod attach;
mod births;
mod launched;
mod many_births;
mod namespaces;
mod signals;
mod user;

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

fn whyslow(args: &[&str]) -> Command {
    let mut command = Command::new(whyslow_faults::program!());
    command.args(args);
    from_a_shell(command)
}

/// Run it with the signals and the environment of a plain interactive shell: the tests themselves may run in the background.
fn from_a_shell(mut command: Command) -> Command {
    command.stdin(Stdio::null());
    for variable in ["SUDO_UID", "SUDO_GID", "SUDO_USER", "DOAS_USER", "PKEXEC_UID", "NO_COLOR"] {
        command.env_remove(variable);
    }
    // SAFETY: signal is async-signal-safe and takes numbers.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    command
}

/// `whyslow run` with a shell's script.
fn run_script(options: &[&str], script: &str) -> Command {
    let mut args = vec!["run"];
    args.extend(options);
    args.extend(["--", "sh", "-c", script]);
    whyslow(&args)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it prints UTF-8")
}

fn status(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("it was killed: {}", text(&output.stderr)))
}

/// Start it with pipes, in a process group of its own, and wait for the line "up" on its stdout.
fn started(command: &mut Command) -> (Child, BufReader<std::process::ChildStdout>) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    (child, out)
}

fn last_line(output: &[u8]) -> Value {
    let page = text(output);
    let line = page.strip_suffix('\n').expect("the line is whole").rsplit('\n').next().unwrap();
    assert!(line.starts_with("{\"schema\""), "{line}");
    document(line)
}

/// The output must be one JSON document that is consistent.
fn document(line: &str) -> Value {
    let document = serde_json::from_str(line).expect("it is JSON");
    whyslow_faults::story::must_hold(&document);
    document
}

fn rest(mut from: impl Read) -> String {
    let mut all = String::new();
    from.read_to_string(&mut all).unwrap();
    all
}

#[test]
fn root_the_commands_status_is_passed_on() {
    for (script, want) in [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
        let output = run_script(&[], script).output().unwrap();
        assert_eq!(status(&output), want, "{script}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty() && text(&output.stderr).contains("whyslow 0."), "{script}");
    }
}

#[test]
fn root_command_that_cannot_run_gives_126_or_127_and_no_report() {
    for (command, want, words) in [
        ("/nope/nope", 127, "cannot find /nope/nope: No such file"),
        ("no-such-command-anywhere", 127, "cannot find no-such-command-anywhere: "),
        ("/etc/passwd", 126, "cannot run /etc/passwd: Permission denied"),
        ("/tmp", 126, "cannot run /tmp: Permission denied"),
    ] {
        let output = whyslow(&["run", "--json", "--", command]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(status(&output), want, "{command}: {said}");
        assert!(said.starts_with(&format!("whyslow: {words}")) && said.lines().count() == 1, "{said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn our_own_failure_is_125() {
    for args in [
        ["run", "--frobnicate", "true"].as_slice(),
        &["run"],
        &["run", "--slow", "soon", "--", "true"],
        &["run", "-o", "/nope/nope/x.why", "--", "true"],
        &["run", "--flame", "/", "--", "true"],
        &["run", "--user", "no-such-user-anywhere", "--", "true"],
    ] {
        let output = whyslow(args).output().unwrap();
        assert_eq!(status(&output), 125, "{args:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
    assert_eq!(status(&whyslow(&["run", "--help"]).output().unwrap()), 0);
}

#[test]
fn root_a_recording_that_cannot_be_saved_spoils_only_a_success() {
    for (script, want) in [("exit 0", 125), ("exit 4", 4)] {
        let output = run_script(&["-o", "/proc/nope.why"], script).output().unwrap();
        assert_eq!(status(&output), want);
        assert!(text(&output.stderr).contains("cannot save recording"), "{}", text(&output.stderr));
    }
}

#[test]
fn root_input_and_output_pass_byte_for_byte() {
    let bytes: Vec<u8> = (0..1u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut child = whyslow(&["run", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = child.stdin.take().unwrap();
    let given = bytes.clone();
    let writer = std::thread::spawn(move || to.write_all(&given).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(status(&output), 0, "{}", text(&output.stderr));
    assert!(output.stdout == bytes, "{} bytes came of {}", output.stdout.len(), bytes.len());
}

#[test]
fn root_json_is_one_line_after_all_that_the_command_said() {
    for said in ["", "with its end\n", "without"] {
        let output = run_script(&["--json"], &format!("printf '{said}'; echo aside >&2")).output().unwrap();
        assert_eq!(status(&output), 0);
        let page = text(&output.stdout);
        let ours = page.strip_prefix(said).expect("its output comes first");
        assert!(
            ours.starts_with("\n{\"schema\"") && ours.ends_with("}\n") && ours.lines().count() == 2,
            "{ours}"
        );
        assert_eq!(text(&output.stderr), "aside\n", "with --json there is no text");
        assert_eq!(last_line(&output.stdout)["schema"], 0);
    }
}

#[test]
fn root_process_left_running_by_the_command_is_not_waited_for() {
    let output = run_script(&["--json"], "sleep 300 >/dev/null 2>&1 </dev/null & echo $!").output().unwrap();
    let page = text(&output.stdout);
    let daemon: i32 = page.lines().next().unwrap().parse().unwrap();
    // SAFETY: the sleep is ours: it still has the pid that its shell printed, or the kill fails.
    assert_eq!(unsafe { libc::kill(daemon, libc::SIGKILL) }, 0, "it was still there");
    assert_eq!(status(&output), 0);
    assert!(last_line(&output.stdout)["window_s"].as_f64().unwrap() < 200.0);
}

#[test]
fn root_saved_and_reported_later_it_is_the_same_with_all_that_a_comparison_needs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.why");
    let options = ["--json", "--slow", "20ms", "-o", file.to_str().unwrap()];
    let live =
        run_script(&options, "i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done; exit 5").output().unwrap();
    assert_eq!(status(&live), 5, "{}", text(&live.stderr));
    let later = whyslow(&["report", "--json", file.to_str().unwrap()]).output().unwrap();
    let reported: Value = serde_json::from_slice(&later.stdout).unwrap();
    assert_eq!(reported, last_line(&live.stdout));

    let recording = whyslow::store::open(&file).unwrap();
    let watched = recording.meta.watched.expect("a task was watched");
    let command = watched.command.expect("it was a command");
    assert_eq!(command.argv[..2], ["sh", "-c"]);
    assert!(watched.subject.starts_with("sh -c i=0"), "{}", watched.subject);
    assert_eq!((watched.slow_ns, command.status, command.signal), (Some(20_000_000), Some(5), None));
    assert!(watched.pids.contains(&command.pid), "{:?}", watched.pids);
    assert!(recording.meta.own_bpf_ns.is_some(), "its own cost is known");
    assert!(command.pid > 0 && command.from_ns < command.to_ns);
    assert!(command.to_ns <= recording.meta.window_ns && command.user_ns + command.system_ns > 0);
}

/// A window of unknown length must not print progress, and must not cut the command short.
#[test]
fn root_nothing_is_said_while_it_runs() {
    let output = run_script(&[], "sleep 1.2; echo over >&2").output().unwrap();
    assert!(text(&output.stderr).starts_with("over\nwhyslow 0."), "{}", text(&output.stderr));
}
