use std::fs::File;
use std::io::Read as _;
use std::mem::MaybeUninit;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::bpf::oncpu::{OnCpu, Pace};
use crate::bpf::tested_c::Program;

/// Feeds samples of one thread, one a line ("born count switches at late"), to the C that the kernel runs; prints of each whether it goes on,
/// and the times.
const HARNESS: &str = r#"
#include <stdio.h>
#include "stat_time.bpf.h"
int main(void)
{
	struct stat_reader before = { 0 };
	unsigned long long period, late;
	int first = 1;

	if (scanf("%llu", &period) != 1)
		return 1;
	for (;;) {
		struct stat_reader now = { 0 };

		if (scanf("%llu %llu %llu %llu %llu", &now.born, &now.count, &now.switches, &now.last, &late) != 5)
			return 0;
		printf("%d ", stat_goes_on(&now, first ? 0 : &before, period, late));
		printf("%llu %llu %llu\n", now.ns, now.least_ns, now.late_ns);
		before = now;
		first = 0;
	}
}
"#;

const PERIOD: u64 = 5_000;

fn run_c(lines: &str) -> Vec<[u64; 4]> {
    static BUILT: OnceLock<Program> = OnceLock::new();
    let numbers = BUILT.get_or_init(|| Program::of("stat-time", HARNESS)).run(&format!("{PERIOD} {lines}"));
    numbers.chunks(4).map(|row| [row[0], row[1], row[2], row[3]]).collect()
}

/// What a thread does: a read of so much CPU time, which is interrupted by sleeps after these parts of it, and then user code.
#[derive(Debug, Clone)]
struct Read {
    parts: Vec<(u64, u64)>,
    behind: u64,
}

fn any_read() -> impl Strategy<Value = Read> {
    let part = (1..12 * PERIOD, 1..9 * PERIOD);
    (proptest::collection::vec(part, 1..4), 0..3 * PERIOD).prop_map(|(parts, behind)| Read { parts, behind })
}

