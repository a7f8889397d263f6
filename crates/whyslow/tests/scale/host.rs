//! A recording of a host of any size, drawn from a seed: every table has rows, and rows refer to each other as on a real host. It has no
//! known truth: it is for time, memory and panics. (`tests/hosts` knows the truth.)

use std::time::Duration;

use whyslow_faults::Draw;
use whyslow_model::churn::{ChurnKind, Population, Thing};
use whyslow_model::table::{
    Blocked, Cgroup, CgroupCpu, CgroupMemory, Churn, Connect, Cpu, CrossCall, Disk, Gap, IrqLatency,
    LateTimer, Listener, Memory, Ping, Poll, Sample, Socket, Speed, Spin, Stall, StallSeen, StatRead, Tables,
    Task, Wait, Work,
};
use whyslow_model::timeline::{
    Asked, Call, Context, Hold, HoldSeen, Lock, LockKind, LockWait, OtherEnd, Request, Run, SlowCall, Span,
    Stack, State, StateTimes, Waker,
};
use whyslow_model::{FileSnapshot, Meta, Recording};

/// The size of a host.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub tasks: u32,
    pub cgroups: u32,
    /// Cgroups whose quota runs out.
    pub throttled: u32,
    pub cpus: u32,
    /// Rows of timelines.
    pub spans: u32,
    /// Distinct stacks on CPU.
    pub samples: u32,
}

impl Size {
    /// A part of this size: one `n`th of everything.
    #[must_use]
    pub fn part(self, n: u32) -> Size {
        Size {
            tasks: self.tasks / n,
            cgroups: self.cgroups / n,
            throttled: self.throttled / n,
            cpus: self.cpus / n,
            spans: self.spans / n,
            samples: self.samples / n,
        }
    }
}

const S: u64 = 1_000_000_000;
const WINDOW: u64 = 10 * S;
const FIRST_PID: u32 = 1000;

/// The host.
pub fn recording(size: Size, seed: u64) -> Recording {
    let mut draw = Draw::with(seed);
    let pid = |n: u64| FIRST_PID + (n % u64::from(size.tasks.max(1))) as u32;
    let tables = Tables {
        tasks: Some((0..size.tasks).map(|i| task(i, size, &mut draw)).collect()),
        cgroups: Some((0..size.cgroups).map(|i| cgroup(i, size, &mut draw)).collect()),
        samples: Some((0..size.samples).map(|_| sample(pid(draw.any()), &mut draw)).collect()),
        waits: Some((0..size.samples).map(|_| wait(pid(draw.any()), &mut draw)).collect()),
        memory: Some((0..size.tasks / 4).map(|i| memory(i * 4, size, &mut draw)).collect()),
        disk: Some((0..size.cgroups).map(|i| disk(i, &mut draw)).collect()),
        connects: Some((0..size.tasks / 20).map(|i| connect(i, &mut draw)).collect()),
        listeners: Some((0..size.tasks / 100).map(|i| listener(i, &mut draw)).collect()),
        sockets: Some((0..size.tasks / 20).map(|i| socket(i, &mut draw)).collect()),
        spans: Some(spans(size, &mut draw)),
        requests: Some((0..size.tasks / 10).map(|i| request(i, size, &mut draw)).collect()),
        stacks: Some((0..STACKS).map(|id| stack(id, &mut draw)).collect()),
        runs: Some(runs(size, &mut draw)),
        holds: Some((0..size.spans / 4).map(|_| hold(pid(draw.any()), &mut draw)).collect()),
        locks: Some((0..size.spans / 50).map(|_| lock(&mut draw)).collect()),
        calls: Some((0..size.tasks / 10).map(|i| call(i, &mut draw)).collect()),
        slow_calls: Some((0..size.tasks / 20).map(|i| slow_call(i, &mut draw)).collect()),
        works: Some(
            (0..300).map(|i| Work { function: format!("work_{i}"), count: 9, ..Work::default() }).collect(),
        ),
        ..per_cpu(size, &mut draw)
    };
    let meta = Meta {
        whyslow: "0.1.0".to_owned(),
        host: "big".to_owned(),
        kernel: "6.18.44".to_owned(),
        started_at: "2026-03-01T10:00:00Z".to_owned(),
        window_ns: WINDOW,
        cpus: size.cpus,
        clock_ticks: 100,
        page_size: 4096,
        privileged: true,
        ..Meta::default()
    };
    Recording { meta, snapshots: snapshots(size, &mut draw), tables, missing: vec![], torn: None }
}

