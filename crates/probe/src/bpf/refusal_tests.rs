use super::*;

fn log(program: &str, lines: &str) -> String {
    format!(
        "libbpf: prog '{program}': -- BEGIN PROG LOAD LOG --\n{lines}processed 22 insns (limit 1000000) max_states_per_insn 0 \
         total_states 2 peak_states 2 mark_read 1\n-- END PROG LOAD LOG --\n"
    )
}

fn reported(message: &str) -> Missing {
    Refusal::of(message).expect("a refusal").reported("interrupt time")
}

/// From Linux 6.1.
const BOUNDS: &str = "; cpu->count[vector]++;
22: (79) r1 = *(u64 *)(r6 +160)
invalid access to map value, value_size=248 off=280 size=8
R6 max value is outside of the allowed memory range
";

#[test]
fn a_refused_program_is_no_lack_of_privilege() {
    let why = reported(&log("softirq_ended", BOUNDS)).to_string();
    assert_eq!(
        why,
        "cannot read interrupt time: the kernel's verifier refused program softirq_ended: invalid access to map value, \
         value_size=248 off=280 size=8; R6 max value is outside of the allowed memory range"
    );
}

#[test]
fn helpers_and_instructions_that_came_later_are_reported_as_lacking() {
    // From Linux 5.10, which does not know the name.
    let helper = "arg#0 type is not a struct\nUnrecognized arg#0 type PTR\n; struct task_struct *current = \
                  bpf_get_current_task_btf();\n1: (85) call unknown#158\ninvalid func unknown#158\n";
    for lines in
        [helper, "1: (85) call bpf_get_current_task_btf#158\nunknown func bpf_get_current_task_btf#158\n"]
    {
        let why = reported(&log("born", lines)).to_string();
        assert!(why.contains("no BPF helper bpf_get_current_task_btf, for interrupt time"), "{why}");
        assert!(why.ends_with("needs Linux 5.11"), "{why}");
    }
    let why = reported(&log("ends", "BPF_STX uses reserved fields\n")).to_string();
    assert!(why.ends_with("needs Linux 5.12"), "{why}");
    let folio = "9: <invalid CO-RE relocation>\nfailed to resolve CO-RE relocation <byte_off> [39] struct folio.mapping (0:1 @ \
                 offset 8)\n";
    let why = reported(&log("added", folio)).to_string();
    assert_eq!(why, "this kernel has no folios (struct folio), for interrupt time; it needs Linux 5.16");
    let pointers = "Validating step() func#2...\nArg#0 type PTR in step() is not supported yet.\n";
    assert!(reported(&log("queued", pointers)).to_string().ends_with("needs Linux 5.13"));
}

#[test]
fn a_kernel_that_lends_no_helper_to_read_it_is_locked_down() {
    for lines in [
        // From Linux 6.1 with lockdown=confidentiality: libbpf thinks that it has the old helper only.
        "8: (85) call bpf_probe_read#4\nunknown func bpf_probe_read#4\n",
        "8: (85) call bpf_probe_read_str#45\nunknown func bpf_probe_read_str#45\n",
        "5: (85) call bpf_probe_read_kernel#113\nunknown func bpf_probe_read_kernel#113\n",
        "5: (85) call bpf_probe_read_kernel_str#115\nprogram of this type cannot use helper bpf_probe_read_kernel_str#115\n",
    ] {
        let why = reported(&log("walk", lines));
        assert!(matches!(why, Missing::NotAllowed { .. }), "{why}");
        assert!(why.to_string().contains("lockdown=confidentiality"), "{why}");
    }
}

#[test]
fn a_tracepoint_that_is_not_there_is_named() {
    let message = "libbpf: prog 'begins': failed to find kernel BTF type ID of 'contention_begin': -ESRCH\n";
    assert!(reported(message).to_string().contains("no tracepoint contention_begin"));
}

#[test]
fn nothing_else_is_a_refusal_and_no_log_makes_it_panic() {
    for text in
        ["", "'", "libbpf: failed to load object 'irq_bpf'\n", "libbpf: prog 'x': failed to load: -EACCES\n"]
    {
        assert_eq!(Refusal::of(text), None, "{text}");
    }
    let long = format!("{}\n", "ä\u{1b}[31m".repeat(400));
    for lines in ["", "\n", " R0_w=1\n", "1: \n", &long] {
        let why = reported(&log("x", lines)).to_string();
        assert!(why.len() < 400 && !why.contains('\u{1b}'), "{why}");
    }
}

#[test]
fn a_refusal_is_reported_once_and_to_its_own_thread() {
    note(PrintLevel::Warn, log("x", BOUNDS));
    assert_eq!(std::thread::spawn(heard).join().unwrap(), None);
    assert!(heard().is_some());
    assert_eq!(heard(), None);
}
