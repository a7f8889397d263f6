//! `whyslow cpu` on the live kernel: healthy CPUs are told as such, alone and at a load of 20, and their speeds are those of
//! an independent loop by the wall clock.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::spec::Work;
use whyslow_faults::{Fence, Victim, host};

whyslow_faults::may_become_victim!();

const WINDOW: Duration = Duration::from_secs(3);
/// Busy threads of the test's load.
const LOAD: u64 = 20;
/// What whyslow measures may differ by this from what the test does.
const EXACT: f64 = 0.10;
/// A host shared with others may be robbed of a CPU for longer than a window.
const TRIES: u32 = 3;

fn look(label: &str) -> Result<Value, Trouble> {
    let kept = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cpu-{label}.json"));
    let args = ["cpu", "--for", "3s", "--json"];
    let look = whyslow_faults::look::Look::now(env!("CARGO_BIN_EXE_whyslow").as_ref(), &args, WINDOW, &kept)?;
    Ok(look.document)
}

/// The fastest of many loops of a length of its own, on each CPU, in seconds: nothing of whyslow's is in it.
fn independent() -> Vec<f64> {
    let fastest = |cpu: usize| {
        std::thread::spawn(move || {
            let mut mask = [0u64; 16];
            mask[cpu / 64] = 1 << (cpu % 64);
            // SAFETY: the mask is as long as we say; 0 is this thread.
            let pinned =
                unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&mask), mask.as_ptr()) };
            assert_eq!(pinned, 0);
            let timed = |_| {
                let began = Instant::now();
                let turn = |x: u64, n: u64| std::hint::black_box(x.wrapping_mul(31) ^ n);
                std::hint::black_box((0..150_000u64).fold(1, turn));
                began.elapsed().as_secs_f64()
            };
            (0..300).map(timed).fold(f64::INFINITY, f64::min)
        })
        .join()
        .expect("it only computes")
    };
    host::cpus().into_iter().map(fastest).collect()
}

fn numbers(document: &Value, name: &str) -> Vec<f64> {
    document["cpus"].as_array().into_iter().flatten().filter_map(|cpu| cpu[name].as_f64()).collect()
}

/// No CPU is slow, each was measured, and they differ as they do by the other loop.
fn is_true(document: &Value, truth: &[f64]) -> Result<(), String> {
    let (slow, ours) = (numbers(document, "slow"), numbers(document, "million_s"));
    if !slow.is_empty() || ours.len() != truth.len() {
        return Err(format!("{:#}", document["cpus"]));
    }
    let (first, first_true) = (ours[0], truth[0]);
    let far = ours.iter().zip(truth).find(|(our, truth)| {
        let (told, measured) = (**our / first, **truth / first_true);
        (told / measured - 1.0).abs() > EXACT
    });
    far.map_or(Ok(()), |(our, truth)| Err(format!("{our} of {first}, and {truth} of {first_true}")))
}

fn healthy(label: &str, busy: Option<u64>) {
    let mut why = String::new();
    for _ in 0..TRIES {
        let fence = Fence::enter().expect("root may have cgroups");
        let group = fence.group("load").expect("and one below");
        let work = Work::Spin { burst_us: 500, rest_us: 0 };
        let load =
            busy.map(|threads| Victim::spawn(fence.spec(&group, "load", threads, work)).expect("it starts"));
        load.iter().for_each(Victim::go);
        let document = look(label).expect("whyslow answers");
        let truth = independent();
        fence.check_time().expect("in time");
        drop(load);
        match is_true(&document, &truth) {
            Ok(()) => {
                println!("live: passed: {label}: {:?} and {truth:?}", numbers(&document, "million_s"));
                return;
            }
            Err(differs) => why = differs,
        }
    }
    panic!("{label}: {why}");
}

#[test]
fn root_healthy_cpus_are_not_slow() {
    healthy("calm", None);
}

#[test]
fn root_healthy_cpus_are_not_slow_at_a_load_of_20() {
    healthy("load", Some(LOAD));
}