fn task(i: u32, size: Size, draw: &mut Draw) -> Task {
    let (exec, ready) = (draw.between(0, 4) * S / 2, draw.between(0, 4) * S / 2);
    let tgid = FIRST_PID + i / 4 * 4;
    // The throttled groups come last, and have their share of the tasks.
    let group = u64::from(size.cgroups)
        - draw
            .between(1, u64::from(size.cgroups.min(2 * size.throttled)).max(1))
            .min(u64::from(size.cgroups));
    let waits = draw.between(0, 3000);
    let mask = draw.between(0, 9);
    let (allowed, allowed_count) = match mask {
        0 => (format!("{}", u64::from(i) % u64::from(size.cpus.max(1))), 1),
        1 => (format!("0-{}", size.cpus / 2), size.cpus / 2 + 1),
        _ => (format!("0-{}", size.cpus.saturating_sub(1)), size.cpus),
    };
    let born = draw.one_in(5);
    Task {
        pid: FIRST_PID + i,
        tgid,
        ppid: if i < 4 { 1 } else { FIRST_PID + draw.between(0, u64::from(i / 4) - 1) as u32 * 4 },
        creator: tgid,
        comm: format!("worker/{}", i % 400),
        cmdline: i.is_multiple_of(4).then(|| format!("/usr/bin/service --id {i}")),
        kthread: draw.one_in(50),
        cpu_cgroup: group_id(group as u32),
        memory_cgroup: group_id(group as u32),
        io_cgroup: group_id(group as u32),
        unified_cgroup: group_id(group as u32),
        lived_ns: if born { WINDOW / 4 } else { WINDOW },
        born,
        ended: born && draw.one_in(2),
        exec_ns: if born { exec / 8 } else { exec },
        run_delay_ns: ready,
        allowed,
        allowed_count,
        weight: 1024,
        traced_ns: exec,
        runnable_ns: if born { ready / 8 } else { ready },
        runnable_worst_ns: ready / 10,
        runnable_count: waits,
        io_ns: draw.between(0, S),
        io_count: waits,
        blocked_ns: draw.between(0, S),
        sleep_ns: draw.between(0, 3 * S),
        cycles: waits,
        awake: draw.between(0, 4_000_000),
        rest: draw.between(0, 4_000_000),
        awake_awake: draw.between(0, 1 << 40),
        awake_rest: draw.between(0, 1 << 40),
        rest_rest: draw.between(0, 1 << 40),
        ..Task::default()
    }
}

fn group_id(i: u32) -> u64 {
    u64::from(i) + 1
}

/// A tree: each group hangs below one of the first hundredth of those before it.
fn cgroup(i: u32, size: Size, draw: &mut Draw) -> Cgroup {
    let parent = if i == 0 { 0 } else { group_id(draw.between(0, u64::from(i / 100)) as u32) };
    let throttled = i >= size.cgroups.saturating_sub(size.throttled);
    let name = if i == 0 { String::new() } else { format!("app-{i}.service") };
    let cpu = CgroupCpu {
        weight: 1024,
        quota_ns: throttled.then(|| draw.between(10, 400) * 1_000_000),
        burst_ns: None,
        period_ns: 100_000_000,
        periods: 100,
        throttled_periods: if throttled { draw.between(20, 100) } else { 0 },
        throttled_ns: if throttled { draw.between(1, 9) * S } else { 0 },
    };
    let memory = CgroupMemory {
        usage: draw.between(1 << 20, 1 << 30),
        limit: throttled.then_some(1 << 30),
        limit_hits: if throttled { draw.between(0, 3) } else { 0 },
        oom_kills: u64::from(throttled && draw.one_in(3)),
        ..CgroupMemory::default()
    };
    let path = format!("/{name}");
    Cgroup {
        id: group_id(i),
        parent,
        controllers: ["cpu", "memory", "io", "unified"].map(str::to_owned).to_vec(),
        files: Some(format!("/sys/fs/cgroup{path}")),
        name,
        path,
        cpu: Some(cpu),
        memory: Some(memory),
        ..Cgroup::default()
    }
}

