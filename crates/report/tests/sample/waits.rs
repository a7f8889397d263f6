//! What the wait graph may say: chains, a wall time account, locks, system calls.

use whyslow_model::chain::*;
use whyslow_model::job::{ChurnAccount, JobAccount, JobTimes, Phase, PhaseAccount};
use whyslow_model::ping::*;
use whyslow_model::stall::{StallAccount, StallCulprit, StallKind};
use whyslow_model::timeline::LockKind;
use whyslow_model::wait::*;
use whyslow_model::work::{GraceWaits, InnerWait, TimeRange, WorkAccount, WorkTimes};
use whyslow_model::*;

use super::{empty, s};

/// By its word.
pub fn reason(word: &str) -> Reason {
    *Reason::ALL.iter().find(|reason| reason.word() == word).unwrap()
}

/// By its word.
pub fn state(word: &str) -> TaskState {
    *TaskState::ALL.iter().find(|state| state.word() == word).unwrap()
}

/// A thing by its words, else words.
pub fn detail(words: &str) -> Detail {
    WaitTarget::ALL.iter().find(|thing| thing.words() == words).map_or(words.into(), |thing| (*thing).into())
}

/// A task, and the function of its work item.
pub fn called(name: &str) -> Who {
    match name.split_once(" (") {
        _ if name.is_empty() => Who::Nobody,
        Some((comm, work)) => {
            Who::Task { comm: comm.to_owned(), work: Some(work.trim_end_matches(')').to_owned()) }
        }
        None => Who::task(name),
    }
}

/// A hop of a chain.
pub fn hop(edge: &str, who: &str, in_state: &str, what: impl Into<Detail>, lost: f64) -> Hop {
    let what = match what.into() {
        Detail::Words(words) => detail(&words),
        other => other,
    };
    Hop::new(reason(edge), called(who), what, state(in_state), s(lost))
}

/// A chain of these hops, each with the threads of it.
pub fn chain(time: f64, count: u64, worst: f64, hops: Vec<(Hop, &[u32])>, leaf: Culprit) -> Chain {
    let pids = |(hop, pids): &(Hop, &[u32])| pids.iter().map(|pid| (*pid, hop.who.clone())).collect();
    Chain {
        time: s(time),
        count,
        worst: s(worst),
        tasks: hops.iter().map(pids).collect(),
        hops: hops.into_iter().map(|(hop, _)| hop).collect(),
        leaf,
        notes: Vec::new(),
    }
}

/// A task at the end of a chain.
pub fn task(pid: u32, name: &str) -> Culprit {
    Culprit::new(SubjectKind::Task, pid.to_string(), name)
}

/// With notes.
pub fn noted(mut chain: Chain, notes: &[Note]) -> Chain {
    chain.notes = notes.to_vec();
    chain
}

fn cgroup_mutex() -> Chain {
    let mut killer = hop(
        "lock",
        "kworker/1:2 (css_killed_work_fn)",
        "uninterruptible",
        lock(LockKind::Rwsem, "shrinker_rwsem", Some(true)),
        2.9,
    );
    (killer.count, killer.worst) = (Some(6), Some(s(0.9)));
    (killer.per_call, killer.grows_with, killer.circle) = (Some(s(0.5)), Some("9,000 cgroups".into()), true);
    let mut waiter =
        hop("lock", "runguard", "uninterruptible", lock(LockKind::Mutex, "cgroup_mutex", None), 3.2);
    (waiter.count, waiter.worst) = (Some(480), Some(s(0.059)));
    let hops: Vec<(Hop, &[u32])> = vec![
        (waiter, &[1, 2, 3]),
        (killer, &[33]),
        (hop("runnable", "mkdir", "runnable", "a CPU", 2.1), &[4242]),
        (hop("running", "stress", "running", user_code("main"), 2.1), &[99]),
    ];
    chain(2.1, 320, 0.042, hops, task(99, "stress").in_function("main"))
}

