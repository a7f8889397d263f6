//! Debugging tools were left on after someone debugged this host.
//!
//! Signal: run time of BPF programs that are not ours; BPF statistics, function tracers and trace events that are on
//! without us; debug options of the kernel's command line; lock debugging in sysctl.
//! Lost: not measured, because the cost is spread over all tasks. This is a risk.

use std::time::Duration;

use whyslow_model::{Culprit, Finding, Missing, Share, Subject, SubjectKind, command, seconds, table};

use super::Rule;
use crate::Evidence;

pub const RULE: Rule = Rule {
    id: "leftover-debugging",
    question: "Are tracing or debugging tools left on?",
    what: "Tracers, heavy BPF programs and debug options of the kernel make every system call, context switch or allocation slower, \
           long after the debugging ended.",
    how: "A BPF program that is not ours and used more than 1 % of one CPU; BPF run time statistics, a tracer or trace events that are on \
          without us; known debug options in /proc/cmdline and /proc/sys/kernel. No time lost is computed.",
    limits: "Tracing through perf events of a running process: not seen. Run times of BPF programs: extrapolated from a part of the \
             window. The cost: not measured, so there are risks only.",
    sources: "Documentation/trace/ftrace.rst, Documentation/admin-guide/kernel-parameters.txt, kernel/bpf/syscall.c",
    can_be_cause: false,
    check,
    rules_out: None,
    folds: None,
    shows: super::NOTHING,
};

/// More than this is noticeable. Well-made programs that are always on stay far below it.
const HEAVY: Share = Share::percent(1);

/// Options of the command line that make the kernel check itself, and the operations that they make slower.
const OPTIONS: &[(&str, &str)] = &[
    ("slub_debug", "every allocation"),
    ("slab_debug", "every allocation"),
    ("page_owner=on", "every page allocation"),
    ("page_poison=1", "every free of a page"),
    ("debug_pagealloc=on", "every page allocation"),
    ("kmemleak=on", "every allocation"),
    ("kasan=on", "every memory access"),
    ("debug_objects", "every timer and work item"),
    ("ftrace=function", "every kernel function"),
    ("trace_event=", "every traced event"),
];

/// Files that contain "1" when debugging is on, the name of the tool, and the command that turns it off.
const SWITCHES: &[(&str, &str, &str)] = &[
    ("kernel/prove_locking", "the lock validator (lockdep)", "sysctl -w kernel.prove_locking=0"),
    ("kernel/lock_stat", "lock statistics", "sysctl -w kernel.lock_stat=0"),
    ("kernel/stack_tracer_enabled", "the stack tracer", "sysctl -w kernel.stack_tracer_enabled=0"),
    ("kernel/bpf_stats_enabled", "BPF run time statistics", "sysctl -w kernel.bpf_stats_enabled=0"),
];

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let programs = ev.programs();
    let cmdline = ev.line("proc/cmdline");
    let mut found: Vec<Finding> =
        programs.iter().flat_map(|all| all.iter()).filter_map(|p| heavy(ev, p)).collect();
    found.extend(switches(ev, programs.as_deref().unwrap_or_default()));
    found.extend(tracer(ev));
    found.extend(cmdline.iter().flat_map(|line| options(line)));
    match (programs, cmdline) {
        (Err(missing), Err(_)) if found.is_empty() => Err(missing),
        _ => Ok(found),
    }
}

fn risk(name: &str, title: String) -> Finding {
    Finding::risk(RULE.id, Subject::host()).titled(title).by(Culprit::new(SubjectKind::Kernel, name, name))
}

fn heavy(ev: &Evidence<'_>, p: &table::Program) -> Option<Finding> {
    let share = Share::of(p.run_ns as f64, ev.window().as_nanos() as f64);
    let ran = seconds(Duration::from_nanos(p.run_ns));
    let each = p.run_ns.checked_div(p.runs).unwrap_or(0);
    let title = format!(
        "BPF program {} ({}) used {share} of a CPU: {ran} in {} runs, {each} ns each",
        p.name, p.kind, p.runs
    );
    (share > HEAVY).then(|| {
        risk(&format!("bpf program {}", p.id), title)
            .check("the processes that hold it", command!("bpftool prog show id {}", p.id))
            .advice("ask its owner to detach it or to make it cheaper; it ends when its last link is closed")
    })
}

fn switches(ev: &Evidence<'_>, programs: &[table::Program]) -> Vec<Finding> {
    let on =
        |(file, ..): &&(&str, &str, &str)| ev.line(&format!("proc/sys/{file}")).is_ok_and(|text| text == "1");
    let mut found: Vec<Finding> = SWITCHES
        .iter()
        .filter(on)
        .map(|(file, what, off)| {
            risk(what, format!("the kernel runs with {what} on"))
                .check("1 is on", command!("cat /proc/sys/{}", file))
                .fix("turn it off; undo: the same with 1", *off)
        })
        .collect();
    let reported = ev.line("proc/sys/kernel/bpf_stats_enabled").is_ok_and(|text| text == "1");
    if !reported && programs.iter().any(|p| p.counted_before) {
        let title =
            "a process holds BPF run time statistics on: every BPF program reads the clock twice a run";
        let find = "find /proc/[0-9]*/fd -lname 'anon_inode:bpf-stats' 2>/dev/null";
        found.push(
            risk("BPF run time statistics", title.to_owned()).check("the process that holds them", find),
        );
    }
    found
}

fn tracer(ev: &Evidence<'_>) -> Vec<Finding> {
    let dir = "sys/kernel/tracing";
    let mut found = Vec::new();
    if let Some(tracer) =
        ev.line(&format!("{dir}/current_tracer")).ok().filter(|t| t != "nop" && !t.is_empty())
    {
        found.push(
            risk(&tracer, format!("the tracer {tracer:?} is on"))
                .check("nop is off", command!("cat /{}/current_tracer", dir))
                .fix(
                    format!(
                        "turn it off (undo: {})",
                        &*command!("echo {} > /{}/current_tracer", tracer, dir)
                    ),
                    command!("echo nop > /{}/current_tracer", dir),
                ),
        );
    }
    // "X": some are on, some are off.
    if ev.line(&format!("{dir}/events/enable")).is_ok_and(|text| text == "1" || text == "X") {
        found.push(
            risk("trace events", "trace events are on".to_owned())
                .check("the events that are on", command!("cat /{}/set_event", dir))
                .fix(
                    "turn all off; note set_event first, to undo it",
                    command!("echo 0 > /{}/events/enable", dir),
                ),
        );
    }
    found
}

fn options(cmdline: &str) -> Vec<Finding> {
    // Words after "--" are for init.
    let words = cmdline.split_ascii_whitespace().take_while(|word| *word != "--");
    let known = words.filter_map(|word| {
        let on = |(name, _): &&(&str, &str)| {
            word.strip_prefix(name)
                .is_some_and(|rest| name.ends_with('=') || rest.is_empty() || rest.starts_with(['=', ',']))
        };
        OPTIONS.iter().find(on).map(|(_, taxes)| (word, *taxes))
    });
    let found = known.map(|(word, taxes)| {
        risk(word, format!("the kernel was started with {word:?}, which makes {taxes} slower"))
            .check("the option", "cat /proc/cmdline")
            .advice("take it out of the boot loader's configuration, so that the next planned reboot ends it (undo: put it back)")
    });
    found.collect()
}

#[cfg(test)]
#[path = "leftover_debugging_tests.rs"]
mod tests;