const STACKS: u32 = 4000;
const KERNEL: [&str; 12] = [
    "schedule",
    "io_schedule",
    "folio_wait_bit_common",
    "filemap_fault",
    "rwsem_down_write_slowpath",
    "__mutex_lock_slowpath",
    "ep_poll",
    "futex_wait_queue",
    "pipe_read",
    "do_nanosleep",
    "jbd2_log_wait_commit",
    "shrink_lruvec",
];

fn frames_of(draw: &mut Draw) -> Vec<String> {
    let depth = draw.between(4, 16);
    (0..depth).map(|_| format!("{}+0x{:x}", draw.pick(&KERNEL), draw.between(0, 9) * 16)).collect()
}

fn user_of(draw: &mut Draw) -> Vec<String> {
    let depth = draw.between(2, 12);
    (0..depth).map(|_| format!("service::module_{}::call", draw.between(0, 60))).collect()
}

fn stack(id: u32, draw: &mut Draw) -> Stack {
    Stack { id, kernel: frames_of(draw), user: user_of(draw) }
}

fn sample(pid: u32, draw: &mut Draw) -> Sample {
    let count = draw.between(1, 200);
    let comm = format!("worker/{}", pid % 400);
    let (kernel, user) = (frames_of(draw), user_of(draw));
    Sample { pid, tgid: process_of(pid), comm, count, ns: count * 10_101_010, kernel, user, bare: false }
}

fn process_of(pid: u32) -> u32 {
    FIRST_PID + (pid - FIRST_PID) / 4 * 4
}

fn wait(pid: u32, draw: &mut Draw) -> Wait {
    Wait {
        pid,
        tgid: process_of(pid),
        comm: format!("worker/{}", pid % 400),
        state: draw.pick(&["io", "blocked", "sleep"]).to_owned(),
        ns: draw.between(0, S),
        count: draw.between(1, 90),
        worst_ns: draw.between(0, S / 4),
        kernel: frames_of(draw),
    }
}

fn memory(i: u32, size: Size, draw: &mut Draw) -> Memory {
    let group = size.cgroups.saturating_sub(1 + draw.between(0, u64::from(size.throttled.max(1)) - 1) as u32);
    Memory {
        pid: FIRST_PID + i,
        tgid: process_of(FIRST_PID + i),
        cgroup: group_id(group),
        limit_reclaim_ns: draw.between(0, S / 10),
        limit_reclaims: draw.between(0, 100),
        limit_reclaim_worst_ns: draw.between(0, S / 100),
        direct_reclaim_ns: draw.between(0, S / 10),
        direct_reclaims: draw.between(0, 100),
        direct_reclaim_worst_ns: draw.between(0, S / 100),
        pages_added: 1000,
        pages_refaulted: draw.between(0, 900),
        swapped_in: draw.between(0, 900),
        dirty_pause_ns: draw.between(0, S / 10),
        ..Memory::default()
    }
}

fn disk(i: u32, draw: &mut Draw) -> Disk {
    let dev = i % 300;
    Disk {
        dev: format!("253:{dev}"),
        device: format!("vd{dev}"),
        cgroup: group_id(i),
        op: draw.pick(&["read", "write"]).to_owned(),
        requests: draw.between(1, 1000),
        bytes: draw.between(4096, 1 << 30),
        device_ns: draw.between(0, S),
        device_worst_ns: draw.between(0, S / 10),
        held: draw.between(0, 9),
        held_ns: draw.between(0, S),
        ..Disk::default()
    }
}

