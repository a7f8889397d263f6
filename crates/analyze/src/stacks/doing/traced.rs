//! What BPF programs at tracepoints cost the task that runs through them.
//!
//! A tracepoint calls `__bpf_trace_NAME` (kernel/trace/bpf_trace.c), or, with BTF, the program's trampoline, which is reached from
//! `__traceiter_NAME`. The program itself is `bpf_prog_TAG_NAME` if the kernel lists its symbols (net.core.bpf_jit_kallsyms),
//! and has no name otherwise.

/// whyslow's programs at hooks that every task runs through, with their names in `whyslow-probe`.
const OURS: &[&str] = &[
    "switched",
    "waking",
    "born",
    "entered",
    "left",
    "executed",
    "ended",
    "begins",
    "ends",
    "queued",
    "issued",
    "completed",
    "starts",
    "idled",
    "expired",
    "asked",
    "answered",
    "added",
    "deleted",
    "polled",
    "made",
];

/// Functions that call programs at a tracepoint, and prefixes of the names of programs.
const HOOKS: [&str; 2] = ["__bpf_trace_", "bpf_trace_run"];
const PROGRAM: &str = "bpf_prog_";
/// Frames that one of whyslow's hooks has above the code that was traced.
const MOST: usize = 8;

/// Whether these frames, innermost first, are in a tracing program that is whyslow's, or whose name is not known.
pub(super) fn is_own(frames: &[&str]) -> bool {
    let near = || frames.iter().take(MOST);
    if !near().any(|frame| HOOKS.iter().any(|hook| frame.starts_with(hook))) {
        return false;
    }
    let mut programs = near().filter_map(|frame| frame.strip_prefix(PROGRAM));
    // TAG_NAME: the tag has no underscore.
    programs.all(|program| program.split_once('_').is_none_or(|(_, name)| OURS.contains(&name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_programs_are_ours_and_others_are_not() {
        let above = ["bpf_trace_run2", "__bpf_trace_sys_enter", "syscall_trace_enter", "do_syscall_64"];
        let with = |program| [&[program][..], &above[..]].concat();
        assert!(is_own(&with("bpf_prog_3b185187f1855c4c_entered")));
        assert!(is_own(&above)); // a program without a symbol
        assert!(!is_own(&with("bpf_prog_3b185187f1855c4c_falco_enter")));
        assert!(!is_own(&["do_read", "vfs_read", "ksys_read"]));
    }
}