fn deadlock() -> Chain {
    let hops: Vec<(Hop, &[u32])> = vec![
        (hop("lock", "left", "uninterruptible", lock(LockKind::Mutex, "a", None), 1.0), &[7]),
        (hop("lock", "right", "uninterruptible", lock(LockKind::Mutex, "b", None), 1.0), &[8]),
        (hop("cycle", "left", "unknown", "waits for this task in turn", 1.0), &[7]),
    ];
    let notes = [Note::Deadlock, Note::Cycle, Note::Open, Note::StaleOwner, Note::HandOff, Note::Convoy];
    noted(chain(1.0, 1, 1.0, hops, task(7, "left")), &notes)
}

fn relay() -> Chain {
    let hops: Vec<(Hop, &[u32])> = vec![
        (hop("pipe", "cat", "sleeping", "data from a pipe", 0.5), &[60]),
        (hop("child", "sh", "sleeping", "a child to end", 0.4), &[61]),
        (hop("timer", "sleep", "sleeping", "its own sleep", 0.3), &[62]),
    ];
    chain(0.3, 1, 0.3, hops, task(62, "sleep"))
}

/// One of each sort.
pub fn chains() -> Vec<Chain> {
    let one = |who: &str, edge: &str, what: Detail, time: f64, leaf: Culprit| {
        let hops: Vec<(Hop, &[u32])> = vec![(hop(edge, who, "io-wait", what, time), &[55])];
        chain(time, 3, time / 2.0, hops, leaf)
    };
    vec![
        cgroup_mutex(),
        deadlock(),
        one(
            "dd",
            "block-io",
            disk("vda", Operation::NotKnown),
            0.8,
            Culprit::new(SubjectKind::Device, "254:0", "vda"),
        ),
        relay(),
        one("curl", "socket", peer_data(), 0.4, peer()),
        throttled(),
    ]
}

fn peer() -> Culprit {
    Culprit::new(SubjectKind::Socket, "10.0.0.7:443", "10.0.0.7:443")
}

fn throttled() -> Chain {
    let quota =
        Culprit::new(SubjectKind::Quota, "/web", "CPU quota of web").at_file("/sys/fs/cgroup/web/cpu.max");
    let hops: Vec<(Hop, &[u32])> = vec![
        (hop("runnable", "web", "runnable", "a CPU", 0.1), &[80, 81]),
        (hop("quota", "web", "runnable", "its cgroup's CPU quota", 0.1), &[80, 81]),
    ];
    chain(0.1, 1, 0.1, hops, quota)
}

/// A part of 12.3 s.
pub fn part(kind: &str, what: impl Into<Detail>, time: f64, parts: Vec<Part>) -> Part {
    let what = match what.into() {
        Detail::Words(words) => detail(&words),
        other => other,
    };
    let share = Some(Share::of(time, 12.3));
    Part { reason: reason(kind), detail: what, time: s(time), share, parts, ..Part::default() }
}

fn of(who: &str, part: Part) -> Part {
    Part { who: Who::task(who), ..part }
}

fn in_state(word: &str, time: f64) -> StateTime {
    StateTime { state: state(word), time: s(time), share: Some(Share::of(time, 0.159)) }
}

fn user_code(function: &str) -> Detail {
    Detail::UserCode { function: Some(function.to_owned()) }
}

fn disk(device: &str, operation: Operation) -> Detail {
    Detail::Device { device: device.to_owned(), operation, about: None }
}

fn jbd2() -> Detail {
    disk("vda", Operation::In("jbd2 commit".into()))
}

fn lock(kind: LockKind, name: &str, write: Option<bool>) -> Detail {
    Detail::Lock { kind, name: name.to_owned(), write }
}

fn peer_data() -> Detail {
    Detail::Peer { address: Some("10.0.0.7:443".into()), act: PeerAct::Send }
}