fn connect(i: u32, draw: &mut Draw) -> Connect {
    let pid = FIRST_PID + i * 20;
    Connect {
        pid,
        tgid: process_of(pid),
        netns: 4_026_531_840 + i % 60,
        peer: format!("127.0.0.1:{}", 8000 + i % 500),
        count: 100,
        done: 90,
        retried: draw.between(0, 20),
        prompt: 70,
        prompt_ns: S / 100,
        retried_ns: 10 * S,
        blocked_ns: draw.between(0, S),
        ..Connect::default()
    }
}

fn listener(i: u32, draw: &mut Draw) -> Listener {
    let tgid = process_of(FIRST_PID + i * 100);
    let local = format!("127.0.0.1:{}", 8000 + i % 500);
    Listener {
        netns: 4_026_531_840 + i % 60,
        local,
        queue: 129,
        limit: 128,
        tgid,
        overflows: draw.between(0, 99),
        ..Listener::default()
    }
}

fn socket(i: u32, draw: &mut Draw) -> Socket {
    let tgid = process_of(FIRST_PID + i * 20);
    Socket {
        netns: 4_026_531_840 + i % 60,
        tcp: draw.one_in(2),
        local: format!("127.0.0.1:{}", 8000 + i),
        peer: format!("127.0.0.1:{}", 9000 + i),
        tgid,
        looks: 100,
        full: draw.between(0, 100),
        ..Socket::default()
    }
}

fn other_end(size: Size, draw: &mut Draw) -> OtherEnd {
    let process =
        |draw: &mut Draw| process_of(FIRST_PID + draw.between(0, u64::from(size.tasks.max(1)) - 1) as u32);
    OtherEnd {
        processes: (0..draw.between(0, 2)).map(|_| process(draw)).collect(),
        asked: draw.pick(&[Asked::Unknown, Asked::No, Asked::Sent, Asked::Unread]),
        sent_before_ns: draw.one_in(2).then(|| draw.between(0, 3 * WINDOW)),
        queued: draw.one_in(9),
        watched: draw.one_in(2).then(|| draw.one_in(2)),
    }
}

/// Some tasks have many.
fn request(i: u32, size: Size, draw: &mut Draw) -> Request {
    let tgid = process_of(FIRST_PID + if draw.one_in(2) { i } else { i % 8 });
    let peer = draw.one_in(2).then(|| "10.0.0.7:5432".to_owned());
    Request { tgid, peer, connecting: draw.one_in(9), other_end: other_end(size, draw) }
}

/// Each thread waits for other threads and wakes them up: rows of a thread are adjacent. The last wait of some threads does not end.
fn spans(size: Size, draw: &mut Draw) -> Vec<Span> {
    let threads = (size.spans / 20).clamp(1, size.tasks.max(1));
    let mut all = Vec::with_capacity(size.spans as usize);
    for thread in 0..threads {
        let rows = u64::from(size.spans / threads);
        let pid = FIRST_PID + thread;
        let step = WINDOW / rows.max(1);
        for row in 0..rows {
            let from = row * step;
            let woken = from + draw.between(step / 10, step - step / 10);
            let waker = FIRST_PID + draw.between(0, u64::from(threads) - 1) as u32;
            let locked = draw.one_in(2);
            let lasts = row + 1 == rows && draw.one_in(2);
            all.push(Span {
                open: lasts,
                other_end: lasts.then(|| Box::new(other_end(size, draw))),
                syscall: draw.one_in(2).then_some(232),
                pid,
                tgid: process_of(pid),
                comm: format!("worker/{}", pid % 400),
                from_ns: from,
                at_ns: from + step / 20,
                woken_ns: woken,
                to_ns: from + step,
                mixed: StateTimes { running_ns: step / 40, ..StateTimes::default() },
                state: draw.pick(&[State::Io, State::Blocked, State::Sleep, State::Runnable]),
                cpu: draw.between(0, u64::from(size.cpus.max(1)) - 1) as u32,
                waker: Some(Waker { pid: waker, context: Context::Task, ..Waker::default() }),
                stack: Some(draw.between(0, u64::from(STACKS) - 1) as u32),
                lock: locked.then(|| LockWait {
                    address: draw.between(1, 2000),
                    write: draw.one_in(2),
                    since_ns: from,
                    ..LockWait::default()
                }),
                ..Span::default()
            });
        }
    }
    all
}

