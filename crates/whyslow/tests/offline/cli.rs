//! The program as users run it. Tests on the live host are in `exam.rs`.

use std::process::{Command, Output, Stdio};

fn whyslow(args: &[&str]) -> Output {
    Command::new(whyslow_faults::program!()).args(args).output().expect("the program can be started")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("it prints UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("it prints UTF-8")
}

const VERBS: [&str; 17] = [
    "exam",
    "run",
    "attach",
    "chains",
    "locks",
    "work",
    "blocked",
    "jobs",
    "net",
    "cpu",
    "record",
    "report",
    "rules",
    "explain",
    "doctor",
    "completions",
    "man",
];

#[test]
fn help_names_every_verb_gives_examples_and_explains_the_exit_status() {
    let output = whyslow(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = stdout(&output);
    for verb in VERBS {
        assert!(help.contains(&format!("\n  {verb} ")), "{verb} is not in the help");
    }
    for words in ["sudo whyslow ", "Exit status:", "--for", "--json", "--unit", "--cgroup", "--pid"] {
        assert!(help.contains(words), "{words} is not in the help");
    }
}

#[test]
fn every_verb_has_help_that_fits_a_terminal() {
    for verb in VERBS {
        let output = whyslow(&[verb, "--help"]);
        assert_eq!(output.status.code(), Some(0), "{verb}");
        assert!(stdout(&output).lines().all(|l| l.chars().count() <= 80), "{}", stdout(&output));
    }
}

#[test]
fn a_recording_that_is_not_there_is_status_2_and_said_once() {
    let output = whyslow(&["report", "/nope/host.why"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert_eq!(
        stderr(&output),
        "whyslow: cannot open recording /nope/host.why: No such file or directory (os error 2)\n"
    );
}

#[test]
fn invalid_arguments_are_status_2_with_a_message() {
    for args in [
        ["--for", "soon"].as_slice(),
        &["--pid", "none"],
        &["--pid", "1", "--unit", "x"],
        &["frobnicate"],
        &["record"],
        &["report"],
        &["record", "-o", "/nope/x.why"],
        &["-o", "/"],
        &["--pid", "4294967295"],
        &["--cgroup", "/sys/fs/cgroup/nope/nope"],
    ] {
        let output = whyslow(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn an_error_never_prints_a_name_raw() {
    let output = whyslow(&["report", "/nope/\u{1b}[2J\nforged"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        !stderr(&output).contains('\u{1b}') && stderr(&output).lines().count() == 1,
        "{:?}",
        stderr(&output)
    );
}

#[test]
fn every_listed_rule_can_be_explained() {
    let listed = stdout(&whyslow(&["rules"]));
    let ids: Vec<_> = whyslow_analyze::rules::ALL.iter().map(|rule| rule.id).collect();
    assert!(!ids.is_empty());
    for id in ids {
        assert!(listed.contains(id), "{id} is not listed");
        let output = whyslow(&["explain", id]);
        assert_eq!(output.status.code(), Some(0));
        for label in ["what ", "how ", "limits ", "sources ", "says "] {
            assert!(stdout(&output).contains(&format!("\n{label}")), "{}", stdout(&output));
        }
    }
}

#[test]
fn an_unknown_rule_is_status_2_and_names_the_nearest() {
    let output = whyslow(&["explain", "quota"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("did you mean cpu-quota?"), "{}", stderr(&output));
    assert!(stderr(&whyslow(&["explain", "zzz"])).ends_with("no such rule; `whyslow rules` lists them\n"));
}

#[test]
fn completions_are_made_for_the_common_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let output = whyslow(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains("explain") && stdout(&output).contains("doctor"), "{shell}");
    }
    assert_eq!(whyslow(&["completions", "tea"]).status.code(), Some(2));
}

#[test]
fn the_man_page_is_roff_with_every_verb_and_the_exit_status() {
    let page = stdout(&whyslow(&["man"]));
    assert!(page.contains(".TH whyslow 1"), "{page}");
    for verb in VERBS {
        assert!(page.contains(&format!("whyslow {verb}")), "{verb} is not in the man page");
    }
    assert!(page.contains("EXIT STATUS") && page.contains("EXAMPLES"));
}

#[test]
fn a_reader_who_goes_away_is_no_panic() {
    let mut child = Command::new(whyslow_faults::program!())
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn a_full_disk_under_stdout_is_status_2() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(whyslow_faults::program!()).arg("rules").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("whyslow: cannot write to standard output: "));
}

#[test]
fn the_binary_needs_no_shared_library() {
    const PT_INTERP: u8 = 3;
    let bytes = std::fs::read(whyslow_faults::program!()).unwrap();
    // ELF64: 64 bytes of header, the number of 56-byte program headers at offset 56.
    let mut headers = bytes[64..64 + 56 * usize::from(bytes[56])].chunks(56);
    assert!(headers.all(|header| header[0] != PT_INTERP), "it asks for a dynamic linker");
}

/// From the recording alone: the host is not read.
#[test]
fn a_selector_works_on_a_recording_and_lists_who_there_is() {
    let host = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/kubernetes-v2/host");
    let found = whyslow(&["report", host, "--pod", "shop/web-0"]);
    assert_eq!(found.status.code(), Some(1), "{}", stderr(&found));
    assert!(stdout(&found).replace('\n', " ").contains("pod shop/web-0 ("), "{}", stdout(&found));
    let nobody = whyslow(&["report", host, "--pod", "web-7"]);
    assert_eq!(nobody.status.code(), Some(2));
    let said = stderr(&nobody);
    assert!(said.starts_with("whyslow: cannot find pod web-7 in the window; there are "), "{said}");
    assert!(said.trim_end().ends_with(" more") && said.matches(", ").count() == 9, "{said}");
    let several = whyslow(&["report", host, "--pod", "web-0", "--user", "alice"]);
    assert_eq!(several.status.code(), Some(2), "one subject at a time");
}

#[test]
fn a_recording_is_read_from_standard_input_and_printed_as_wide_as_columns_says() {
    let file = "tests/replay/control-idle-6.12.why";
    let piped = |columns: &str| {
        let input = std::fs::File::open(file).expect("the recording is here");
        let mut report = Command::new(whyslow_faults::program!());
        report.args(["report", "-"]).env("COLUMNS", columns).stdin(input);
        report.output().expect("the program can be started")
    };
    let named = Command::new(whyslow_faults::program!()).args(["report", file]).env("COLUMNS", "80").output();
    assert_eq!(stdout(&piped("80")), stdout(&named.expect("the program can be started")));
    let widest = |page: String| page.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    assert!(widest(stdout(&piped("120"))) > 80, "{}", stdout(&piped("120")));
    let torn = Command::new(whyslow_faults::program!()).args(["report", "-"]).stdin(Stdio::null()).output();
    let torn = torn.expect("the program can be started");
    assert_eq!(
        (torn.status.code(), stderr(&torn).as_str()),
        (
            Some(2),
            "whyslow: cannot open recording -: it is empty; whyslow record writes a tar compressed with zstd\n"
        )
    );
}

#[test]
fn rules_are_told_to_programs_too() {
    let listed: serde_json::Value = serde_json::from_str(&stdout(&whyslow(&["rules", "--json"]))).unwrap();
    let ids = listed.as_array().unwrap().iter().map(|rule| rule["id"].as_str().unwrap());
    let page = stdout(&whyslow(&["rules"]));
    assert!(ids.clone().count() > 30 && ids.clone().all(|id| page.contains(id)), "{listed}");
    assert!(listed[0]["question"].as_str().is_some_and(|asked| asked.ends_with('?')), "{}", listed[0]);
}

/// On hosts with whole hierarchies.
#[test]
fn a_cgroup_that_is_not_here_is_said_before_the_window() {
    let is_there = |file: &str| std::path::Path::new("/sys/fs/cgroup").join(file).exists();
    if is_there("cpu/release_agent") || is_there("cgroup.controllers") && !is_there("cgroup.events") {
        let output = whyslow(&["--cgroup", "/nosuch", "--for", "1s"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("cannot find cgroup /nosuch;"), "{}", stderr(&output));
    }
}