fn counted(mut part: Part, count: u64, worst: f64) -> Part {
    (part.count, part.worst) = (Some(count), Some(s(worst)));
    part
}

/// Where the 12.3 s of a build went.
pub fn wall() -> WallAccount {
    let compiler = vec![
        of(
            "rustc",
            part("running", "on CPU", 7.6, vec![part("running", user_code("main"), 7.6, Vec::new())]),
        ),
        of("rustc", counted(part("block-io", jbd2(), 1.9, Vec::new()), 212, 0.059)),
        of("rustc", counted(part("runnable", "a CPU", 0.7, Vec::new()), 9431, 0.012)),
        of("rustc", part("futex", "a user-space lock (futex)", 0.08, Vec::new())),
        part("rcu", Detail::GracePeriod { caller: None }, 0.02, Vec::new()),
    ];
    WallAccount {
        of: "cargo build".into(),
        is_sum: false,
        wall: s(12.3),
        cpu: s(18.2),
        off_cpu: s(3.1),
        unexplained: s(0.15),
        said: Some(Share::of(12.15, 12.3)),
        parts: vec![
            counted(part("child", "a child to end", 10.3, compiler), 4, 6.1),
            part("running", user_code("cargo::main"), 1.2, Vec::new()),
            counted(part("block-io", jbd2(), 0.65, Vec::new()), 31, 0.041),
            part("unexplained", "not explained", 0.15, Vec::new()),
        ],
        mismatches: vec![Mismatch::Time {
            comm: "rustc".into(),
            pid: 4242,
            state: TaskState::Running,
            ours: s(2.9),
            kernels: s(3.1),
        }],
    }
}

fn waits(count: u64, total: f64, worst: f64) -> LockWaits {
    LockWaits { count, total: s(total), worst: s(worst) }
}

fn site(site: &str, count: u64, total: f64) -> LockSite {
    LockSite { site: site.into(), count, total: s(total) }
}

fn holder(pid: u32, who: &str, caused: f64, did: &[Deed]) -> Holder {
    Holder { pid, who: called(who), caused: s(caused), did: did.to_vec() }
}

/// A named mutex, an rwsem named by who takes it, and one that only has an address.
pub fn locks() -> Vec<LockAccount> {
    let cgroup_mutex = LockAccount {
        name: "cgroup_mutex".into(),
        named_by: NamedBy::CallSites,
        address: "1".into(),
        kind: LockKind::Mutex,
        write: waits(480, 3.2, 0.059),
        sites: vec![
            site("cgroup_kn_lock_live < cgroup_mkdir < kernfs_iop_mkdir", 300, 2.0),
            site("css_killed_work_fn < process_one_work", 100, 0.7),
            site("proc_cgroup_show < proc_single_show", 79, 0.4),
            site("cgroup_rmdir", 1, 0.1),
        ],
        holders: vec![
            holder(
                33,
                "kworker/1:2 (css_killed_work_fn)",
                2.9,
                &[Deed::WaitedFor("shrinker_rwsem".into()), Deed::Ran("in css_put".into())],
            ),
            holder(0, "an unseen task", 0.3, &[]),
        ],
        ..LockAccount::default()
    };
    let mmap = LockAccount {
        name: "mmap_lock of postgres (4242)".into(),
        named_by: NamedBy::Symbol,
        kind: LockKind::Rwsem,
        read: waits(9431, 1.5, 0.012),
        write: waits(1, 0.007, 0.007),
        ..LockAccount::default()
    };
    let unnamed = LockAccount {
        named_by: NamedBy::Number,
        address: "2".into(),
        kind: LockKind::Rwsem,
        read: waits(2, 0.000_3, 0.000_2),
        ..LockAccount::default()
    };
    vec![cgroup_mutex, mmap, unnamed]
}

