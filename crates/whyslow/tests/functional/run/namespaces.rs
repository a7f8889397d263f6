//! `run` and `attach` in a pid namespace, where process ids differ from the kernel's own.

use std::process::Command;

use serde_json::Value;
use whyslow_faults::Draw;

use super::{from_a_shell, last_line, status, text};

/// unshare(1) with these options, then a script in which `$WHYSLOW` is the program.
fn within(options: &[&str], script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]).args(options).args(["sh", "-c", script]);
    command.env("WHYSLOW", whyslow_faults::program!());
    from_a_shell(command)
}

fn seconds(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Seconds of an account, or of a part of it, whose leaf is a timer.
fn in_timers(part: &Value) -> f64 {
    match part["parts"].as_array().filter(|parts| !parts.is_empty()) {
        Some(parts) => parts.iter().map(in_timers).sum(),
        None if part["reason"] == "timer" => seconds(&part["time_s"]),
        None => 0.0,
    }
}

#[test]
fn root_run_in_a_pid_namespace_sees_its_command_under_the_number_that_it_knows() {
    let mut draw = Draw::of_run("run in a pid namespace", 0);
    // So many processes start before, so its pid is drawn.
    let before = draw.between(0, 40);
    let sleeps = draw.between(300, 700);
    let script = format!(
        "i=0; while [ $i -lt {before} ]; do /bin/true; i=$((i+1)); done
         exec $WHYSLOW run --json -- sh -c 'echo pid $$; sleep 0.{sleeps}'"
    );
    let output = within(&["--mount-proc"], &script).output().unwrap();
    assert_eq!(status(&output), 0, "seed {}: {}", draw.seed(), text(&output.stderr));
    let reported = last_line(&output.stdout);
    let page = text(&output.stdout);
    let pid: u64 = page.lines().next().unwrap().strip_prefix("pid ").unwrap().parse().unwrap();
    assert!(pid < 100 + before, "it is a number of the namespace");
    let chain = reported["wall"]["parts"].to_string();
    let explained = 1.0 - seconds(&reported["wall"]["unexplained_s"]) / seconds(&reported["wall"]["wall_s"]);
    assert!(explained > 0.9, "seed {}: {explained} of {chain}", draw.seed());
    let slept = f64::from(u32::try_from(sleeps).unwrap()) / 1000.0;
    assert!(in_timers(&reported["wall"]) > 0.9 * slept, "seed {}: {slept} s in {chain}", draw.seed());
}

#[test]
fn root_attach_in_a_pid_namespace_follows_no_stranger_with_that_number() {
    let mut draw = Draw::of_run("attach in a pid namespace", 0);
    // The host has a task with each small number: kthreadd is 2.
    let before = draw.between(0, 12);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ns.why");
    let script = format!(
        "i=0; while [ $i -lt {before} ]; do /bin/true; i=$((i+1)); done
         sh -c 'while :; do :; done' & victim=$!
         $WHYSLOW attach $victim --for 700ms --json -o {} ; echo $victim; kill $victim",
        file.display()
    );
    let output = within(&["--mount-proc"], &script).output().unwrap();
    let page = text(&output.stdout);
    let victim: u32 = page.lines().last().unwrap().parse().unwrap_or_else(|_| panic!("{page}"));
    let recording = whyslow::store::open(&file).unwrap();
    let watched = recording.meta.watched.clone().expect("a task was watched");
    assert_eq!((watched.subject, watched.pids), (victim.to_string(), vec![victim]), "seed {}", draw.seed());
    let spans = recording.tables.spans.as_deref().unwrap_or_default();
    let own: Vec<_> = spans.iter().filter(|span| span.pid == victim).collect();
    assert!(own.iter().all(|span| span.comm == "sh") && !own.is_empty(), "seed {}: {own:?}", draw.seed());
    let reported: u64 = own.iter().map(|span| span.to_ns.saturating_sub(span.from_ns)).sum();
    assert!(reported * 10 > recording.meta.window_ns * 9, "{reported} of {}", recording.meta.window_ns);
    let ours = recording.meta.own_pids[0];
    let tasks = recording.tables.tasks.as_deref().unwrap_or_default();
    assert!(tasks.iter().any(|task| task.pid == ours && task.comm == "whyslow"), "{ours} is our own");
    assert!(recording.missing.iter().any(|note| note.text.contains("outside this pid namespace")));
}

#[test]
fn root_where_proc_is_anothers_nobody_is_followed_and_the_way_out_is_reported() {
    for (command, want) in [("$WHYSLOW run -- true", 125), ("$WHYSLOW attach 1 --for 300ms", 2)] {
        let output = within(&[], command).output().unwrap();
        assert_eq!(status(&output), want, "{command}: {}", text(&output.stderr));
        let said = text(&output.stderr);
        assert!(said.contains("another pid namespace") && said.contains("--mount-proc"), "{said}");
        assert!(output.stdout.is_empty());
    }
}