fn runs(size: Size, draw: &mut Draw) -> Vec<Run> {
    let step = 20_000_000;
    let of_cpu = |cpu: u32| (0..WINDOW / step).map(move |n| (cpu, n * step));
    let all = (0..size.cpus).flat_map(of_cpu);
    let pid = |draw: &mut Draw| FIRST_PID + draw.between(0, u64::from(size.tasks.max(1)) - 1) as u32;
    all.map(|(cpu, from_ns)| Run { cpu, pid: pid(draw), from_ns, to_ns: from_ns + step / 2 }).collect()
}

fn hold(pid: u32, draw: &mut Draw) -> Hold {
    let seen = draw.pick(&[HoldSeen::Word, HoldSeen::Acquired]);
    Hold {
        lock: draw.between(1, 2000),
        at_ns: draw.between(0, WINDOW),
        pid,
        seen,
        reader: draw.one_in(3),
        ..Hold::default()
    }
}

fn lock(draw: &mut Draw) -> Lock {
    let stack = Some(draw.between(0, u64::from(STACKS) - 1) as u32);
    Lock {
        address: draw.between(1, 2000),
        stack,
        count: 9,
        total_ns: draw.between(0, S),
        worst_ns: S / 20,
        ..Lock::default()
    }
}

fn call(i: u32, draw: &mut Draw) -> Call {
    let tgid = process_of(FIRST_PID + i * 10);
    let path = Some(format!("/var/lib/app/{}/{i}", i % 90));
    Call {
        tgid,
        syscall: draw.between(0, 300) as u32,
        path,
        count: 9,
        total_ns: draw.between(0, S),
        ..Call::default()
    }
}

fn slow_call(i: u32, draw: &mut Draw) -> SlowCall {
    let pid = FIRST_PID + i * 20;
    let path = Some(format!("/var/lib/app/{}/{i}", i % 90));
    SlowCall {
        pid,
        tgid: process_of(pid),
        at_ns: draw.between(0, WINDOW),
        ns: S / 10,
        syscall: 1,
        path,
        ..SlowCall::default()
    }
}

fn per_cpu(size: Size, draw: &mut Draw) -> Tables {
    let cpus = 0..size.cpus;
    let some = |draw: &mut Draw| FIRST_PID + draw.between(0, u64::from(size.tasks.max(1)) - 1) as u32;
    let cpu = |cpu: u32| Cpu {
        cpu,
        softirqs: vec![
            ("NET_RX".to_owned(), draw.between(0, 9 * S), 100_000),
            ("TIMER".to_owned(), S / 50, 9000),
        ],
        hardirqs: (0..40).map(|n| (n, format!("eth{n}"), draw.between(0, S / 9), 1000)).collect(),
        samples: 990,
        worst_gap_ns: draw.between(0, S / 9),
        gaps: draw.between(0, 20),
    };
    Tables {
        cpus: Some(cpus.clone().map(cpu).collect()),
        polls: Some(cpus.clone().map(|cpu| poll(cpu, draw)).collect()),
        speeds: Some(cpus.clone().map(|cpu| speed(cpu, draw)).collect()),
        cross_calls: Some(
            (0..size.cpus * 20).map(|i| cross_call(i % size.cpus.max(1), some(draw), draw)).collect(),
        ),
        late_timers: Some(
            (0..size.cpus * 20).map(|i| late_timer(i % size.cpus.max(1), some(draw), draw)).collect(),
        ),
        gaps: Some((0..size.cpus * 20).map(|i| gap(i % size.cpus.max(1), some(draw), draw)).collect()),
        irq_latencies: Some(cpus.clone().flat_map(|cpu| irq_latencies(cpu, draw)).collect()),
        stalls: Some((0..size.cpus * 20).map(|i| stall(i % size.cpus.max(1), some(draw), draw)).collect()),
        stat_reads: Some((0..size.cpus * 8).map(|_| stat_read(some(draw), draw)).collect()),
        blocked: Some((1..=size.cpus * 200).map(|id| blocked(id, some(draw), draw)).collect()),
        churn: Some((0..size.cpus * 8).map(|_| churn(some(draw), draw)).collect()),
        populations: Some((0..640).map(|i| population(i * WINDOW / 640, draw)).collect()),
        pings: Some((0..size.cpus * 100).map(|i| ping(i.into(), draw)).collect()),
        spins: Some((0..size.cpus).map(|_| spin(some(draw), draw)).collect()),
        ..Tables::default()
    }
}

