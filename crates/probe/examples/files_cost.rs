//! What does reading the files of this host cost, in CPU time? `files_cost 5000` first starts so many sleeping processes.

use std::path::Path;
use std::time::{Duration, Instant};

use whyslow_probe::files::{Files, Moment, RawFiles};

fn main() {
    let extra = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let sleepers = sleepers(extra);
    let mut seen = RawFiles::default();
    let busiest: Vec<u32> = sleepers.iter().take(20).map(|pid| *pid as u32).collect();
    let all = cpu();

    let mut files = timed("open", || Files::open(Path::new("/")));
    timed("start", || files.read(Moment::Start, Duration::ZERO, &[], &mut seen));
    for n in 1..=5 {
        timed("second", || files.read(Moment::Second, Duration::from_secs(n), &[], &mut seen));
    }
    timed("end", || files.read(Moment::End, Duration::from_secs(6), &busiest, &mut seen));
    timed("hazardous", || files.read_hazardous(Duration::from_secs(6), Duration::from_secs(1), &mut seen));

    let bytes: usize = seen.snapshots.iter().map(|frame| frame.bytes.len()).sum();
    println!("all       {:>8.2} ms CPU", ms(cpu().saturating_sub(all)));
    println!("{} frames, {bytes} bytes, {} missing", seen.snapshots.len(), seen.missing.len());
    for note in &seen.missing {
        println!("  {}", note.text);
    }
    for pid in sleepers {
        // SAFETY: our own children, not waited for yet.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
    }
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (clock, before) = (Instant::now(), cpu());
    let done = work();
    let (took, spent) = (clock.elapsed(), cpu().saturating_sub(before));
    println!("{what:<9} {:>8.2} ms CPU {:>8.2} ms", ms(spent), ms(took));
    done
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// CPU time of this process and of its children that were waited for.
fn cpu() -> Duration {
    let of = |who| {
        // SAFETY: all zero bytes are an rusage, and there is room for one.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &raw mut usage);
            usage
        };
        let time =
            |t: libc::timeval| Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64);
        time(usage.ru_utime) + time(usage.ru_stime)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}

fn sleepers(count: usize) -> Vec<libc::pid_t> {
    (0..count)
        .map_while(|_| {
            // SAFETY: no other thread is there to hold a lock.
            match unsafe { libc::fork() } {
                0 => loop {
                    // SAFETY: the child waits for signals, and dies with its parent.
                    unsafe {
                        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                        libc::pause();
                    }
                },
                pid => (pid > 0).then_some(pid),
            }
        })
        .collect()
}
