//! What does it cost a command to have its system calls followed? CPU time of the command with the probe and without, in turns.
//!
//! `calls_cost PAIRS COMMAND ARGS...` as root. Prints the median ratio, its range, and the busiest rows.

use std::io::Write as _;
use std::mem::MaybeUninit;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use whyslow_probe::bpf::calls::{Calls, RawCalls};
use whyslow_probe::bpf::sched::{Budget, Layout, Sched};

fn main() {
    let mut args = std::env::args().skip(1);
    let pairs: usize = args.next().and_then(|n| n.parse().ok()).expect("calls_cost PAIRS COMMAND ARGS...");
    let argv: Vec<String> = args.collect();
    let mut ratios = Vec::new();
    let mut seen = RawCalls::default();
    for _ in 0..pairs {
        let alone = finish(start(&argv), || ());
        let (with, rows) = traced(&argv);
        ratios.push(with.as_secs_f64() / alone.as_secs_f64());
        seen = rows;
    }
    ratios.sort_by(f64::total_cmp);
    let at =
        |share: f64| ratios.get((share * (pairs - 1) as f64).round() as usize).copied().unwrap_or_default();
    println!("ratio {:.2}, {:.2} to {:.2}, {pairs} pairs", at(0.5), at(0.0), at(1.0));
    seen.rows.sort_by_key(|row| std::cmp::Reverse(row.total_ns));
    for row in seen.rows.iter().take(40) {
        let path = row.path.as_deref().unwrap_or("-");
        println!(
            "{:>4} {:>9} calls {:>12} ns {:>6} errors {path}",
            row.nr, row.count, row.total_ns, row.errors
        );
    }
}

fn traced(argv: &[String]) -> (Duration, RawCalls) {
    let (mut sched_slot, mut slot) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut sched =
        Sched::load(&mut sched_slot, Layout::default(), Budget::of(cpus, true)).expect("root may load it");
    sched.begin().expect("root may trace the scheduler");
    let mut calls =
        Calls::start(&mut slot, Some(sched.shared()), None, false).expect("root may trace system calls");
    let child = start(argv);
    calls.follow(child.id()).expect("the map is there");
    let spent = finish(child, || {
        calls.poll().expect("it is attached");
    });
    (spent, calls.finish().expect("it was attached").0)
}

/// The command waits until it gets a line on stdin.
fn start(argv: &[String]) -> Child {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "read go; exec \"$0\" \"$@\""]).args(argv);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a shell is there")
}

/// CPU time of the command. `beat` is called now and then.
fn finish(mut child: Child, mut beat: impl FnMut()) -> Duration {
    child.stdin.take().expect("it is a pipe").write_all(b"\n").expect("the command waits");
    let mut status = 0;
    // SAFETY: all zeros is a valid rusage.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both are ours, and the child is not yet waited for.
    while unsafe { libc::wait4(child.id().cast_signed(), &raw mut status, libc::WNOHANG, &raw mut used) } == 0
    {
        beat();
        std::thread::sleep(Duration::from_millis(100));
    }
    let time =
        |t: libc::timeval| Duration::new(t.tv_sec.cast_unsigned(), t.tv_usec.cast_unsigned() as u32 * 1000);
    time(used.ru_utime) + time(used.ru_stime)
}
