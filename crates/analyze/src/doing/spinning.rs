//! Kernel code that burns CPU to wait for somebody: waiting, though the scheduler calls it running.

/// Whom those wait for that have asked other CPUs.
pub(super) const CPUS: &str = "CPUs to answer";

/// For whom these functions spin. kernel/smp.c, kernel/locking/*.c, arch/x86/lib/delay.c, arch/x86/mm/tlb.c.
const SPINS: &[(&str, &[&str])] = &[
    (
        CPUS,
        &[
            "csd_lock_wait",
            "__csd_lock_wait",
            "smp_call_function_many_cond",
            "smp_call_function_single",
            "smp_call_function_any",
            "smp_call_function_many",
            "generic_exec_single",
        ],
    ),
    (
        "the owner of a mutex or rwsem that runs",
        &[
            "mutex_spin_on_owner",
            "mutex_optimistic_spin",
            "rwsem_spin_on_owner",
            "rwsem_optimistic_spin",
            "osq_lock",
        ],
    ),
    ("the owner of an rtmutex that runs", &["rtmutex_spin_on_owner"]),
    (
        "a spinlock",
        &[
            "native_queued_spin_lock_slowpath",
            "queued_spin_lock_slowpath",
            "__pv_queued_spin_lock_slowpath",
            "pv_wait_head_or_lock",
            "resilient_queued_spin_lock_slowpath",
            "virt_spin_lock",
        ],
    ),
    ("a reader-writer spinlock", &["queued_read_lock_slowpath", "queued_write_lock_slowpath"]),
    (
        "time to pass",
        &[
            "delay_tsc",
            "delay_halt",
            "delay_halt_tpause",
            "delay_halt_mwaitx",
            "delay_loop",
            "__delay",
            "__const_udelay",
            "__udelay",
        ],
    ),
    ("other CPUs to stop (stop_machine)", &["multi_cpu_stop"]),
    ("code to be patched on all CPUs", &["smp_text_poke_sync_each_cpu", "text_poke_sync_each_cpu"]),
    ("an interrupt handler to end", &["synchronize_hardirq", "__synchronize_hardirq"]),
    ("a timer's function to end", &["hrtimer_cancel_wait_running", "__timer_delete_sync", "del_timer_sync"]),
    ("a bit lock", &["bit_spin_lock", "hlist_bl_lock"]),
    ("a sequence count's writer", &["__read_seqcount_begin", "read_seqbegin"]),
    (
        "a device (polling for its completion)",
        &["blk_mq_poll", "bio_poll", "nvme_poll", "virtqueue_get_buf_spin"],
    ),
];

/// Only right at the innermost end, or below these: what a lock's slow path calls is the slow path.
const INSIDE: usize = 3;

/// (who spins, for whom).
pub(super) fn of<'a>(frames: &[&'a str]) -> Option<(&'a str, &'static str)> {
    let at = |frame: &'a str| {
        let (whom, _) = SPINS.iter().find(|(_, functions)| functions.contains(&frame))?;
        Some((frame, *whom))
    };
    frames.iter().take(INSIDE).find_map(|frame| at(frame))
}
