use std::fs::File;
use std::io::Write as _;
use std::os::fd::FromRawFd as _;

use super::*;
use crate::host::monotonic_ns as now_ns;
use crate::kallsyms::Kallsyms;
use crate::symbols::KernelNames;
use crate::work_table;

/// Make a network namespace, and leave it: the kernel deletes it in a work item.
fn use_up_a_namespace() {
    let thread = std::thread::spawn(|| {
        // SAFETY: concerns this thread alone, which ends.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "{}", std::io::Error::last_os_error());
    });
    thread.join().unwrap();
}

#[test]
fn root_the_deletion_of_network_namespaces_is_a_work_item_that_runs_long() {
    let cleanup = Kallsyms::read().address("cleanup_net").expect("network namespaces are in this kernel");
    let mut slot = MaybeUninit::uninit();
    let begin = now_ns();
    let probe = Work::start(&mut slot).unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    use_up_a_namespace();
    while !probe.rows().unwrap().iter().any(|(function, row)| *function == cleanup && row.queued_count > 0) {
        assert!(Instant::now() < until, "no namespace was deleted in 30 s");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (seen, lost) = probe.finish().unwrap();
    let window = now_ns() - begin;
    let works = work_table::works(&seen, begin, window, &mut KernelNames::from(&Kallsyms::read()));
    let work = works.iter().find(|w| w.function == "cleanup_net").expect("it has its name");
    assert_eq!(lost, 0);
    assert!(work.count >= work.queued_count && work.queued_count >= 1, "{work:?}");
    // RCU grace periods are waited for in it.
    assert!(work.ran_worst_ns > 100_000 && work.ran_worst_ns < window, "{work:?} in {window} ns");
    assert!(work.ran_ns >= work.ran_worst_ns && work.queued_ns >= work.queued_worst_ns, "{work:?}");
}

#[test]
fn root_an_item_that_began_before_the_window_and_does_not_end_in_it_is_open() {
    let cleanup = Kallsyms::read().address("cleanup_net").expect("network namespaces are in this kernel");
    let until = Instant::now() + Duration::from_secs(40);
    loop {
        assert!(Instant::now() < until, "no deletion outlasted a window");
        (0..8).for_each(|_| use_up_a_namespace());
        let mut slot = MaybeUninit::uninit();
        let probe = Work::start(&mut slot).unwrap();
        let begin = now_ns();
        let (seen, _) = probe.finish().unwrap();
        let window = now_ns() - begin;
        if !seen.open.iter().any(|open| open.item.function == cleanup) {
            continue;
        }
        let works = work_table::works(&seen, begin, window, &mut KernelNames::from(&Kallsyms::read()));
        let work = works.iter().find(|w| w.function == "cleanup_net").unwrap();
        assert!(work.open == 1 && work.count >= 1, "{work:?}");
        assert!(work.ran_worst_ns <= window + 1 && work.queued_count < work.count, "{work:?} in {window} ns");
        return;
    }
}

#[test]
fn root_of_an_item_that_ran_when_the_window_began_only_the_rest_is_counted() {
    let cleanup = Kallsyms::read().address("cleanup_net").expect("network namespaces are in this kernel");
    let until = Instant::now() + Duration::from_secs(40);
    let mut slot = MaybeUninit::uninit();
    let mut probe = Work::start(&mut slot).unwrap();
    loop {
        assert!(Instant::now() < until, "no deletion ran when the window began");
        (0..8).for_each(|_| use_up_a_namespace());
        let open: Vec<work_open> =
            walk(WHAT, &probe.walk).unwrap().chunks_exact(size_of::<work_open>()).map(value).collect();
        if !open.iter().any(|open| open.item.function == cleanup) {
            continue;
        }
        let begin = now_ns();
        probe.begin().unwrap();
        let ended = || probe.rows().unwrap().into_iter().find(|(function, _)| *function == cleanup);
        // It may have ended just before.
        let soon = Instant::now() + Duration::from_secs(1);
        let row = loop {
            match ended() {
                Some((_, row)) => break Some(row),
                None if Instant::now() > soon => break None,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        let Some(row) = row else { continue };
        let window = now_ns() - begin;
        if row.count > 1 {
            continue; // another one began in the window
        }
        assert!(row.ran_worst_ns <= window && row.queued_count == 0, "{} of {window} ns", row.ran_worst_ns);
        return;
    }
}

/// A terminal without a program: each write is a work item (flush_to_ldisc, drivers/tty/tty_buffer.c).
fn terminal() -> (File, File) {
    let (mut master, mut slave) = (0, 0);
    let (name, settings, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: fills two integers of this function.
    let made = unsafe { libc::openpty(&raw mut master, &raw mut slave, name, settings, size) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: open files that nothing else owns.
    unsafe { (File::from_raw_fd(master), File::from_raw_fd(slave)) }
}

/// Items of the terminal that have ended.
fn flushed(probe: &Work<'_>, function: u64) -> u64 {
    let rows = probe.rows().unwrap();
    rows.iter().filter(|(address, _)| *address == function).map(|(_, row)| row.count).sum()
}

#[test]
fn root_the_hooks_leave_a_cpu_that_starts_too_many_items_and_come_back() {
    let flush = Kallsyms::read().address("flush_to_ldisc").expect("terminals are in this kernel");
    let (mut master, _slave) = terminal();
    let mut slot = MaybeUninit::uninit();
    let mut probe = Work::start(&mut slot).unwrap();
    probe.visits = Visits::new(400.0);
    let until = Instant::now() + Duration::from_secs(30);
    while probe.skel.links.starts.is_some() {
        assert!(Instant::now() < until, "the hooks stayed");
        probe.poll(Duration::ZERO);
        master.write_all(b"\x01").unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    // A hook may be at work yet.
    std::thread::sleep(Duration::from_millis(20));
    let before = flushed(&probe, flush);
    assert!(before > 0);
    for _ in 0..100 {
        master.write_all(b"\x01").unwrap();
    }
    assert_eq!(flushed(&probe, flush), before, "detached");
    assert!(walk(WHAT, &probe.walk).unwrap().is_empty(), "nothing is known to run");

    while probe.skel.links.starts.is_none() {
        assert!(Instant::now() < until, "the hooks did not come back");
        probe.poll(Duration::ZERO);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(probe.visits.away(Instant::now()) >= Visits::AWAY);
    while flushed(&probe, flush) == before {
        assert!(Instant::now() < until, "nothing is counted again");
        master.write_all(b"\x01").unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let (seen, lost) = probe.finish().unwrap();
    let worst =
        seen.rows.iter().filter(|(address, _)| *address == flush).map(|(_, row)| row.ran_worst_ns).max();
    assert!(
        lost == 0 && worst.is_some_and(|ns| Duration::from_nanos(ns) < Visits::AWAY),
        "{worst:?}: an end was missed"
    );
}
