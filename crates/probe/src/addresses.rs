//! Addresses do not leave the host: a reader of the recording could learn from them where the kernel and programs lie in memory.
//! Recordings only need to show whether two addresses are the same.

mod texts;

use std::collections::HashMap;

use whyslow_model::syscall::{FUTEX, FUTEX_WAIT, PID_MAX_LIMIT, WAIT4, WAITID};
use whyslow_model::table::{Span, Tables};

pub use texts::hide_in_frame;

/// clone(2) on x86-64.
const CLONE: u32 = 56;
/// Arguments below are numbers, sizes and flags: no program has memory there (vm.mmap_min_addr is 65,536).
const SMALL: u64 = 65_536;
/// -1 and its like.
const ERRORS: u64 = 4096;

/// Replaces addresses by numbers, in the order in which the addresses come; 0 stays 0.
#[derive(Default)]
struct Numbers<K>(HashMap<K, u64>);

impl<K: std::hash::Hash + Eq> Numbers<K> {
    fn of(&mut self, key: K) -> u64 {
        let next = self.0.len() as u64 + 1;
        *self.0.entry(key).or_insert(next)
    }
}

/// Replace all addresses by numbers.
pub fn hide(tables: &mut Tables) {
    let mut locks = Numbers::default();
    let mut lock = |address: &mut u64| {
        if *address != 0 {
            *address = locks.of(*address);
        }
    };
    tables.locks.iter_mut().flatten().for_each(|row| lock(&mut row.address));
    tables.holds.iter_mut().flatten().for_each(|row| lock(&mut row.lock));
    let blocked = tables.blocked.iter_mut().flatten();
    blocked.filter_map(|row| row.lock.as_mut()).for_each(|wait| lock(&mut wait.address));
    let mut words = Numbers::default();
    for span in tables.spans.iter_mut().flatten() {
        span.lock.iter_mut().for_each(|wait| lock(&mut wait.address));
        hide_arguments(span, &mut words);
    }
}

fn hide_arguments(span: &mut Span, words: &mut Numbers<(u32, u64)>) {
    let tgid = span.tgid;
    for (at, value) in span.args.iter_mut().enumerate() {
        *value = match (span.syscall, at) {
            (Some(FUTEX | FUTEX_WAIT), 0) if *value != 0 => words.of((tgid, *value)),
            // The operation, the value that the word had, and whether there is a timeout.
            (Some(FUTEX), 1 | 2) | (Some(CLONE), 0) => *value & 0xffff_ffff,
            (Some(FUTEX_WAIT), 1) => *value & 0xffff_ffff,
            // The id of the process or thread for whose end the caller waits.
            (Some(WAIT4), 0) | (Some(WAITID), 1) if *value < u64::from(PID_MAX_LIMIT) => *value,
            _ => plain(*value),
        };
    }
}

/// The number itself, or 1 for a number that may be an address: it says that there was one.
fn plain(value: u64) -> u64 {
    let is_error =
        value > u64::MAX - ERRORS || (value <= u64::from(u32::MAX) && value > u64::from(u32::MAX) - ERRORS);
    if value < SMALL || is_error { value } else { 1 }
}

#[cfg(test)]
mod tests {
    use whyslow_model::timeline::{Hold, Lock, LockWait};

    use super::*;

    #[test]
    fn the_same_lock_has_the_same_number_everywhere_and_none_its_address() {
        let (one, other) = (0xffff_8880_03a1_c0d0, 0xffff_ffff_82a5_c1e0);
        let span =
            |address| Span { lock: Some(LockWait { address, ..LockWait::default() }), ..Span::default() };
        let mut tables = Tables {
            locks: Some([0, other, one].map(|address| Lock { address, ..Lock::default() }).into()),
            holds: Some(vec![Hold { lock: one, ..Hold::default() }]),
            spans: Some(vec![span(one), span(other), Span::default()]),
            ..Tables::default()
        };
        hide(&mut tables);
        let locks: Vec<u64> = tables.locks.iter().flatten().map(|lock| lock.address).collect();
        let waits: Vec<u64> = tables
            .spans
            .iter()
            .flatten()
            .filter_map(|span| span.lock.as_ref())
            .map(|lock| lock.address)
            .collect();
        assert_eq!((locks, waits), (vec![0, 1, 2], vec![2, 1]));
        assert_eq!(tables.holds.unwrap()[0].lock, 2);
    }

