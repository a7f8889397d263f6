//! A simulated host as a recording.

use std::time::Duration;

use whyslow_model::table::{Loop, Run, Speed, Tables};
use whyslow_model::{FileSnapshot, Meta, Recording};

use super::scheduler::{MS, Seen, WINDOW};
use super::shapes::Shape;

/// Ticks of /proc/stat before the window.
const BEFORE: u64 = 100_000;

/// What a probe and the kernel's files would have told.
pub fn recording(shape: &Shape) -> Recording {
    let mut seen = shape.host.run();
    if shape.v1 {
        number(&mut seen);
    }
    unfold(&mut seen);
    if !shape.host.stolen.is_empty() {
        hide_steal(&mut seen);
    }
    let mut snapshots = Vec::new();
    for end in [0, 1_u64] {
        let mut add = |name: &str, text: String| {
            let at = Duration::from_millis(end * WINDOW as u64);
            snapshots.push(FileSnapshot { at, name: name.to_owned(), bytes: text.into_bytes() });
        };
        add("proc/stat", stat(&seen, end));
        add("proc/uptime", format!("{}.00 9000.00\n", 50_000 + 10 * end));
        add("proc/vmstat", include_str!("captures/vmstat").to_owned());
        if end == 1 {
            add("proc/meminfo", include_str!("captures/meminfo").to_owned());
            for (name, text) in &shape.files {
                add(name, text.clone());
            }
        }
    }
    let speeds = shape.name.contains("cores").then(|| (0..shape.host.cpus).map(speed).collect());
    let tables = Tables {
        tasks: Some(seen.tasks),
        cgroups: Some(seen.cgroups),
        runs: Some(Vec::<Run>::new()),
        speeds,
        ..Tables::default()
    };
    let meta = Meta {
        whyslow: "0.1.0".to_owned(),
        host: shape.name.to_owned(),
        kernel: shape.kernel.to_owned(),
        started_at: "2026-11-21T10:00:00Z".to_owned(),
        window_ns: WINDOW as u64 * MS,
        cpus: shape.host.cpus,
        clock_ticks: 100,
        page_size: 4096,
        privileged: true,
        ..Meta::default()
    };
    Recording { meta, snapshots, tables, missing: vec![], torn: None }
}

fn stat(seen: &Seen, end: u64) -> String {
    let line = |name: &str, n: u64, busy: u64, stolen: u64| {
        let idle = (n * WINDOW as u64 - busy - stolen) * end / 10;
        let (busy, stolen) = (end * busy / 10, end * stolen / 10);
        format!(
            "cpu{name} {} 0 {} {} 0 0 0 {} 0 0\n",
            n * BEFORE + busy,
            n * BEFORE,
            n * BEFORE * 9 + idle,
            n * 900 + stolen
        )
    };
    let sum = seen.busy.iter().fold((0, 0), |sum, cpu| (sum.0 + cpu.0, sum.1 + cpu.1));
    let each: String = seen
        .busy
        .iter()
        .enumerate()
        .map(|(at, (busy, stolen))| line(&at.to_string(), 1, *busy, *stolen))
        .collect();
    let first = line(" ", seen.busy.len() as u64, sum.0, sum.1);
    format!(
        "{first}{each}intr 90000 0 0\nctxt 500000\nbtime 1795263779\nprocesses 90000\nprocs_running 2\nprocs_blocked 0\n"
    )
}

/// Version 1: one hierarchy for CPU time, one for memory, each with ids of its own. Kept short: only groups that hold tasks, and
/// those above them, are in the table, as probes see them.
fn number(seen: &mut Seen) {
    let (cpu, memory) = (2 << 56, 3 << 56);
    let mut rows = Vec::new();
    for group in &seen.cgroups {
        for (hierarchy, controller) in [(cpu, "cpu"), (memory, "memory")] {
            let mut row = group.clone();
            row.id |= hierarchy;
            row.parent = if row.parent == 0 { 0 } else { row.parent | hierarchy };
            row.controllers = vec![controller.to_owned()];
            row.files = Some(format!("/sys/fs/cgroup/{controller}{}", row.path.trim_end_matches('/')));
            row.cpu = row.cpu.filter(|_| controller == "cpu");
            row.memory = row.memory.filter(|_| controller == "memory");
            rows.push(row);
        }
    }
    seen.cgroups = rows;
    for task in &mut seen.tasks {
        task.cpu_cgroup |= cpu;
        task.memory_cgroup |= memory;
        task.io_cgroup = 0;
        task.unified_cgroup = 0;
    }
}

/// A row that stands for others holds their times, too.
fn unfold(seen: &mut Seen) {
    let mut more = 0;
    for row in seen.tasks.iter_mut().filter(|row| row.folded > 0) {
        more += row.exec_ns * row.folded / MS;
        for sum in [
            &mut row.lived_ns,
            &mut row.exec_ns,
            &mut row.traced_ns,
            &mut row.runnable_ns,
            &mut row.run_delay_ns,
        ] {
            *sum *= row.folded + 1;
        }
    }
    let cpus = seen.busy.len() as u64;
    for (busy, _) in &mut seen.busy {
        *busy += more / cpus;
    }
}

/// The guest's kernel does not know when it does not run: whose CPU was taken was on it, without CPU time.
fn hide_steal(seen: &mut Seen) {
    for row in &mut seen.tasks {
        row.traced_ns += row.runnable_ns;
        (row.runnable_ns, row.run_delay_ns, row.runnable_count, row.runnable_worst_ns) = (0, 0, 0, 0);
    }
}

/// Loops of a hybrid machine: a slow core takes 1.6 times as long.
fn speed(cpu: u32) -> Speed {
    let ns = if cpu >= 16 { 416_000 } else { 260_000 };
    let one = |n: u64| Loop {
        at_ns: n * 400 * MS,
        wall_ns: ns + n * 97 % 2000,
        cpu_ns: ns + n * 97 % 2000,
        wait_ns: Some(0),
        work: 1_000_000,
        pieces: 100,
        best_ns: ns / 100,
        ticks: ns * 3,
    };
    Speed { cpu, loops: (0..24).map(one).collect(), cycle_exact: true, ..Speed::default() }
}