/// Of three waits one is for a lock, whose holder waits as in the row before.
fn blocked(id: u32, pid: u32, draw: &mut Draw) -> Blocked {
    let lock = draw.one_in(3).then(|| LockWait {
        address: draw.between(1, 2000),
        kind: LockKind::Mutex,
        owner: pid.saturating_sub(1),
        ..LockWait::default()
    });
    Blocked {
        id,
        pid,
        tgid: pid,
        state: State::Blocked,
        samples: draw.between(1, 100),
        passes: 100,
        stack: Some(draw.between(0, 200) as u32),
        behind: lock.is_some().then_some(id - 1),
        lock,
        ..Blocked::default()
    }
}

fn churn(tgid: u32, draw: &mut Draw) -> Churn {
    let what = draw.pick(ChurnKind::ALL).word().to_owned();
    Churn { tgid, what, count: draw.between(1, 9_000), ..Churn::default() }
}

/// They grow in the window.
fn population(at_ns: u64, draw: &mut Draw) -> Population {
    let what = draw.pick(Thing::ALL).word().to_owned();
    Population { what, at_ns, count: at_ns / 1_000_000 + draw.between(1, 100) }
}

/// Each answer in a hundred is late, and one in a hundred is lost.
fn ping(number: u64, draw: &mut Draw) -> Ping {
    let sent_ns = number * 10_000_000;
    let took =
        if draw.one_in(100) { draw.between(5_000_000, 90_000_000) } else { draw.between(30_000, 90_000) };
    let answered_ns = (!draw.one_in(100)).then(|| sent_ns + took);
    Ping { sent_ns, answered_ns, answer: "reply".into(), ..Ping::default() }
}

fn poll(cpu: u32, draw: &mut Draw) -> Poll {
    let stops = draw.between(0, 9000);
    Poll {
        cpu,
        runs: 100_000,
        polls: 200_000,
        packets: 2_000_000,
        budget_stops: stops,
        time_stops: stops,
        ..Poll::default()
    }
}

fn speed(cpu: u32, draw: &mut Draw) -> Speed {
    let one = |n: u64, draw: &mut Draw| {
        let ns = 300_000 + draw.between(0, 300_000);
        whyslow_model::table::Loop {
            at_ns: n * 400_000_000,
            wall_ns: ns,
            cpu_ns: ns,
            wait_ns: Some(0),
            work: 1_000_000,
            ..whyslow_model::table::Loop::default()
        }
    };
    Speed { cpu, loops: (0..24).map(|n| one(n, draw)).collect(), cycle_exact: true, ..Speed::default() }
}

