//! Loops on this host, whatever else runs on it.

use super::*;

#[test]
fn visits_are_spread_over_the_window() {
    let window = Duration::from_secs(10);
    let moments: Vec<Duration> = (0..).map_while(|at| moment(at, window)).collect();
    assert_eq!(moments.len(), VISITS as usize);
    let early = moments.iter().filter(|at| **at < window / 2).count();
    assert_eq!(early * 2, moments.len(), "as many in each half");
    assert_eq!(moment(3, ENDLESS), Some(Duration::from_millis(800)));
    assert_eq!(moment(32, ENDLESS), None);
}

#[test]
fn a_round_is_over_before_the_next_begins() {
    assert_eq!(threads(2, Duration::from_millis(200)), 1);
    for (cpus, seconds) in [(2, 1), (128, 3), (128, 10), (1024, 10)] {
        let window = Duration::from_secs(seconds);
        let threads = threads(cpus, window);
        let round = VISIT * u32::try_from(cpus.div_ceil(threads)).unwrap();
        assert!(threads <= MOST_THREADS && round <= window / VISITS, "{cpus} CPUs, {window:?}: {threads}");
    }
    assert_eq!(threads(0, Duration::ZERO), 1);
}

#[test]
fn a_cpu_that_cannot_be_is_refused() {
    let asked = std::thread::spawn(|| (go_to(8191).is_err(), go_to(u32::MAX).is_err()));
    assert_eq!(asked.join().unwrap(), (true, true));
}

/// On a CPU that the hypervisor and other guests leave alone at times: the loops are there, whatever they cost, and agree with a
/// plain clock around the same work.
#[test]
fn root_every_cpu_is_measured_and_it_costs_little() {
    let window = Duration::from_millis(900);
    let speeds = Speeds::begin(window, &[], false).expect("x86-64 or arm64");
    std::thread::sleep(window); // the window itself
    let mut missing = Vec::new();
    let rows = speeds.end(&mut missing);
    assert_eq!(rows.len(), host::online_cpus(Path::new("/")).len());
    for row in rows.iter().filter(|row| row.skipped.is_none()) {
        // Time that interrupts and a hypervisor took within our loops is not our cost.
        let cost: u64 = row.loops.iter().map(|turn| turn.cpu_ns.min(turn.pieces * turn.best_ns * 2)).sum();
        assert!(cost < 50_000_000, "CPU {} gave {cost} ns", row.cpu);
        assert!(row.loops.iter().all(|turn| turn.work > 0 && turn.wall_ns > 0), "{row:?}");
        println!("CPU {}: {} loops, {} us of CPU", row.cpu, row.loops.len(), cost / 1000);
    }
    println!("{missing:?}");
}

/// This thread spins on `cpu` at the highest priority of ordinary tasks until it is stopped.
fn keep_busy(cpu: u32, stop: &std::sync::atomic::AtomicBool) {
    go_to(cpu).expect("it is online");
    // SAFETY: plain numbers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

#[test]
fn root_threads_that_get_no_cpu_do_not_hold_up_the_end() {
    let (stop, cpus) = (std::sync::atomic::AtomicBool::new(false), host::online_cpus(Path::new("/")));
    std::thread::scope(|scope| {
        for cpu in &cpus {
            scope.spawn(|| keep_busy(*cpu, &stop));
        }
        let speeds = Speeds::begin(Duration::from_millis(60), &[], true).expect("x86-64 or arm64");
        let shared = speeds.shared.clone();
        let until = |what: &str, is_so: &dyn Fn(&[libc::pid_t]) -> bool| {
            let began = std::time::Instant::now();
            while !is_so(&locked(&shared.threads)) {
                assert!(began.elapsed() < Duration::from_secs(20), "{what}: never");
                std::thread::yield_now();
            }
            began.elapsed()
        };
        until("a thread", &|threads| !threads.is_empty());
        let last = libc::sched_param { sched_priority: 0 };
        for thread in locked(&shared.threads).iter() {
            // SAFETY: plain numbers; it lives.
            let done = unsafe { libc::sched_setscheduler(*thread, libc::SCHED_IDLE, &raw const last) };
            assert_eq!(done, 0, "any process may");
        }
        speeds.end(&mut Vec::new());
        let took = until("no thread", &|threads| threads.is_empty());
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        // A task of SCHED_IDLE has 3 of 88764 shares beside such a thread: it gets its next 4 ms after a minute.
        assert!(took < Duration::from_secs(1), "{took:?}");
    });
}
