//! What does the IRQ latency probe cost? Run time of each of its programs by the kernel's own count: on this host as it is, with
//! sleepers, and with a thread that makes the kernel call another CPU without a pause.

#![allow(clippy::print_stdout, reason = "a tool for developers")]

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libbpf_rs::btf::Btf;
use libbpf_rs::libbpf_sys;
use libbpf_rs::query::ProgInfoIter;
use whyslow_probe::bpf::irq_latency::{IrqLatency, Kernel};
use whyslow_probe::kallsyms::Kallsyms;

const LASTS: Duration = Duration::from_secs(3);
const OURS: [&str; 4] = ["idled", "expired", "queued", "entered"];

fn main() {
    let kernel = Btf::from_vmlinux().map(|btf| Kernel::of(&btf)).unwrap_or_default();
    let symbols = Kallsyms::read();
    measure("host as it is", &symbols, kernel, || std::thread::sleep(LASTS));
    measure("200 sleepers of 1 ms", &symbols, kernel, sleepers);
    println!("{:>12.0} membarrier calls a second without the probe", storm() as f64 / LASTS.as_secs_f64());
    let made = AtomicU64::new(0);
    measure("calls without a pause", &symbols, kernel, || made.store(storm(), Ordering::Relaxed));
    println!("{:>12.0} membarrier calls a second", made.load(Ordering::Relaxed) as f64 / LASTS.as_secs_f64());
}

fn measure(what: &str, symbols: &Kallsyms, kernel: Kernel, load: impl FnOnce()) {
    let mut slot = MaybeUninit::uninit();
    let began = Instant::now();
    let mut late = match IrqLatency::start(&mut slot, symbols, kernel) {
        Ok(late) => late,
        Err(why) => return println!("{why}"),
    };
    println!("{what}: loaded and attached in {} ms", began.elapsed().as_millis());
    late.begin();
    // SAFETY: takes a number, returns a descriptor, which is ours until the program ends.
    let statistics = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    load();
    let mut sum = 0;
    for program in ProgInfoIter::default() {
        let name = program.name.to_string_lossy().into_owned();
        if OURS.contains(&name.as_str()) && program.run_cnt > 0 {
            let each = program.run_time_ns / program.run_cnt;
            println!("{:>12} {name}: {each} ns each", program.run_cnt);
            sum += program.run_time_ns;
        }
    }
    println!("{:>12.3} % of a CPU", sum as f64 / LASTS.as_nanos() as f64 * 100.0);
    // SAFETY: the descriptor is ours, and closed once.
    unsafe { libc::close(statistics) };
    match late.finish() {
        Ok((seen, lost)) => {
            println!(
                "{:>12} rows, {} gaps, {} not measured, {lost} lost",
                seen.rows.len(),
                seen.gaps.len(),
                seen.unseen
            );
        }
        Err(why) => println!("{why}"),
    }
}

fn sleepers() {
    std::thread::scope(|scope| {
        for _ in 0..200 {
            scope.spawn(|| {
                let until = Instant::now() + LASTS;
                while Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
    });
}

/// How often a thread on CPU 0 made the kernel call the CPU of the thread on CPU 1.
fn storm() -> u64 {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        pin(0);
        // SAFETY: membarrier takes three numbers: register, then (below) private expedited.
        unsafe { libc::syscall(libc::SYS_membarrier, 1 << 4, 0, 0) };
        let (until, mut count) = (Instant::now() + LASTS, 0);
        while Instant::now() < until {
            // SAFETY: as above.
            unsafe { libc::syscall(libc::SYS_membarrier, 1 << 3, 0, 0) };
            count += 1;
        }
        stop.store(true, Ordering::Relaxed);
        count
    })
}

fn pin(cpu: usize) {
    // SAFETY: a zeroed set is an empty one; the pointer is to a local of the size that is reported.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