fn cross_call(cpu: u32, pid: u32, draw: &mut Draw) -> CrossCall {
    CrossCall {
        pid,
        tgid: process_of(pid),
        cpu,
        function: draw.pick(&["do_flush_tlb_all", "aperfmperf_snapshot_khz"]).to_owned(),
        state: Some(draw.between(0, 4) as u32).filter(|s| *s < 4),
        count: 9,
        total_ns: draw.between(0, S / 9),
        paid_ns: draw.between(0, S / 9),
        worst_ns: S / 90,
        ..CrossCall::default()
    }
}

fn late_timer(cpu: u32, pid: u32, draw: &mut Draw) -> LateTimer {
    LateTimer {
        pid,
        tgid: process_of(pid),
        cpu,
        function: "hrtimer_wakeup".to_owned(),
        state: Some(draw.between(0, 4) as u32).filter(|s| *s < 4),
        count: 9,
        total_ns: draw.between(0, S / 9),
        paid_ns: draw.between(0, S / 9),
        worst_ns: S / 90,
        ..LateTimer::default()
    }
}

fn gap(cpu: u32, pid: u32, draw: &mut Draw) -> Gap {
    let ns = draw.between(1_000_000, S / 20);
    Gap {
        cpu,
        pid,
        tgid: process_of(pid),
        at_ns: draw.between(ns, WINDOW),
        ns,
        kernel: frames_of(draw),
        ..Gap::default()
    }
}

fn stat_read(pid: u32, draw: &mut Draw) -> StatRead {
    let (reads, worst_ns) = (draw.between(1, 90), draw.between(5_000_000, 40_000_000));
    let (fs, file) =
        draw.pick(&[("cgroup", "memory.stat"), ("proc", "/proc/stat"), ("proc", "/proc/PID/smaps")]);
    let (fs, file, ns) = (fs.to_owned(), file.to_owned(), reads * 5_000_000);
    StatRead { tgid: pid, pid, fs, file, reads, ns, worst_ns, ..StatRead::default() }
}

fn stall(cpu: u32, pid: u32, draw: &mut Draw) -> Stall {
    let Gap { tgid, at_ns, ns, kernel, .. } = gap(cpu, pid, draw);
    let ran = StallSeen { at_ns, count: 3, pid, tgid, kernel, ..StallSeen::default() };
    let kind = draw.pick(&["interrupts-off", "softirq-deferred", "long-poll"]).to_owned();
    Stall { cpu, at_ns, ns, kind, seen: vec![ran; draw.between(1, 4) as usize], ..Stall::default() }
}

fn irq_latencies(cpu: u32, draw: &mut Draw) -> Vec<IrqLatency> {
    let one = |state| IrqLatency { cpu, state, ..IrqLatency::default() };
    let states = draw.between(1, 4) as u32;
    (0..states).map(|state| one(Some(state))).chain([one(None)]).collect()
}

fn spin(pid: u32, draw: &mut Draw) -> Spin {
    Spin {
        tgid: process_of(pid),
        at: draw.between(0, 1 << 20),
        code: "f390ebfc".to_owned(),
        arch: "x86_64".to_owned(),
        ..Spin::default()
    }
}

