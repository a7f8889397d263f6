use proptest::prelude::*;

use super::*;

fn sample(pid: u32, count: u64, kernel: &[&str], user: &[&str]) -> Sample {
    let owned = |frames: &[&str]| frames.iter().map(|f| (*f).to_owned()).collect();
    Sample { pid, count, kernel: owned(kernel), user: owned(user), ..Sample::default() }
}

fn did(kernel: &[&str], user: &[&str]) -> (&'static str, String) {
    let Doing(did) = doing(&sample(1, 1, kernel, user));
    let word = match did {
        Detail::UserCode { .. } => "user",
        Detail::Spinning { .. } => "spinning",
        _ => "kernel",
    };
    (word, did.to_string())
}

#[test]
fn user_code_is_reported_by_its_innermost_function_and_not_by_who_called_it() {
    assert_eq!(did(&[], &["main::work", "main"]), ("user", "user code (main::work)".to_owned()));
    assert_eq!(did(&[], &["[unknown]", "main::work", "main"]), ("user", "user code".to_owned()));
    let stripped = ["redis+0x1628f1 (build id 01ab)", "main"];
    assert_eq!(did(&[], &stripped), ("user", "user code (redis)".to_owned()));
    assert_eq!(did(&[], &["operator+0x"]), ("user", "user code (operator+0x)".to_owned()));
    assert_eq!(did(&[], &[]), ("user", "user code".to_owned()));
}

#[test]
fn kernel_code_is_reported_by_the_function_at_work_and_whom_it_works_for() {
    let walk = [
        "_raw_spin_unlock_irq",
        "css_rstat_flush",
        "memory_stat_show",
        "seq_read_iter",
        "vfs_read",
        "ksys_read",
        "do_syscall_64",
        "entry_SYSCALL_64_after_hwframe",
    ];
    assert_eq!(did(&walk, &[]), ("kernel", "css_rstat_flush in read (kernel)".to_owned()));
    let work = [
        "memset",
        "reparent_shrinker_deferred",
        "css_killed_work_fn",
        "process_one_work",
        "worker_thread",
        "kthread",
        "ret_from_fork",
    ];
    assert_eq!(
        did(&work, &[]),
        ("kernel", "reparent_shrinker_deferred in css_killed_work_fn (kernel)".to_owned())
    );
    assert_eq!(
        did(&["css_killed_work_fn+0x12/0x30", "process_one_work"], &[]).1,
        "css_killed_work_fn (kernel)"
    );
    assert_eq!(did(&["clear_page_erms"], &[]).1, "clear_page_erms (kernel)", "nothing better is known");
    assert_eq!(did(&["[unknown]"], &[]).1, "the kernel (no symbol)");
}

#[test]
fn spinning_in_the_kernel_is_no_work() {
    for (frames, want) in [
        (
            &["smp_call_function_many_cond", "on_each_cpu_cond_mask", "flush_tlb_mm_range"][..],
            "spinning for CPUs to answer (smp_call_function_many_cond)",
        ),
        (
            &["native_queued_spin_lock_slowpath", "_raw_spin_lock_irqsave", "foo"],
            "spinning for a spinlock (native_queued_spin_lock_slowpath)",
        ),
        (
            &["osq_lock", "__mutex_lock.constprop.0", "foo"],
            "spinning for the owner of a mutex or rwsem that runs (osq_lock)",
        ),
        (&["delay_tsc", "foo_wait", "__x64_sys_read"], "spinning for time to pass (delay_tsc)"),
    ] {
        assert_eq!(did(frames, &[]), ("spinning", want.to_owned()));
    }
    assert_eq!(did(&["vfs_read", "a", "b", "c", "osq_lock"], &[]).0, "kernel", "only innermost");
    assert_eq!(
        did(&["_raw_spin_lock", "d_lookup", "lookup_fast"], &[]).0,
        "kernel",
        "taking a free lock is no spinning"
    );
}

#[test]
fn the_largest_comes_first_and_other_threads_do_not_count() {
    let samples = [sample(7, 1, &["a"], &[]), sample(7, 3, &[], &["f"]), sample(8, 9, &["b"], &[])];
    let did = OnCpu::of(&samples).did(7);
    let reported: Vec<_> = did.iter().map(|(doing, part)| (doing.0.to_string(), *part)).collect();
    assert_eq!(reported, [("user code (f)".to_owned(), 0.75), ("a (kernel)".to_owned(), 0.25)]);
    assert_eq!(OnCpu::of(&samples).did(9), []);
    assert_eq!(OnCpu::of(&samples).did_below(8, "b").len(), 1);
    assert_eq!(OnCpu::of(&samples).did_below(8, "a").len(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parts_add_up_to_one(counts in prop::collection::vec((0..4u32, any::<u64>(), "[a-z_+. \\[\\]0-9]{0,20}"), 0..20)) {
        let samples: Vec<_> = counts.iter().map(|(pid, count, frame)| sample(*pid, *count, &[frame], &[frame])).collect();
        for pid in 0..4 {
            let did = OnCpu::of(&samples).did(pid);
            let sum: f64 = did.iter().map(|(_, part)| part).sum();
            let none = samples.iter().all(|row| row.pid != pid || row.count == 0);
            let right = if none { did.is_empty() } else { (sum - 1.0).abs() < 1e-9 };
            prop_assert!(right, "{did:?}");
        }
    }
}
