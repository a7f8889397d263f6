use whyslow_model::table::{Sample, Tables, Task, Wait};
use whyslow_model::{Kind, Meta, Recording};

use super::*;
use crate::evidence::fixture::Fixture;

const MS: u64 = 1_000_000;

fn frames(all: &[&str]) -> Vec<String> {
    all.iter().map(|frame| (*frame).to_owned()).collect()
}

/// Process 7 is busy all the time; for `ms` of 1 s its samples are below `function`.
fn host(function: &str, ms: u64) -> Recording {
    let row = Task { pid: 7, tgid: 7, ppid: 1, comm: "shop".into(), lived_ns: 1000 * MS, ..Task::default() };
    let sample = |kernel: &[&str], ms: u64| Sample {
        pid: 7,
        tgid: 7,
        comm: "shop".into(),
        ns: ms * MS,
        kernel: frames(kernel),
        ..Sample::default()
    };
    let deep = ["memcmp", function, "nf_hook_slow", "ip_local_deliver", "__netif_receive_skb_one_core"];
    let samples = vec![sample(&deep, ms), sample(&["tcp_sendmsg_locked", "sock_write_iter"], 1000 - ms)];
    let tables = Tables {
        tasks: Some(vec![Task { exec_ns: 1000 * MS, ..row }]),
        samples: Some(samples),
        waits: Some(Vec::new()),
        spans: Some(Vec::new()),
        ..Tables::default()
    };
    Recording {
        meta: Meta { window_ns: 1000 * MS, cpus: 2, ..Meta::default() },
        tables,
        ..Recording::default()
    }
}

/// ... and the CPUs had this many ticks of softirqs.
fn with_cpus(mut rec: Recording, softirq: u64) -> Recording {
    let stat = |softirq: u64| {
        format!("cpu  100 0 100 1000 0 0 {softirq} 0 0 0\ncpu0 100 0 100 1000 0 0 {softirq} 0 0 0\n")
    };
    rec.meta.clock_ticks = 100;
    Fixture(rec).start("proc/stat", &stat(0)).end("proc/stat", &stat(softirq)).0
}

fn found(rec: &Recording) -> Vec<Finding> {
    check(&Evidence::of(rec)).unwrap()
}

#[test]
fn fires_for_each_sort_of_work_and_says_what_and_how_long() {
    const SHOWN: [(&str, &str); 13] = [
        ("ipt_do_table", "rules of the packet filter (iptables)"),
        ("ip6t_do_table", "rules of the packet filter (ip6tables)"),
        ("nft_do_chain", "rules of the packet filter (nftables)"),
        ("ovl_copy_up_one", "copying files up into the overlay's upper layer"),
        ("__audit_syscall_exit", "auditing of system calls"),
        ("audit_filter_syscall", "auditing of system calls"),
        ("__seccomp_filter", "its seccomp filters"),
        ("seccomp_run_filters", "its seccomp filters"),
        ("__inet_hash_connect", "the search for a free local port"),
        ("copy_tree", "copying the table of mounts"),
        ("show_mountinfo", "reading the table of mounts"),
        ("dup_fd", "copying its table of open files for a child"),
        ("fib4_rule_match", "rules of policy routing"),
    ];
    for (function, what) in SHOWN {
        let found = found(&host(&format!("{function}.isra.0+0x12/0x40"), 600));
        assert_eq!((found.len(), found[0].kind), (1, Kind::Cause), "{function}: {found:?}");
        assert_eq!((found[0].victim.id.as_str(), found[0].lost), ("7", Some(Duration::from_millis(600))));
        assert_eq!(found[0].title, format!("{what} took 600 ms of its CPU time ({function})"));
    }
}

/// Packets that came meanwhile, an interrupt, a stop for a tracer, a signal that a filter sends.
#[test]
fn interrupt_stop_or_signal_inside_extra_work_is_not_counted() {
    for other in
        ["handle_softirqs", "asm_sysvec_apic_timer_interrupt", "ptrace_stop", "force_sig_info_to_task"]
    {
        let mut rec = host("__seccomp_filter", 600);
        rec.tables.samples.as_mut().unwrap()[0].kernel.insert(1, other.into());
        assert_eq!(found(&rec), Vec::new(), "{other}");
    }
}

#[test]
fn a_little_of_each_of_many_threads_is_a_little() {
    let mut rec = host("__seccomp_filter", 100);
    let (mut tasks, mut samples) = (Vec::new(), Vec::new());
    for pid in 7..60 {
        tasks.push(Task { pid, ..rec.tables.tasks.as_ref().unwrap()[0].clone() });
        samples.push(Sample { pid, ..rec.tables.samples.as_ref().unwrap()[0].clone() });
    }
    (rec.tables.tasks, rec.tables.samples) = (Some(tasks), Some(samples));
    assert_eq!(found(&rec), Vec::new());
}

#[test]
fn of_tasks_that_are_not_told_it_cannot_tell() {
    let mut rec = host("ovl_copy_up_one", 600);
    rec.tables.tasks.as_mut().unwrap()[0].pid = 8;
    assert!(check(&Evidence::of(&rec)).is_err());
}