/// One without a file, a folded one that fails at times, a plain one.
pub fn calls() -> Vec<CallAccount> {
    let scaling = CallAccount {
        syscall: "read".into(),
        path: Some("/sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq".into()),
        files: 96,
        count: 9600,
        errors: 3,
        time: s(3.2),
        worst: s(0.059),
        running: s(1.2),
        runnable: s(0.1),
        io_wait: s(0.0),
        uninterruptible: s(1.9),
        sleeping: s(0.0),
    };
    let fsync = CallAccount {
        syscall: "fsync".into(),
        path: Some("/var/lib/db/wal".into()),
        files: 1,
        count: 31,
        time: s(0.65),
        worst: s(0.041),
        io_wait: s(0.6),
        uninterruptible: s(0.05),
        ..CallAccount::default()
    };
    let wait = CallAccount {
        syscall: "wait4".into(),
        count: 4,
        time: s(10.3),
        worst: s(6.1),
        sleeping: s(10.3),
        ..CallAccount::default()
    };
    vec![wait, scaling, fsync]
}

/// Two, one of which has not ended.
pub fn slow_calls() -> Vec<SlowCallAccount> {
    let first = SlowCallAccount {
        at: s(0.214),
        pid: 4242,
        who: "runguard".into(),
        syscall: "mkdir".into(),
        path: Some("/sys/fs/cgroup/memory/job-17".into()),
        host_path: Some("/proc/4242/root/sys/fs/cgroup/memory/job-17".into()),
        time: s(0.159),
        open: false,
        split: vec![in_state("uninterruptible", 0.158), in_state("running", 0.001)],
    };
    let open = SlowCallAccount { at: s(8.1), path: None, open: true, split: Vec::new(), ..first.clone() };
    vec![first, open]
}

/// Packets that waited for their CPU: interrupts off, a deferred softirq, a polling thread, a long poll, a queue, and one that is not known.
pub fn stalls() -> Vec<StallAccount> {
    let agent = StallCulprit {
        pid: 10_137,
        who: "cadvisor".into(),
        group: Some("container monitor".into()),
        call: Some("read".into()),
        file: Some("memory.stat".into()),
        function: Some("css_rstat_flush".into()),
        stack: ["css_rstat_flush", "memory_stat_show", "vfs_read"].map(str::to_owned).into(),
    };
    let bare = StallCulprit { pid: 77, who: "spinner".into(), ..StallCulprit::default() };
    let rules = StallCulprit {
        who: "softirq".into(),
        function: Some("nft_do_chain".into()),
        stack: ["nft_do_chain", "nf_hook_slow", "ip_rcv"].map(str::to_owned).into(),
        ..StallCulprit::default()
    };
    let of = |cpu, kind, total, culprit: Option<StallCulprit>| StallAccount {
        cpu,
        kind,
        count: 3,
        total: s(total),
        worst: s(total / 2.0),
        at: s(0.4),
        thread: (kind == StallKind::Thread).then(|| "napi/eth0-1 (pid 78)".to_owned()),
        unknown: culprit.is_none().then(|| "the hypervisor did not run this CPU".to_owned()),
        culprit,
    };
    vec![
        of(11, StallKind::IrqsOff, 0.43, Some(agent)),
        of(3, StallKind::Deferred, 0.12, Some(bare.clone())),
        of(2, StallKind::Thread, 0.08, Some(bare)),
        of(0, StallKind::Poll, 0.06, Some(rules.clone())),
        StallAccount {
            count: 500,
            worst: s(0.014),
            ..of(
                1,
                StallKind::Queued,
                4.7,
                Some(StallCulprit { function: Some("ipt_do_table".into()), ..rules }),
            )
        },
        StallAccount { count: 1, ..of(7, StallKind::IrqsOff, 0.03, None) },
    ]
}

