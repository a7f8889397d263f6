//! Sorts of work that the kernel does on top of a call, by the functions that stand for them.

use whyslow_model::command;
use whyslow_model::shell::Command;

use crate::stacks::symbol;

/// One sort of work.
pub(in crate::rules) struct Work {
    /// The work that takes the time.
    pub what: &'static str,
    /// A stack that is inside one of these functions does this work.
    pub functions: &'static [&'static str],
    /// Waits inside this work are for its own I/O. Other waits are for another task, which chains name: with a full audit queue the task
    /// waits for the reader of that queue.
    pub does_io: bool,
    /// Checks of what makes this work larger, for a process.
    pub checks: fn(u32) -> Vec<(&'static str, Command)>,
    pub advice: &'static str,
}

const MOUNTS: &str = "the number of mounts";
/// Packets of a container go through the rules of its network namespace, and of the host's.
const OF_HOST: &str = "the rules of the host";
const SHORTEN: &str = "accept packets of known connections before all other rules, and match lists of addresses with one set \
                       instead of one rule for each address (undo: the old rules)";

#[rustfmt::skip] // rows of a table
pub(in crate::rules) const WORKS: &[Work] = &[
    Work {
        what: "rules of the packet filter (iptables)",
        functions: &["ipt_do_table"],
        does_io: false,
        checks: |pid| vec![
            ("its rules, with how many packets each has met", command!("nsenter -n -t {} iptables-legacy-save -c", pid)),
            (OF_HOST, "iptables-legacy-save -c".into()),
        ],
        advice: SHORTEN,
    },
    Work {
        what: "rules of the packet filter (ip6tables)",
        functions: &["ip6t_do_table"],
        does_io: false,
        checks: |pid| vec![
            ("its rules, with how many packets each has met", command!("nsenter -n -t {} ip6tables-legacy-save -c", pid)),
            (OF_HOST, "ip6tables-legacy-save -c".into()),
        ],
        advice: SHORTEN,
    },
    Work {
        what: "rules of the packet filter (nftables)",
        functions: &["nft_do_chain"],
        does_io: false,
        checks: |pid| vec![
            ("its rules", command!("nsenter -n -t {} nft list ruleset", pid)),
            (OF_HOST, "nft list ruleset".into()),
        ],
        advice: SHORTEN,
    },
    Work {
        what: "copying files up into the overlay's upper layer",
        functions: &["ovl_copy_up_flags", "ovl_copy_up_one", "ovl_copy_up_file", "ovl_copy_up_data", "ovl_copy_up_meta_inode_data"],
        does_io: true,
        checks: |pid| vec![("its overlays and their layers", command!("cat /proc/{}/mountinfo", pid))],
        advice: "keep files that the program writes to on a volume, and give files the right owner in the image; metacopy=on copies no data for a changed owner",
    },
    Work {
        what: "auditing of system calls",
        // kernel/auditsc.c.
        functions: &[
            "__audit_syscall_entry", "__audit_syscall_exit", "audit_filter_syscall", "audit_filter_inodes", "audit_log_exit",
            "__audit_inode", "__audit_inode_child", "__audit_getname", "audit_reset_context",
        ],
        does_io: false,
        checks: |_| vec![("audit rules", "auditctl -l".into())],
        advice: "audit fewer calls, or exclude the busiest programs with a rule that never logs, before the other rules; it costs their records (undo: the old rules)",
    },
    Work {
        what: "its seccomp filters",
        functions: &["__seccomp_filter", "seccomp_run_filters"],
        does_io: false,
        checks: |pid| vec![("whether it has filters, and how many (from Linux 5.9 on)", command!("grep Seccomp /proc/{}/status", pid))],
        advice: "give it a shorter filter that first allows the calls which it makes most often; the filters of all its parents run, too",
    },
    Work {
        what: "the search for a free local port",
        // net/ipv4/inet_hashtables.c, net/ipv4/inet_connection_sock.c.
        functions: &["__inet_hash_connect", "__inet6_check_established", "__inet_check_established", "inet_csk_find_open_port"],
        does_io: false,
        checks: |pid| vec![("how many of its ports are in use", command!("nsenter -n -t {} ss -s", pid))],
        advice: "let it keep its connections and use them again, or widen net.ipv4.ip_local_port_range in its network namespace (undo: the old value)",
    },
    Work {
        what: "reading the table of mounts",
        // fs/proc_namespace.c.
        functions: &["show_mountinfo", "show_vfsmnt"],
        does_io: false,
        checks: |pid| vec![(MOUNTS, command!("grep -c ' - ' /proc/{}/mountinfo", pid))],
        advice: "unmount unused file systems; let it read the table only when it has changed (poll(2) reports that), or read one mount alone (statmount(2))",
    },
    Work {
        what: "copying the table of mounts",
        // fs/namespace.c, fs/pnode.c: a new mount namespace, a mount that is shared.
        functions: &["copy_tree", "propagate_mnt"],
        does_io: false,
        checks: |pid| vec![(MOUNTS, command!("grep -c ' - ' /proc/{}/mountinfo", pid))],
        advice: "unmount unused file systems, and keep the remaining mounts private (then new mounts do not propagate)",
    },
    Work {
        what: "copying its table of open files for a child",
        // fs/file.c: fork(2).
        functions: &["dup_fd"],
        does_io: false,
        checks: |pid| vec![("the number of open files that its table has room for", command!("grep FDSize /proc/{}/status", pid))],
        advice: "let it start programs with posix_spawn(3) or vfork(2) (CLONE_FILES), or through a small process that it starts before it opens so many files",
    },
    Work {
        what: "rules of policy routing",
        // net/core/fib_rules.c: the kernel tries one rule after the other, for each packet or connection.
        functions: &["fib_rules_lookup", "fib4_rule_match", "fib6_rule_match"],
        does_io: false,
        checks: |pid| vec![("its rules", command!("nsenter -n -t {} ip rule show", pid))],
        advice: "remove unused rules, put the rules that most packets match first, or use one rule with a mark (fwmark) for many addresses (undo: the old rules)",
    },
];

/// Functions that begin other work below such work: an interrupt, packets that arrived meanwhile, a lock, an action of a seccomp filter.
#[rustfmt::skip] // a list of words
const OTHERS: &[&str] = &[
    "handle_softirqs", "__do_softirq", "do_softirq", "common_interrupt", "sysvec_apic_timer_interrupt", "asm_common_interrupt",
    "asm_sysvec_apic_timer_interrupt", "asm_sysvec_call_function", "asm_sysvec_call_function_single", "asm_sysvec_reschedule_ipi",
    "mutex_lock", "__mutex_lock", "__mutex_lock_slowpath", "mutex_lock_interruptible", "__mutex_lock_interruptible_slowpath",
    "rwsem_down_read_slowpath", "rwsem_down_write_slowpath", "down_read", "down_write", "down_write_nested",
    "ptrace_event", "ptrace_stop", "ptrace_notify", "seccomp_do_user_notification", "force_sig_seccomp", "force_sig_info_to_task",
];

/// The work that a stack is inside of, and the function that shows it. Innermost frame first.
pub(in crate::rules) fn work_of(kernel: &[String]) -> Option<(&'static Work, &'static str)> {
    let told = |frame: &String| {
        let name = symbol(frame);
        let is_it = |work: &&'static Work| work.functions.contains(&name);
        let work = WORKS.iter().find(is_it)?;
        Some((work, *work.functions.iter().find(|function| **function == name)?))
    };
    kernel.iter().take_while(|frame| !OTHERS.contains(&symbol(frame))).find_map(told)
}