#[test]
fn waits_inside_count_too_and_other_names_are_other_work() {
    let mut rec = host("ovl_copy_up_file", 300);
    rec.tables.tasks.as_mut().unwrap()[0].io_ns = 200 * MS;
    let wait = |function: &str| Wait {
        pid: 7,
        tgid: 7,
        comm: "shop".into(),
        state: "io".into(),
        ns: 200 * MS,
        kernel: frames(&["folio_wait_writeback", function, "do_fchownat"]),
        ..Wait::default()
    };
    rec.tables.waits = Some(vec![wait("ovl_copy_up_file"), wait("ext4_sync_file")]);
    let found = found(&rec);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].title.contains("took 300 ms of its CPU time and 200 ms of waits"), "{}", found[0].title);
    let mut rec = host("ipt_do_table", 0);
    rec.tables.waits = Some(vec![wait("audit_log_start"), wait("__audit_syscall_exit")]);
    assert_eq!(
        check(&Evidence::of(&rec)).unwrap(),
        Vec::new(),
        "they wait for the reader of the audit queue"
    );
}

#[test]
fn is_quiet_below_a_part_and_rules_out_only_hardly_any() {
    assert_eq!(found(&host("ipt_do_table", 140)), Vec::new());
    let quiet = |ms| with_cpus(host("ipt_do_table", ms), 0);
    assert_eq!(rules_out(&Evidence::of(&quiet(140))), Ok(None), "a little is not nothing");
    assert_eq!(found(&host("ipt_do_tables_of_others", 600)), Vec::new());
    let ruled_out = rules_out(&Evidence::of(&quiet(0))).unwrap();
    assert!(ruled_out.unwrap().evidence.ends_with("took 0 s"));
    let router = with_cpus(host("ipt_do_table", 0), 60);
    assert_eq!(rules_out(&Evidence::of(&router)), Ok(None), "idle CPUs have no samples");
}

/// The service waits for its next request: the time that the rules took may have been time to spare.
#[test]
fn of_one_that_sleeps_more_than_that_nothing_is_lost_for_sure() {
    let mut rec = host("nft_do_chain", 300);
    let task = &mut rec.tables.tasks.as_mut().unwrap()[0];
    (task.exec_ns, task.sleep_ns) = (650 * MS, 350 * MS);
    assert_eq!(found(&rec), Vec::new());
    let child = Wait {
        pid: 7,
        state: "sleep".into(),
        ns: 340 * MS,
        kernel: frames(&["schedule", "do_wait", "kernel_wait4", "__do_sys_wait4"]),
        ..Wait::default()
    };
    rec.tables.waits = Some(vec![child]);
    assert_eq!(found(&rec)[0].kind, Kind::Cause, "to wait for a child's end is no rest");
}

/// A client of a cache sends a request, waits for its answer and sends the next one. A service that waits for its next request looks the
/// same, except for its end of the connection.
#[test]
fn a_sleep_until_an_answer_is_no_rest_and_one_until_a_request_may_be() {
    use whyslow_model::timeline::{Context, Delivery, Ends, Span, State, Waker};
    let with = |serves: bool, sent_before_ns: u64, syscall: u32, (sleep_ms, each_us): (u64, u64)| {
        let mut rec = host("ipt_do_table", 600);
        let task = &mut rec.tables.tasks.as_mut().unwrap()[0];
        (task.exec_ns, task.sleep_ns) = ((1000 - sleep_ms) * MS, sleep_ms * MS);
        let ends =
            Ends { local: "10.0.0.1:5000".into(), peer: "10.0.0.2:6379".into(), serves, ..Ends::default() };
        let delivery =
            Delivery { ready: Some(ends), sent_before_ns: Some(sent_before_ns), ..Delivery::default() };
        let waker =
            Waker { context: Context::Softirq, delivery: Some(Box::new(delivery)), ..Waker::default() };
        let row = |at: u64| Span {
            pid: 7,
            tgid: 7,
            at_ns: at * MS,
            woken_ns: at * MS + each_us * 1000,
            sampled_wait_ns: sleep_ms * MS / 10,
            state: State::Sleep,
            waker: Some(waker.clone()),
            syscall: Some(syscall),
            ..Span::default()
        };
        rec.tables.spans = Some((0..10).map(|at| row(at * 100)).collect());
        found(&rec).len()
    };
    const RECVFROM: u32 = 45;
    const POLL: u32 = 7;
    let short = (200, 300);
    assert_eq!(with(false, MS, RECVFROM, short), 1);
    assert_eq!(with(true, MS, RECVFROM, short), 0, "a service that waits for its next request");
    assert_eq!(with(false, 300 * MS, RECVFROM, short), 0, "the client did something else since its request");
    assert_eq!(with(false, MS, POLL, short), 0, "whether an event loop waits for an answer is not known");
    assert_eq!(with(false, MS, RECVFROM, (200, 5_000)), 0, "a worker that waits for a job from a queue");
    assert_eq!(with(false, MS, RECVFROM, (400, 300)), 0, "the process may have had too little to do");
}

#[test]
fn without_samples_or_waits_it_cannot_tell() {
    let mut rec = host("ipt_do_table", 600);
    rec.tables.waits = None;
    assert!(check(&Evidence::of(&rec)).is_err() && rules_out(&Evidence::of(&rec)).is_err());
    let mut rec = host("ipt_do_table", 600);
    rec.tables.samples = None;
    assert!(check(&Evidence::of(&rec)).is_err());
}