/// Answers of a host that stalled three times, twice because of an agent on this host.
pub fn pings() -> PingAccount {
    let ms = |ms| s(f64::from(ms) / 1e3);
    let stall =
        |at, length, late| PingStall { at: s(at), length: ms(length), late, answers: late + 1, lost: 0 };
    let explained = |cpu, late, stalls, known: bool| Explained {
        cpu,
        late,
        stalls,
        culprit: self::stalls().swap_remove(0).culprit.filter(|_| known),
        unknown: (!known).then(|| "the CPU idled".to_owned()),
    };
    PingAccount {
        target: "cache7".into(),
        address: "10.0.0.7".into(),
        how: "tcp".into(),
        port: Some(80),
        with_icmp: true,
        silent: Some("icmp".into()),
        interval: ms(10),
        sent: 998,
        answered: 990,
        lost: 6,
        unreachable: 1,
        limited: 1,
        left_out: 3,
        answers: vec![
            Answers { answer: PingAnswer::SynAck, count: 984 },
            Answers { answer: PingAnswer::Reset, count: 6 },
        ],
        not_sent: vec![NotSent { error: "EPERM".into(), count: 2 }],
        times: Some(PingTimes {
            least: s(38e-6),
            p50: s(52e-6),
            p90: s(97e-6),
            p99: ms(61),
            p999: ms(94),
            worst: ms(96),
        }),
        late_from: Some(ms(5)),
        late: 15,
        alone: 1,
        stalls: vec![
            stall(0.81, 42, 4),
            PingStall { lost: 1, ..stall(2.31, 96, 10) },
            PingStall { late: 0, answers: 0, lost: 5, ..stall(7.2, 50, 0) },
        ],
        places: vec![
            PingPlace { place: Some(Where::Target), late: 11 },
            PingPlace { place: Some(Where::Back), late: 3 },
            PingPlace { place: None, late: 1 },
        ],
        ports: Some(PingPorts {
            held: PortsHeld::Same,
            late: 14,
            late_ports: 6,
            in_time: 17,
            in_time_ports: 10,
            icmp_late: 0,
            icmp_in_time: 12,
        }),
        explained: vec![explained(11, 10, 1, true), explained(3, 1, 1, false)],
        unwatched: None,
        ruled_out: vec![RuledOut {
            what: "a target that stands still as a whole".into(),
            evidence: "17 of 31 requests were answered meanwhile".into(),
        }],
        sent_late: 1,
        notes: vec!["One request was sent late: whyslow waited for a CPU".into()],
    }
}

/// What `run` says of a build.
pub fn watched() -> Document {
    let mut doc = empty();
    doc.wall = Some(wall());
    doc.chains = chains();
    doc.chains.truncate(2);
    (doc.locks, doc.calls, doc.slow_calls) = (locks(), calls(), slow_calls());
    (doc.works, doc.grace_periods) = (works(), grace_periods());
    (doc.jobs, doc.churn) = (jobs(), churn());
    doc.blocked = Some(super::blocked::blocked());
    doc.stalls = stalls();
    doc.pings = Some(pings());
    doc.missing = vec![Missing::not_recorded("user stacks").into()];
    doc.own_cost = OwnCost {
        cpu: s(0.41),
        rss_bytes: 40 << 20,
        bpf_s: Some(0.3),
        blocked: Some(s(0.012)),
        lost_events: 0,
    };
    doc
}

fn work_times(count: u64, total: f64, worst: f64, times: &[(f64, u64)]) -> WorkTimes {
    let times = times.iter().map(|&(below, count)| TimeRange { below: s(below), count }).collect();
    WorkTimes { count, total: s(total), worst: s(worst), times }
}