/// The samples, by a timer that is never late, with the number of their read; and the CPU time of each read.
fn simulate(reads: &[Read], phase: u64) -> (String, Vec<usize>, Vec<u64>) {
    let (mut now, mut switches, mut lines, mut met) = (0_u64, 0, String::new(), Vec::new());
    for (number, read) in reads.iter().enumerate() {
        for (ran, slept) in &read.parts {
            let first = now.saturating_sub(phase).div_ceil(PERIOD);
            for at in (first..).map(|turn| phase + turn * PERIOD).take_while(|at| *at < now + ran) {
                lines.push_str(&format!("7 {number} {switches} {at} 0\n"));
                met.push(number);
            }
            now += ran + slept;
            switches += 1;
        }
        now += read.behind;
    }
    (lines, met, reads.iter().map(|read| read.parts.iter().map(|(ran, _)| ran).sum()).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_length_of_a_read_is_its_cpu_time(reads in proptest::collection::vec(any_read(), 1..12), phase in 0..PERIOD) {
        let (lines, met, truth) = simulate(&reads, phase);
        let seen = run_c(&lines);
        prop_assert_eq!(seen.len(), met.len());
        for (at, [goes_on, ns, least, _]) in seen.iter().enumerate() {
            prop_assert_eq!(*goes_on == 1, at > 0 && met[at - 1] == met[at]);
            let (ran, parts) = (truth[met[at]], reads[met[at]].parts.len() as u64);
            prop_assert!(*least <= ran, "without doubt {} of {}", least, ran);
            prop_assert!(*ns <= ran + parts * PERIOD, "{} of {}", ns, ran);
            if met.get(at + 1) != Some(&met[at]) {
                prop_assert!(*ns + parts * PERIOD >= ran, "{} of {}", ns, ran);
                prop_assert!(*least + 2 * parts * PERIOD >= ran, "{} of {}", least, ran);
            }
        }
    }
}

#[test]
fn another_thread_of_the_same_number_begins_anew_and_a_late_timer_counts() {
    let seen = run_c("7 3 1 10000 0\n7 3 1 15000 0\n8 3 1 20000 0\n8 4 1 70000 45000\n8 4 1 120000 45000\n");
    assert_eq!(seen[1], [1, 10_000, 5_000, 0]);
    assert_eq!(seen[2], [0, 5_000, 0, 0], "a thread that was born later");
    assert_eq!(seen[3], [0, 50_000, 45_000, 45_000], "one sample, at the end of a time without interrupts");
    assert_eq!(seen[4], [1, 100_000, 95_000, 90_000]);
    let backward = run_c("7 3 1 10000 0\n7 3 1 9000 0\n");
    assert_eq!(backward[1], [1, 5_000, 0, 0], "the clock of another CPU");
}

#[test]
fn files_are_named_as_a_user_would_write_them() {
    let told = |magic: libc::c_long, place, name: &str, folder: &str| {
        let (mut file, mut cost) =
            (stat_file { magic: magic as u64, place, ..stat_file::default() }, stat_cost::default());
        name.bytes().enumerate().for_each(|(at, byte)| file.name[at] = byte as std::ffi::c_char);
        folder.bytes().enumerate().for_each(|(at, byte)| cost.folder[at] = byte as std::ffi::c_char);
        let row = row(&file, &cost);
        (row.fs, row.file, row.folder)
    };
    let is = |fs: &str, file: &str, folder: &str| (fs.to_owned(), file.to_owned(), folder.to_owned());
    assert_eq!(told(libc::PROC_SUPER_MAGIC, STAT_IN_ROOT, "stat", "/"), is("proc", "/proc/stat", ""));
    assert_eq!(
        told(libc::PROC_SUPER_MAGIC, STAT_OF_PROCESS, "smaps", "17"),
        is("proc", "/proc/PID/smaps", "17")
    );
    assert_eq!(
        told(libc::CGROUP2_SUPER_MAGIC, STAT_IN_ROOT, "memory.stat", "/"),
        is("cgroup2", "memory.stat", "")
    );
    assert_eq!(
        told(libc::CGROUP_SUPER_MAGIC, 3, "memory.stat", "docker"),
        is("cgroup", "memory.stat", "docker")
    );
    assert_eq!(told(1, 9, "x", ""), is("", "x", ""));
}

/// A process of ours, which ends with us.
struct Beside(Child);

impl Beside {
    fn shell(line: &str) -> Self {
        Beside(Command::new("sh").args(["-c", line]).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Make so many mappings that each read of our own smaps_rollup, which is one call, takes tens of milliseconds.
fn be_slow_to_tell() {
    const MAPPINGS: usize = 29_000; // two of them each: vm.max_map_count is 65,530
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    // SAFETY: memory of this test alone, which it neither reads nor writes.
    unsafe {
        let all = libc::mmap(
            std::ptr::null_mut(),
            2 * MAPPINGS * 4096,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        );
        assert_ne!(all, libc::MAP_FAILED);
        for at in 0..MAPPINGS {
            assert_eq!(libc::mprotect(all.byte_add(2 * at * 4096), 4096, libc::PROT_READ), 0);
        }
    }
}

/// Time that this thread waited for a CPU so far, and how often it got one (proc_pid_schedstat in fs/proc/base.c).
fn turns() -> (Duration, u32) {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let numbers: Vec<u64> = told.split_whitespace().map(|number| number.parse().unwrap()).collect();
    (Duration::from_nanos(numbers[1]), u32::try_from(numbers[2]).unwrap())
}

/// Reads a file: how long the read call had a CPU, and in how many turns. The CPU clock of a thread leaves out what a hypervisor gave to
/// other guests meanwhile (update_rq_clock_task, kernel/sched/core.c); a read lasts as long as its CPU is not given to another thread.
fn read(path: &str) -> (Duration, u32) {
    let (mut file, mut bytes) = (File::open(path).unwrap(), [0; 4096]);
    let (before, began) = (turns(), Instant::now());
    assert!(file.read(&mut bytes).unwrap() > 0);
    let took = began.elapsed();
    let after = turns();
    (took.saturating_sub(after.0.saturating_sub(before.0)), 1 + after.1 - before.1)
}

#[test]
fn root_reads_are_counted_and_as_long_as_their_reader_says() {
    const READS: u32 = 12;
    be_slow_to_tell();
    let innocent = Beside::shell("while :; do read line < /proc/uptime; done");
    let mut slot = MaybeUninit::uninit();
    let mut probe = OnCpu::start(&mut slot, &[0, 1], Pace::Calm).expect("root may sample");
    let mut took = Vec::new();
    for _ in 0..READS {
        took.push(read("/proc/self/smaps_rollup"));
        // Long enough for a CPU that idles to stop its timers: that time is no part of the next read.
        std::thread::sleep(Duration::from_millis(60));
    }
    probe.finish().unwrap();
    let (rows, lost) = probe.stat_reads().unwrap().expect("this kernel counts reads");
    assert_eq!((lost, probe.lost()), (0, 0));
    let me = std::process::id();
    let row =
        rows.iter().find(|row| row.tgid == me && row.file == "/proc/PID/smaps_rollup").expect("it was read");
    let told = |ns: u64| Duration::from_nanos(ns);
    let period = Pace::Calm.period();
    let all: Duration = took.iter().map(|(ran, _)| *ran).sum();
    // A first sample of each turn stands for a whole period.
    let worst = took.iter().map(|(ran, turns)| *ran + period * *turns).max().unwrap();
    println!("{row:?}\nthe reader: {READS} reads, {all:?}, at most {worst:?}");
    assert_eq!(row.reads, u64::from(READS), "each lasted several periods: {took:?}");
    assert!(row.long_reads <= row.reads && row.long_ns <= row.ns && row.late_ns <= row.long_ns);
    let surely = took
        .iter()
        .filter(|(ran, _)| *ran < Duration::from_nanos(whyslow_model::stat_read::LONG_READ_NS))
        .count();
    assert!(row.long_reads + surely as u64 <= u64::from(READS), "a short read is not long: {took:?}");
    assert!(told(row.ns).abs_diff(all) < all / 5 + period, "{:?} of {all:?}", told(row.ns));
    assert!(told(row.worst_ns) <= worst, "{:?}", told(row.worst_ns));
    assert!(told(row.worst_ns) + period >= all / READS, "the longest is not below the mean");
    let its = rows.iter().filter(|row| row.tgid == innocent.0.id());
    let its: Vec<&StatRead> = its.collect();
    assert!(its.iter().all(|row| row.file == "/proc/uptime"), "{its:?}");
    assert!(
        its.iter().all(|row| row.long_reads == 0 && row.worst_ns < 3 * period.as_nanos() as u64),
        "{its:?}"
    );
    assert!(rows.iter().all(|row| row.file != "/proc/uptime" || row.tgid != me));
}
