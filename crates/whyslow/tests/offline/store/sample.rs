//! A recording like that of a host with many tasks, drawn from a seed.

use std::time::Duration;

use whyslow_model::table::{Cgroup, Cpu, Disk, Sample, Tables, Task, Wait};
use whyslow_model::{FileSnapshot, Meta, Missing, Recording};

/// Numbers drawn from a seed (xorshift64*).
pub struct Draw(u64);

impl Draw {
    /// From `seed`.
    pub fn new(seed: u64) -> Self {
        Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % end.max(1)
    }

    /// Mostly small, sometimes large, like real times.
    fn time(&mut self) -> u64 {
        let bits = self.below(34);
        self.below(1 << bits)
    }
}

/// A recording of `tasks` tasks.
pub fn recording(tasks: u32, seed: u64) -> Recording {
    let mut draw = Draw::new(seed);
    let window = Duration::from_secs(10);
    let mut snapshots = Vec::new();
    for at in [0, 5_000, 10_000] {
        for (name, lines) in FILES {
            if at == 5_000 && lines > 60 {
                continue;
            }
            let name = name.to_owned();
            snapshots.push(FileSnapshot {
                at: Duration::from_millis(at),
                name,
                bytes: text(lines, &mut draw),
            });
        }
        for group in 0..tasks / 25 {
            let name = format!("sys/fs/cgroup/cpu/app-{group}.slice/cpu.stat");
            snapshots.push(FileSnapshot { at: Duration::from_millis(at), name, bytes: text(3, &mut draw) });
        }
    }
    let rows = 0..tasks;
    let tables = Tables {
        tasks: Some(rows.clone().map(|i| task(i, &mut draw)).collect()),
        cgroups: Some((0..tasks / 25).map(cgroup).collect()),
        cpus: Some((0..16).map(|cpu| Cpu { cpu, samples: draw.time(), ..Cpu::default() }).collect()),
        disk: Some(
            (0..30)
                .map(|i| Disk { dev: format!("253:{i}"), requests: draw.time(), ..Disk::default() })
                .collect(),
        ),
        waits: Some(rows.clone().step_by(3).map(|i| wait(i, &mut draw)).collect()),
        samples: Some(rows.step_by(2).map(|i| sample(i, &mut draw)).collect()),
        ..Tables::default()
    };
    let meta = Meta {
        whyslow: "0.1.0".to_owned(),
        host: "web-3".to_owned(),
        kernel: "6.18.44".to_owned(),
        started_at: "2026-03-01T10:00:00Z".to_owned(),
        window_ns: window.as_nanos() as u64,
        cpus: 16,
        clock_ticks: 100,
        page_size: 4096,
        privileged: true,
        lost_events: vec![("sched".to_owned(), 3)],
        ..Meta::default()
    };
    let missing = vec![Missing::not_recorded("proc/schedstat").into()];
    Recording { meta, snapshots, tables, missing, torn: None }
}

/// Kernel files and their numbers of lines.
const FILES: [(&str, u64); 14] = [
    ("proc/stat", 30),
    ("proc/vmstat", 180),
    ("proc/meminfo", 55),
    ("proc/pressure/cpu", 2),
    ("proc/pressure/io", 2),
    ("proc/pressure/memory", 2),
    ("proc/diskstats", 30),
    ("proc/softirqs", 11),
    ("proc/interrupts", 90),
    ("proc/net/netstat", 4),
    ("proc/net/softnet_stat", 16),
    ("proc/mounts", 60),
    ("dev/kmsg", 900),
    ("proc/modules", 120),
];

fn text(lines: u64, draw: &mut Draw) -> Vec<u8> {
    let line = |i| format!("counter_{i} {} {} 0 0 {}\n", draw.time(), draw.time(), draw.below(100));
    (0..lines).map(line).collect::<String>().into_bytes()
}

fn task(i: u32, draw: &mut Draw) -> Task {
    let busy = draw.below(4) == 0;
    let mut some = |of: u64| if busy { draw.time() / of } else { 0 };
    Task {
        pid: 1000 + i,
        tgid: 1000 + i / 4 * 4,
        ppid: 1,
        comm: format!("worker/{}", i % 40),
        cmdline: i
            .is_multiple_of(4)
            .then(|| format!("/usr/bin/service --id {i} --config /etc/service/{}.toml", i % 40)),
        cpu_cgroup: u64::from(i / 25) + (2 << 56),
        memory_cgroup: u64::from(i / 25) + (3 << 56),
        lived_ns: 10_000_000_000,
        exec_ns: some(1),
        run_delay_ns: some(1),
        switches_in: some(100_000),
        voluntary: some(100_000),
        involuntary: some(1_000_000),
        allowed: "0-15".to_owned(),
        allowed_count: 16,
        weight: 1024,
        traced_ns: some(1),
        runnable_ns: some(1),
        runnable_worst_ns: some(10),
        runnable_count: some(100_000),
        io_ns: some(3),
        sleep_ns: some(1),
        sleep_count: some(100_000),
        cycles: some(100_000),
        awake: some(1000),
        rest: some(1000),
        awake_awake: some(1),
        ..Task::default()
    }
}

fn cgroup(i: u32) -> Cgroup {
    let path = format!("/app-{i}.slice");
    let files = Some(format!("/sys/fs/cgroup/cpu{path}"));
    let (id, name) = (u64::from(i) + (2 << 56), format!("app-{i}.slice"));
    Cgroup { id, name, path, files, controllers: vec!["cpu".to_owned()], ..Cgroup::default() }
}

fn stack(draw: &mut Draw) -> Vec<String> {
    let depth = 4 + draw.below(24);
    (0..depth)
        .map(|_| format!("service::module_{}::function+0x{:x}", draw.below(60), draw.below(9) * 16))
        .collect()
}

fn wait(i: u32, draw: &mut Draw) -> Wait {
    let (pid, state) = (1000 + i, "io".to_owned());
    Wait { pid, state, ns: draw.time(), count: 1 + draw.below(9), kernel: stack(draw), ..Wait::default() }
}

fn sample(i: u32, draw: &mut Draw) -> Sample {
    let (kernel, user) = (stack(draw), stack(draw));
    Sample {
        pid: 1000 + i,
        comm: format!("worker/{}", i % 40),
        count: 1,
        ns: 10_101_010,
        kernel,
        user,
        ..Sample::default()
    }
}
