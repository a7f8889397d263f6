//! The program as people run it. Tests that look at the live host are in `exam.rs`.

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

const VERBS: [&str; 13] = [
    "exam",
    "run",
    "attach",
    "chains",
    "locks",
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
fn what_makes_no_sense_is_status_2_with_the_way_out() {
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

/// From the recording alone: no host is asked.
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
