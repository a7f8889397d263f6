//! Tests: a host with and without debugging tools that were left on.

use whyslow_model::{FileSnapshot, Kind, Meta, Recording};

use super::*;

fn host(files: &[(&str, &str)], programs: Option<Vec<table::Program>>) -> Recording {
    let snapshot = |(name, text): &(&str, &str)| FileSnapshot {
        at: Duration::ZERO,
        name: (*name).into(),
        bytes: (*text).into(),
    };
    let meta = Meta { window_ns: 10_000_000_000, ..Default::default() };
    let mut rec = Recording { meta, snapshots: files.iter().map(snapshot).collect(), ..Default::default() };
    rec.tables.programs = programs;
    rec
}

fn titles(files: &[(&str, &str)], programs: Vec<table::Program>) -> Vec<String> {
    let found = check(&Evidence::of(&host(files, Some(programs)))).unwrap();
    assert!(found.iter().all(|f| f.kind == Kind::Risk && f.culprit.is_some()));
    found.into_iter().map(|f| f.title).collect()
}

fn program(run_ns: u64, counted_before: bool) -> table::Program {
    table::Program { id: 9, name: "slow".into(), kind: "tracing".into(), run_ns, runs: 1000, counted_before }
}

#[test]
fn fires_on_a_heavy_program_of_somebody_else() {
    let said = titles(&[], vec![program(200_000_000, false)]);
    assert_eq!(said, ["BPF program slow (tracing) used 2 % of a CPU: 200 ms in 1000 runs, 200000 ns each"]);
}

#[test]
fn fires_on_statistics_that_somebody_left_on_and_says_it_once() {
    let held = titles(&[], vec![program(1, true)]);
    assert!(held[0].starts_with("a process holds BPF run time statistics on"), "{held:?}");
    let set = titles(&[("proc/sys/kernel/bpf_stats_enabled", "1\n")], vec![program(1, true)]);
    assert_eq!(set, ["the kernel runs with BPF run time statistics on"]);
}

#[test]
fn fires_on_tracers_and_options() {
    let files = [
        ("proc/cmdline", "quiet slub_debug=FZ slub_debugger trace_event=sched -- kmemleak=on\n"),
        ("sys/kernel/tracing/current_tracer", "function\n"),
        ("sys/kernel/tracing/events/enable", "X\n"),
    ];
    let said = titles(&files, vec![]);
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(said[2].contains("slub_debug=FZ") && said[3].contains("trace_event=sched"), "{said:?}");
}

#[test]
fn undoing_puts_the_tracer_back() {
    let files = [("sys/kernel/tracing/current_tracer", "function\n")];
    let found = check(&Evidence::of(&host(&files, Some(vec![])))).unwrap();
    let undo = "(undo: echo function > /sys/kernel/tracing/current_tracer)";
    assert!(found[0].fixes[0].text.ends_with(undo), "{:?}", found[0].fixes);
}

#[test]
fn is_quiet_on_a_tidy_host() {
    let files = [
        ("proc/cmdline", "quiet mitigations=auto\n"),
        ("proc/sys/kernel/bpf_stats_enabled", "0\n"),
        ("sys/kernel/tracing/current_tracer", "nop\n"),
        ("sys/kernel/tracing/events/enable", "0\n"),
    ];
    assert_eq!(titles(&files, vec![program(50_000_000, false)]), Vec::<String>::new());
}

#[test]
fn says_so_when_it_cannot_tell() {
    let unknown = check(&Evidence::of(&host(&[], None))).unwrap_err();
    assert_eq!(unknown.to_string(), "BPF programs was not recorded");
}