/// Kernel files at both ends of the window, with a column or a line for each CPU where the kernel has one.
fn snapshots(size: Size, draw: &mut Draw) -> Vec<FileSnapshot> {
    let mut all = Vec::new();
    for end in [0, 1_u64] {
        let at = Duration::from_nanos(end * WINDOW);
        let mut add =
            |name: String, text: String| all.push(FileSnapshot { at, name, bytes: text.into_bytes() });
        let columns = |draw: &mut Draw| {
            (0..size.cpus).map(|_| format!(" {:>10}", end * draw.between(0, 9999))).collect::<String>()
        };
        let heads: String = (0..size.cpus).map(|cpu| format!("      CPU{cpu}")).collect();
        let lines: String = (0..u64::from(size.cpus))
            .map(|n| format!("{n}:{} IR-PCI-MSI {n}-edge eth-{n}\n", columns(draw)))
            .collect();
        add("proc/interrupts".into(), format!("{heads}\n{lines}"));
        let lines: String = ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "TASKLET", "SCHED", "RCU"]
            .map(|n| format!("{n:>12}:{}\n", columns(draw)))
            .concat();
        add("proc/softirqs".into(), format!("{heads}\n{lines}"));
        let ticks = |cpu: String, n: u64| {
            format!(
                "cpu{cpu} {} 0 {} {} 0 0 {} {} 0 0\n",
                end * 300 * n,
                end * 90 * n,
                end * 500 * n,
                end * 50 * n,
                end * 60 * n
            )
        };
        let lines: String = (0..size.cpus).map(|cpu| ticks(cpu.to_string(), 1)).collect();
        let sum = ticks(" ".into(), u64::from(size.cpus));
        add(
            "proc/stat".into(),
            format!(
                "{sum}{lines}intr 1 2 3\nctxt 9\nbtime 1700000000\nprocesses 9\nprocs_running 2\nprocs_blocked 0\n"
            ),
        );
        let line = |cpu: u32| {
            format!(
                "{:08x} 00000000 {:08x} 0 0 0 0 0 0 0 00000000 00000000 {cpu:08x}\n",
                end * 99_999,
                end * 500
            )
        };
        add("proc/net/softnet_stat".into(), (0..size.cpus).map(line).collect());
        add("proc/loadavg".into(), format!("{}.00 90.00 80.00 400/100000 99\n", size.cpus));
        add("proc/uptime".into(), format!("{}.00 9.00\n", 100_000 + 10 * end));
        for cpu in 0..size.cpus {
            let cpu_dir = format!("sys/devices/system/cpu/cpu{cpu}");
            for state in 0..4 {
                let dir = format!("{cpu_dir}/cpuidle/state{state}");
                for (file, text) in [
                    ("name", format!("C{state}")),
                    ("latency", format!("{}", state * 60)),
                    ("residency", format!("{}", state * 200)),
                    ("disable", "0".into()),
                    ("usage", format!("{}", end * 1000)),
                    ("time", format!("{}", end * 1_000_000)),
                ] {
                    add(format!("{dir}/{file}"), format!("{text}\n"));
                }
            }
            add(format!("{cpu_dir}/topology/thread_siblings_list"), format!("{cpu}\n"));
            add(format!("{cpu_dir}/thermal_throttle/core_throttle_count"), format!("{}\n", end));
            add(format!("{cpu_dir}/power/pm_qos_resume_latency_us"), "0\n".into());
            let policy = format!("sys/devices/system/cpu/cpufreq/policy{cpu}");
            for (file, text) in [
                ("scaling_driver", "acpi-cpufreq".into()),
                ("scaling_governor", "powersave".into()),
                ("affected_cpus", cpu.to_string()),
                ("scaling_min_freq", "1000000".into()),
                ("scaling_max_freq", "3000000".into()),
                ("cpuinfo_min_freq", "1000000".into()),
                ("cpuinfo_max_freq", "3000000".to_owned()),
            ] {
                add(format!("{policy}/{file}"), format!("{text}\n"));
            }
        }
        for group in 0..(size.cgroups / 100) {
            add(
                format!("sys/fs/cgroup/app-{group}.service/cpu.stat"),
                format!("usage_usec {}\n", end * 1000),
            );
            add(
                format!("sys/fs/cgroup/app-{group}.service/io.max"),
                "253:0 rbps=1048576 wbps=max riops=max wiops=max\n".into(),
            );
        }
        let quarter = (size.cpus / 4).max(1);
        for node in 0..4 {
            add(
                format!("sys/devices/system/node/node{node}/cpulist"),
                format!("{}-{}\n", node * quarter, node * quarter + quarter - 1),
            );
        }
        let disks: String = (0..300)
            .map(|n| format!("253 {n} vd{n} {0} 0 {0} {0} {0} 0 {0} {0} 0 {0} {0}\n", end * 999))
            .collect();
        add("proc/diskstats".into(), disks);
    }
    all
}
