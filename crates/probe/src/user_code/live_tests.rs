//! The kernel half and the child, together, about this process.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use crate::bpf::oncpu::{OnCpu, Pace};
use crate::host::thread_cpu_ns;

const WINDOW: Duration = Duration::from_millis(900);

/// Works until it has had this much CPU time, and returns how much it had.
#[inline(never)]
fn innermost_of_three(ns: u64) -> u64 {
    let begin = thread_cpu_ns();
    let mut sum = 0u64;
    while thread_cpu_ns() - begin < ns {
        for turn in 0..20_000u64 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(turn));
        }
    }
    black_box(sum);
    thread_cpu_ns() - begin
}

#[inline(never)]
fn between_of_three(ns: u64) -> u64 {
    black_box(innermost_of_three(black_box(ns)))
}

#[inline(never)]
fn outermost_of_three(ns: u64) -> u64 {
    black_box(between_of_three(black_box(ns)))
}

#[test]
fn root_code_is_named_with_its_callers() {
    let mut slot = MaybeUninit::uninit();
    let cpus: Vec<u32> = (0..std::thread::available_parallelism().unwrap().get() as u32).collect();
    let mut probe = OnCpu::start(&mut slot, &cpus, Pace::Close).expect("root may sample");
    // SAFETY: gettid has no arguments and cannot fail.
    let me = unsafe { libc::gettid() } as u32;
    let (began, mut had) = (Instant::now(), 0);
    while began.elapsed() < WINDOW || had < WINDOW.as_nanos() as u64 / 2 {
        had += outermost_of_three(20_000_000);
        probe.poll().unwrap();
    }
    let (hits, names) = probe.finish_with_names().unwrap();
    let mine: Vec<_> = hits.iter().filter(|hit| hit.key.pid == me).collect();
    let count = |is_it: &dyn Fn(&[String]) -> bool| -> u64 {
        let told = |hit: &&&crate::bpf::oncpu::Hit| {
            let frames: Vec<String> =
                hit.user.iter().flat_map(|word| names.of(hit.key.tgid, *word)).collect();
            is_it(&frames)
        };
        mine.iter().filter(told).map(|hit| hit.count).sum()
    };
    let inside = |frames: &[String], name: &str| frames.iter().any(|frame| frame.contains(name));
    let all = count(&|_| true);
    let named = count(&|frames| inside(frames, "innermost_of_three"));
    let called = count(&|frames| {
        let at = |name: &str| frames.iter().position(|frame| frame.contains(name));
        at("innermost_of_three") < at("between_of_three")
            && at("between_of_three") < at("outermost_of_three")
            && at("innermost_of_three").is_some()
    });
    assert!(all >= 100, "{all} samples");
    assert!(named * 10 >= all * 8, "{named} of {all} are named");
    // Until its tables are there, frame pointers are followed, which this program does not have.
    assert!(called * 10 >= all * 7, "{called} of {all} have their callers");
}

/// A C library as a shared library, if this machine has one.
pub fn c_library() -> Option<std::path::PathBuf> {
    let folders = ["/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib", "/lib"];
    folders.iter().map(|folder| std::path::Path::new(folder).join("libc.so.6")).find(|path| path.exists())
}
