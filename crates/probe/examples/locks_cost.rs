//! What do the lock and work item probes cost? Pairs of one load without and with them, and the time in nanoseconds of each run of a
//! program. As root: cargo run --release -p whyslow-probe --example locks_cost [LOAD]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::time::Instant;

use libbpf_rs::libbpf_sys;
use libbpf_rs::query::ProgInfoIter;
use whyslow_probe::bpf::locks::Locks;
use whyslow_probe::bpf::work::Work;

const PAIRS: usize = 31;

fn main() {
    let loads: [(&str, fn()); 5] = [
        ("mmap_lock", mmap_lock),
        ("mmap_lock, readers", readers),
        ("one directory", directory),
        ("pty", pty),
        ("pipes on two CPUs", pipes),
    ];
    let only = std::env::args().nth(1);
    for (name, load) in loads.into_iter().filter(|(name, _)| only.as_deref().is_none_or(|only| *name == only))
    {
        load();
        let mut ratios: Vec<f64> = (0..PAIRS).map(|at| pair(load, at % 2 == 0)).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |share: f64| ratios[((PAIRS - 1) as f64 * share) as usize];
        println!("{name}: CPU ratio {:.3} (quartiles {:.3}, {:.3})", at(0.5), at(0.25), at(0.75));
        runs(load);
    }
    walk();
}

/// CPU time of the load with the probes, divided by that without.
fn pair(load: fn(), first: bool) -> f64 {
    let without = |_: &()| cpu_of(load);
    let bare = first.then(|| without(&()));
    let (mut locks, mut work) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let probes =
        (Locks::start(&mut locks, None, &[0, 1]).expect("as root"), Work::start(&mut work).expect("as root"));
    let with = cpu_of(load);
    drop(probes);
    with / bare.unwrap_or_else(|| without(&()))
}

fn cpu_of(load: fn()) -> f64 {
    let before = cpu();
    load();
    cpu() - before
}

fn cpu() -> f64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a local of that type, whose bytes may all be zero.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Runs of our programs during one run of the load, and how long each took, by the kernel's statistics.
fn runs(load: fn()) {
    let (mut locks, mut work) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let probe = Locks::start(&mut locks, None, &[0, 1]).expect("as root");
    let work = Work::start(&mut work).expect("as root");
    // SAFETY: takes a number, returns a new descriptor or a negative error.
    let _statistics = unsafe { OwnedFd::from_raw_fd(libbpf_sys::bpf_enable_stats(0)) };
    let began = Instant::now();
    load();
    let took = began.elapsed();
    for program in ProgInfoIter::default() {
        let name = program.name.to_string_lossy();
        if program.run_cnt > 0 && ["begins", "ends", "again", "queued", "starts"].contains(&&*name) {
            println!("    {name}: {} runs of {} ns", program.run_cnt, program.run_time_ns / program.run_cnt);
        }
    }
    let items = work.finish().expect("it runs").0.rows;
    for (_, row) in items.iter().filter(|(_, row)| row.count > 100) {
        println!(
            "    {} items of one function, {} seen to be queued, {} us queued and {} us running each",
            row.count,
            row.queued_count,
            row.queued_ns / 1000 / row.queued_count.max(1),
            row.ran_ns / 1000 / row.count
        );
    }
    let (seen, lost) = probe.finish().expect("it runs");
    let waits: u64 = seen.rows.iter().map(|row| row.count).sum();
    let total: u64 = seen.rows.iter().map(|row| row.total_ns).sum();
    println!(
        "    {took:?}: {waits} waits of {} us, {} rows, {} holds, {} dropped, {lost} lost",
        total / 1000 / waits.max(1),
        seen.rows.len(),
        seen.holds.len(),
        seen.shed
    );
}

/// Two threads fault pages in while two map and unmap.
fn mmap_lock() {
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..40 {
                    let at = map(1 << 20);
                    for page in 0..256 {
                        // SAFETY: within the mapping.
                        unsafe { at.add(page * 4096).write_volatile(1) };
                    }
                    unmap(at, 1 << 20);
                }
            });
            scope.spawn(|| (0..20_000).for_each(|_| unmap(map(4096), 4096)));
        }
    });
}

/// Two threads ask for the state of a page, which takes mmap_lock for reading, while two map and unmap: readers do not spin.
fn readers() {
    let page = map(4096) as usize;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let mut byte = 0u8;
                    // SAFETY: asks for one page, whose answer is one byte.
                    unsafe { libc::mincore(page as *mut libc::c_void, 4096, &raw mut byte) };
                }
            });
            scope.spawn(|| (0..20_000).for_each(|_| unmap(map(4096), 4096)));
        }
    });
}

/// A new mapping of this length.
fn map(len: usize) -> *mut u8 {
    // SAFETY: a new private mapping.
    let at = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

fn unmap(at: *mut u8, len: usize) {
    // SAFETY: it was mapped with that length, and nothing uses it.
    assert_eq!(unsafe { libc::munmap(at.cast(), len) }, 0);
}

/// Three threads make and remove files in one directory.
fn directory() {
    let dir = std::env::temp_dir().join(format!("whyslow-test-{}-cost", std::process::id()));
    std::fs::create_dir(&dir).expect("it is new");
    std::thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            let path = dir.join(name);
            scope.spawn(move || {
                for _ in 0..2_000 {
                    drop(File::create(&path));
                    let _ = std::fs::remove_file(&path);
                }
            });
        }
    });
    let _ = std::fs::remove_dir(dir);
}

/// Each byte through a pseudo terminal is a work item.
fn pty() {
    let (mut one, mut other) = (-1, -1);
    // SAFETY: the pointers are to locals; the descriptors are new.
    let (mut one, mut other) = unsafe {
        let none = std::ptr::null_mut::<u8>();
        assert_eq!(libc::openpty(&raw mut one, &raw mut other, none.cast(), none.cast(), none.cast()), 0);
        let mut raw = MaybeUninit::<libc::termios>::zeroed();
        libc::cfmakeraw(raw.as_mut_ptr());
        libc::tcsetattr(other, libc::TCSANOW, raw.as_ptr());
        (File::from_raw_fd(one), File::from_raw_fd(other))
    };
    echo(&mut one, &mut other, 5_000);
}

fn pipes() {
    let (mut reader, mut writer) = std::io::pipe().expect("descriptors are left");
    std::thread::scope(|scope| {
        scope.spawn(move || (0..100_000).for_each(|_| drop(writer.write_all(&[1]))));
        let mut byte = [0];
        while reader.read_exact(&mut byte).is_ok() {}
    });
}

fn echo(one: &mut File, other: &mut File, times: usize) {
    let mut byte = [0];
    for _ in 0..times {
        one.write_all(b"x").expect("it is open");
        other.read_exact(&mut byte).expect("it is open");
    }
}

/// One walk over all tasks, with so many more of them.
fn walk() {
    let mut slot = MaybeUninit::uninit();
    let probe = Locks::start(&mut slot, None, &[0, 1]).expect("as root");
    for threads in [0, 2_000] {
        let gate = std::sync::Barrier::new(threads + 1);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let gate = &gate;
                std::thread::Builder::new()
                    .stack_size(16 << 10)
                    .spawn_scoped(scope, move || gate.wait())
                    .expect("there is room for threads");
            }
            let before = cpu();
            (0..20).for_each(|_| drop(probe.sample()));
            println!(
                "one walk over all tasks, {threads} more threads: {:.2} ms of CPU",
                (cpu() - before) * 50.0
            );
            gate.wait();
        });
    }
}