    #[test]
    fn arguments_keep_what_is_asked_of_them() {
        let mut words = Numbers::default();
        let mut hidden = |syscall, tgid, args| {
            let mut span = Span { syscall: Some(syscall), tgid, args, ..Span::default() };
            hide_arguments(&mut span, &mut words);
            span.args
        };
        let word = 0x7f12_3456_7890;
        let wait = hidden(FUTEX, 7, [word, 0x189, 0x8000_0000 | 4711, 0x7ffc_0000_1000]);
        assert_eq!(wait, [1, 0x189, 0x8000_0000 | 4711, 1], "a wait for a lock with a timeout");
        assert_eq!(hidden(FUTEX, 7, [word, 128, 2, 0]), [1, 128, 2, 0], "the same word, without one");
        assert_eq!(hidden(FUTEX, 8, [word, 128, 2, 0])[0], 2, "another process's");
        assert_eq!(hidden(7, 7, [word, 3, 0xffff_ffff, 0]), [1, 3, 0xffff_ffff, 0], "poll without a timeout");
        assert_eq!(hidden(0, 7, [5, word, 4096, u64::MAX]), [5, 1, 4096, u64::MAX], "read");
        assert_eq!(hidden(CLONE, 7, [0x4000 | 17, word, 0, 0])[0], 0x4011, "vfork");
        assert_eq!(hidden(WAIT4, 7, [3_999_999, word, 0, 0]), [3_999_999, 1, 0, 0], "a child by its number");
        assert_eq!(hidden(WAITID, 7, [1, 70_000, word, 4])[..3], [1, 70_000, 1], "the same for waitid");
    }

    /// Hexadecimal words in the range of kernel addresses.
    fn kernel_addresses(text: &str) -> Vec<&str> {
        let words = text.split(|c: char| !c.is_ascii_hexdigit());
        let is_kernel = |word: &&str| {
            u64::from_str_radix(word, 16)
                .is_ok_and(|at| (0xffff_8000_0000_0000..u64::MAX - ERRORS).contains(&at))
                || word
                    .parse::<u64>()
                    .is_ok_and(|at| (0xffff_8000_0000_0000..u64::MAX - ERRORS).contains(&at))
        };
        words.filter(is_kernel).collect()
    }

    /// Where this process has memory, without the ranges in which other numbers lie.
    fn own_memory() -> Vec<std::ops::Range<u64>> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let range = |line: &str| {
            let (from, to) = line.split_once(' ')?.0.split_once('-')?;
            Some(u64::from_str_radix(from, 16).ok()?..u64::from_str_radix(to, 16).ok()?)
        };
        maps.lines().filter_map(range).filter(|range| range.start > 1 << 40).collect()
    }

    /// Numbers that lie in this memory: decimal ones, and hexadecimal ones as long as an address.
    fn words_in<'t>(memory: &[std::ops::Range<u64>], text: &'t str) -> Vec<&'t str> {
        let is_there = |value: u64| memory.iter().any(|range| range.contains(&value));
        let is_address = |word: &&str| {
            word.parse().is_ok_and(is_there)
                || word.len() >= 11 && u64::from_str_radix(word, 16).is_ok_and(is_there)
        };
        text.split(|c: char| !c.is_ascii_hexdigit()).filter(is_address).collect()
    }

    #[test]
    fn root_a_recording_of_this_host_holds_no_address() {
        struct Nobody;
        impl crate::Observer for Nobody {}
        let follow =
            crate::Follow { pids: vec![std::process::id()], user_stacks: true, ..crate::Follow::default() };
        let plan = crate::Plan {
            window: std::time::Duration::from_millis(700),
            root: "/".into(),
            follow: Some(follow),
            ..crate::Plan::default()
        };
        let (tell, reported) = std::sync::mpsc::channel::<()>();
        let waiter = std::thread::spawn(move || while reported.recv().is_ok() {});
        let stop = std::sync::atomic::AtomicBool::new(false);
        let dir = tempfile::tempdir().unwrap();
        let recording = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                    tell.send(()).unwrap();
                }
            });
            for name in ["a", "b"] {
                let (stop, dir) = (&stop, &dir);
                scope.spawn(move || {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        drop(std::fs::File::create(dir.path().join(name)));
                        drop(std::fs::remove_file(dir.path().join(name)));
                    }
                });
            }
            let recording = crate::record(&plan, &std::sync::atomic::AtomicBool::new(false), &mut Nobody);
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            recording
        });
        drop(tell);
        waiter.join().unwrap();
        let spans = recording.tables.spans.as_ref().expect("root may trace");
        assert!(
            spans.iter().any(|span| span.syscall == Some(FUTEX) && span.args[0] != 0),
            "a futex was waited for"
        );
        let arguments = spans.iter().flat_map(|span| span.args);
        assert_eq!(
            arguments.filter(|value| *value > u64::from(u32::MAX) && *value <= u64::MAX - ERRORS).count(),
            0
        );
        let own = format!("proc/{}/stat", std::process::id());
        assert!(
            recording.snapshots.iter().any(|frame| frame.name == own),
            "this process is one of the busiest"
        );
        let (tables, mine) = (format!("{:?}", recording.tables), own_memory());
        assert_eq!((kernel_addresses(&tables), words_in(&mine, &tables)), (vec![""; 0], vec![""; 0]));
        for frame in &recording.snapshots {
            let text = String::from_utf8_lossy(&frame.bytes);
            let found = (kernel_addresses(&text), words_in(&mine, &text));
            assert_eq!(found, (vec![""; 0], vec![""; 0]), "{}", frame.name);
        }
    }
}
