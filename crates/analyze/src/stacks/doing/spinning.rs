//! Kernel code that burns CPU to wait for a lock holder, a CPU or a device: it waits, though the scheduler counts it as running.

use whyslow_model::wait::Spin;

/// What these functions spin for. kernel/smp.c, kernel/locking/*.c, arch/x86/lib/delay.c, arch/x86/mm/tlb.c.
const SPINS: &[(Spin, &[&str])] = &[
    (
        Spin::Cpus,
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
        Spin::LockOwner,
        &[
            "mutex_spin_on_owner",
            "mutex_optimistic_spin",
            "rwsem_spin_on_owner",
            "rwsem_optimistic_spin",
            "osq_lock",
        ],
    ),
    (Spin::RtmutexOwner, &["rtmutex_spin_on_owner"]),
    (
        Spin::Spinlock,
        &[
            "native_queued_spin_lock_slowpath",
            "queued_spin_lock_slowpath",
            "__pv_queued_spin_lock_slowpath",
            "pv_wait_head_or_lock",
            "resilient_queued_spin_lock_slowpath",
            "virt_spin_lock",
        ],
    ),
    (Spin::ReaderWriterSpinlock, &["queued_read_lock_slowpath", "queued_write_lock_slowpath"]),
    (
        Spin::Time,
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
    (Spin::StopMachine, &["multi_cpu_stop"]),
    (Spin::TextPatch, &["smp_text_poke_sync_each_cpu", "text_poke_sync_each_cpu"]),
    (Spin::InterruptHandler, &["synchronize_hardirq", "__synchronize_hardirq"]),
    (Spin::TimerFunction, &["hrtimer_cancel_wait_running", "__timer_delete_sync", "del_timer_sync"]),
    (Spin::BitLock, &["bit_spin_lock", "hlist_bl_lock"]),
    (Spin::SequenceWriter, &["__read_seqcount_begin", "read_seqbegin"]),
    (Spin::PolledDevice, &["blk_mq_poll", "bio_poll", "nvme_poll", "virtqueue_get_buf_spin"]),
];

/// The function must be innermost, or called at most this far out: functions that a lock's slow path calls belong to the slow path.
const INSIDE: usize = 3;

/// (the function that spins, what it spins for).
pub(super) fn of<'a>(frames: &[&'a str]) -> Option<(&'a str, Spin)> {
    let at = |frame: &'a str| {
        let (whom, _) = SPINS.iter().find(|(_, functions)| functions.contains(&frame))?;
        Some((frame, *whom))
    };
    frames.iter().take(INSIDE).find_map(|frame| at(frame))
}