/// A judge whose jobs wait before and after their program.
pub fn jobs() -> Vec<JobAccount> {
    let times = |total, half, most, worst| JobTimes {
        total: s(total),
        half: s(half),
        most: s(most),
        worst: s(worst),
    };
    let phase = |phase, cpu, ready, waited, waits| PhaseAccount {
        phase,
        cpu: s(cpu),
        ready: s(ready),
        waited: s(waited),
        waits,
    };
    let wait = |what: &str, count, total, worst| InnerWait {
        what: what.into(),
        count,
        total: s(total),
        worst: s(worst),
    };
    let judged = JobAccount {
        starter: "judged".into(),
        starters: 1,
        tgid: 812,
        command: "runguard".into(),
        count: 65,
        rate: 6.5,
        open: 3,
        processes: 130,
        wall: times(29.3, 0.45, 0.98, 0.98),
        cpu: times(1.4, 0.021, 0.024, 0.024),
        phases: vec![
            phase(Phase::SetUp, 0.2, 0.1, 18.4, vec![wait("mutex cgroup_mutex", 61, 18.1, 0.4)]),
            phase(Phase::Program, 1.1, 0.3, 0.0, Vec::new()),
            phase(Phase::Teardown, 0.1, 0.0, 9.1, vec![wait("mutex cgroup_mutex", 58, 9.0, 0.38)]),
        ],
        known: 130,
    };
    let cron = JobAccount {
        starter: String::new(),
        starters: 3,
        tgid: 0,
        command: "true".into(),
        count: 1_234,
        rate: 123.4,
        open: 0,
        processes: 1_234,
        wall: times(1.2, 0.001, 0.002, 0.01),
        cpu: times(0.9, 0.0007, 0.001, 0.002),
        phases: Vec::new(),
        known: 0,
    };
    vec![judged, cron]
}

/// What that judge makes, and a process that makes namespaces of two kinds.
pub fn churn() -> Vec<ChurnAccount> {
    let row = |starter: &str, what: &str, count, waited: Option<f64>, worst| ChurnAccount {
        starter: starter.into(),
        starters: 1,
        tgid: 812,
        what: what.into(),
        count,
        rate: count as f64 / 10.0,
        waited: waited.map(s),
        worst: s(worst),
    };
    vec![
        row("sandbox", "IPC namespaces made", 2_500, None, 0.0),
        row("judged", "cgroups made", 65, Some(18.1), 0.4),
        row("judged", "mounts made", 6, Some(0.0), 0.0),
    ]
}

/// Grace periods one by one, and a workqueue that runs one item at a time.
pub fn works() -> Vec<WorkAccount> {
    let needs = |what: &str, count, total, worst| InnerWait {
        what: what.into(),
        count,
        total: s(total),
        worst: s(worst),
    };
    let free_ipc = WorkAccount {
        function: "free_ipc".into(),
        workqueue: "events".into(),
        count: 3,
        open: 1,
        queued: work_times(2, 0.000_09, 0.000_06, &[(0.000_033, 1), (0.000_066, 1)]),
        ran: work_times(3, 4.8, 4.2, &[(0.524, 2), (8.389, 1)]),
        inside: vec![
            needs("an RCU grace period for kern_unmount", 160, 4.7, 0.031),
            needs("mutex pcpu_alloc_mutex", 1, 0.04, 0.04),
        ],
        ..WorkAccount::default()
    };
    let killed = WorkAccount {
        function: "css_killed_work_fn".into(),
        workqueue: "cgroup_destroy".into(),
        count: 1204,
        queued: work_times(1204, 9.5, 0.4, &[(0.000_033, 600), (0.524, 604)]),
        held_back: s(9.1),
        held_back_worst: s(0.39),
        ran: work_times(1204, 3.0, 0.02, &[(0.004, 1204)]),
        ..WorkAccount::default()
    };
    vec![killed, free_ipc]
}

/// One grace period an object, and expedited ones.
pub fn grace_periods() -> Vec<GraceWaits> {
    let one = |caller: &str, work: &str, expedited, tasks, count, total| GraceWaits {
        caller: caller.into(),
        expedited,
        work: work.into(),
        who: "runguard".into(),
        tasks,
        count,
        total: s(total),
        worst: s(0.031),
    };
    vec![one("kern_unmount", "free_ipc", false, 1, 160, 4.7), one("namespace_unlock", "", true, 44, 90, 0.4)]
}
