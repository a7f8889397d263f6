//! Process ids as the user knows them: BPF reports those of the initial pid namespace, ours may be others.
//!
//! A task that cannot be seen in our namespace has no number there. It is reported as [`OUTSIDE`] plus its number in the initial
//! namespace: no task of ours can have that number, and a reader on the host can subtract to get the host's number.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use whyslow_model::table::Tables;
use whyslow_model::timeline::OtherEnd;

/// Above all process ids that Linux assigns (`PID_MAX_LIMIT`, 4,194,304), and easy to subtract.
pub const OUTSIDE: u32 = 10_000_000;

/// The initial namespace's inode: `PROC_PID_INIT_INO`, part of the interface since v3.8 (98f842e675f9).
const INITIAL: &str = "pid:[4026531836]";

/// The pid namespace whose numbers /proc shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The initial namespace: the numbers that BPF reports.
    Initial,
    /// A namespace so many levels above that of this process; 0: this process's own.
    Own {
        /// Levels.
        above: u32,
    },
}

impl Scope {
    /// The scope of this process, and of the /proc below `root`.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        let own = fs::read_link(root.join("proc/self/ns/pid"));
        if own.map_or(true, |link| link.as_os_str() == INITIAL) {
            return Scope::Initial;
        }
        let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
        Scope::Own { above: levels_above(&status) }
    }
}

/// Device, as the kernel has it, and inode of the pid namespace that /proc shows, for `bpf_get_ns_current_pid_tgid`. Zeros: the initial one,
/// whose numbers BPF reports anyway. The helper finds no task by a namespace above ours.
#[must_use]
pub fn pid_namespace() -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    const NO_TASK: (u64, u64) = (0, 1);
    match Scope::of(Path::new("/")) {
        Scope::Initial => (0, 0),
        Scope::Own { above: 0 } => fs::metadata("/proc/self/ns/pid").map_or(NO_TASK, |about| {
            // MKDEV (include/linux/kdev_t.h): stat(2) returns it in another form.
            (u64::from(libc::major(about.dev())) << 20 | u64::from(libc::minor(about.dev())), about.ino())
        }),
        Scope::Own { .. } => NO_TASK,
    }
}

/// "NSpid:" lists a task's numbers from /proc's namespace down to its own.
fn levels_above(status: &str) -> u32 {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    u32::try_from(numbers.split_ascii_whitespace().count().saturating_sub(1)).unwrap_or(0)
}

/// Why processes cannot be named by number here: /proc shows other numbers than the system calls take.
#[must_use]
pub fn why_ambiguous() -> Option<String> {
    match Scope::of(Path::new("/")) {
        Scope::Own { above } if above > 0 => Some(
            "/proc belongs to another pid namespace: a process has one id there, and another one here; mount the right \
             one (`unshare --mount-proc`, or `mount -t proc proc /proc` in a mount namespace of its own), or run whyslow \
             on the host"
                .to_owned(),
        ),
        _ => None,
    }
}

/// Numbers of the initial namespace, and the same processes' numbers in ours.
#[derive(Debug, Clone, Default)]
pub struct Numbers(HashMap<u32, u32>);

impl From<HashMap<u32, u32>> for Numbers {
    fn from(shown: HashMap<u32, u32>) -> Self {
        Numbers(shown)
    }
}

impl Numbers {
    /// The number as it is shown. 0 is the idle task, or "no task".
    #[must_use]
    pub fn shown(&self, global: u32) -> u32 {
        if global == 0 { 0 } else { self.inside(global).unwrap_or(OUTSIDE.saturating_add(global)) }
    }

    /// The number in our namespace, if the task can be seen there.
    #[must_use]
    pub fn inside(&self, global: u32) -> Option<u32> {
        self.0.get(&global).copied()
    }

    /// The map back: from the numbers here to the numbers that BPF reports.
    #[must_use]
    pub fn back(&self) -> HashMap<u32, u32> {
        self.0.iter().map(|(global, shown)| (*shown, *global)).collect()
    }

    /// The numbers that BPF reports for these.
    #[must_use]
    pub fn global(&self, shown: &[u32]) -> Vec<u32> {
        let back = self.back();
        shown.iter().filter_map(|pid| back.get(pid).copied()).collect()
    }

    /// Translate these numbers in place.
    pub fn show(&self, pids: [&mut u32; 2]) {
        for pid in pids {
            *pid = self.shown(*pid);
        }
    }

    fn show_ends(&self, end: Option<&mut OtherEnd>) {
        let processes = end.into_iter().flat_map(|end| &mut end.processes);
        processes.for_each(|process| *process = self.shown(*process));
    }

    /// Translate all other numbers, in the tables.
    #[allow(clippy::too_many_lines, reason = "one line a table")]
    pub fn show_in_tables(&self, tables: &mut Tables) {
        // All tables are named here, so that a new one is not forgotten.
        let Tables {
            tasks,
            cgroups: _,
            groups: _,
            users: _,
            samples: _, // made of what was translated
            waits,
            cpus: _,
            memory,
            disk: _,
            io_files,
            connects,
            listeners,
            programs: _,
            spans,
            stacks: _,
            runs,
            holds,
            locks: _,
            calls: _,      // as samples
            slow_calls: _, // as samples
            works: _,
            failed_calls,
            latency_holders,
            requests,
            polls: _,
            sockets,
            speeds: _,
            cross_calls,
            late_timers,
            gaps,
            irq_latencies: _,
            stalls,
            stat_reads,
            churn,
            populations: _,
            blocked,
            pings: _,
            spins: _, // as samples
        } = tables;
        for task in tasks.iter_mut().flatten() {
            self.show([&mut task.pid, &mut task.tgid]);
            self.show([&mut task.ppid, &mut task.creator]);
        }
        for span in spans.iter_mut().flatten() {
            self.show([&mut span.pid, &mut span.tgid]);
            span.holder = self.shown(span.holder);
            self.show_ends(span.other_end.as_deref_mut());
            if let Some(waker) = &mut span.waker {
                self.show([&mut waker.pid, &mut waker.tgid]);
            }
            if let Some(lock) = &mut span.lock {
                self.show([&mut lock.owner, &mut lock.owner_again]);
            }
        }
        for request in requests.iter_mut().flatten() {
            request.tgid = self.shown(request.tgid);
            self.show_ends(Some(&mut request.other_end));
        }
        runs.iter_mut().flatten().for_each(|run| run.pid = self.shown(run.pid));
        waits.iter_mut().flatten().for_each(|row| self.show([&mut row.pid, &mut row.tgid]));
        for row in memory.iter_mut().flatten() {
            self.show([&mut row.pid, &mut row.tgid]);
            row.taken_by = self.shown(row.taken_by);
        }
        for row in connects.iter_mut().flatten() {
            self.show([&mut row.pid, &mut row.tgid]);
            row.server.iter_mut().for_each(|server| server.tgid = self.shown(server.tgid));
        }
        listeners.iter_mut().flatten().for_each(|row| row.tgid = self.shown(row.tgid));
        holds.iter_mut().flatten().for_each(|row| self.show([&mut row.pid, &mut row.tgid]));
        failed_calls.iter_mut().flatten().for_each(|row| self.show([&mut row.pid, &mut row.tgid]));
        latency_holders.iter_mut().flatten().for_each(|row| self.show([&mut row.pid, &mut row.tgid]));
        sockets.iter_mut().flatten().for_each(|row| row.tgid = self.shown(row.tgid));
        cross_calls.iter_mut().flatten().for_each(|row| self.show([&mut row.pid, &mut row.tgid]));
        late_timers.iter_mut().flatten().for_each(|row| self.show([&mut row.pid, &mut row.tgid]));
        io_files.iter_mut().flatten().for_each(|row| row.tgid = self.shown(row.tgid));
        gaps.iter_mut().flatten().for_each(|row| self.show([&mut row.pid, &mut row.tgid]));
        let seen = stalls.iter_mut().flatten().flat_map(|stall| &mut stall.seen);
        seen.for_each(|row| self.show([&mut row.pid, &mut row.tgid]));
        stat_reads.iter_mut().flatten().for_each(|row| self.show([&mut row.pid, &mut row.tgid]));
        churn.iter_mut().flatten().for_each(|row| row.tgid = self.shown(row.tgid));
        for row in blocked.iter_mut().flatten() {
            self.show([&mut row.pid, &mut row.tgid]);
            row.owner_tgid = self.shown(row.owner_tgid);
            row.lock.iter_mut().for_each(|lock| lock.owner = self.shown(lock.owner));
        }
    }
}

#[cfg(test)]
mod tests {
    use whyslow_model::table;
    use whyslow_model::timeline::{LockWait, Span, Waker};

    use super::*;

    fn numbers() -> Numbers {
        Numbers::from(HashMap::from([(5000, 1), (5001, 7)]))
    }

    #[test]
    fn pid_inside_the_namespace_is_local_and_outside_it_is_offset() {
        let numbers = numbers();
        assert_eq!((numbers.shown(0), numbers.shown(5000), numbers.shown(7)), (0, 1, 10_000_007));
        assert_eq!(numbers.shown(u32::MAX), u32::MAX);
        assert_eq!(numbers.global(&[7, 5000, 1]), [5001, 5000], "5000 is a number of there, not of here");
    }

    #[test]
    fn wakers_and_owners_of_locks_are_translated_too() {
        let span = Span {
            pid: 5001,
            tgid: 5000,
            waker: Some(Waker { pid: 7, tgid: 5000, ..Waker::default() }),
            lock: Some(LockWait { owner: 5000, owner_again: 0, ..LockWait::default() }),
            ..Span::default()
        };
        let mut tables = Tables { spans: Some(vec![span]), ..Tables::default() };
        numbers().show_in_tables(&mut tables);
        let span = &tables.spans.unwrap()[0];
        let (waker, lock) = (span.waker.clone().unwrap(), span.lock.clone().unwrap());
        assert_eq!((span.pid, span.tgid, waker.pid, waker.tgid), (7, 1, 10_000_007, 1));
        assert_eq!((lock.owner, lock.owner_again), (1, 0));
    }

    #[test]
    fn page_cache_taker_is_translated_and_its_session_id_is_kept() {
        let row =
            table::Memory { pid: 5001, taken_by: 5000, taker_session: 5000, ..table::Memory::default() };
        let mut tables = Tables { memory: Some(vec![row]), ..Tables::default() };
        numbers().show_in_tables(&mut tables);
        let row = &tables.memory.unwrap()[0];
        assert_eq!((row.pid, row.taken_by, row.taker_session), (7, 1, 5000));
    }

    #[test]
    fn a_proc_of_a_namespace_above_is_reported_by_its_list_of_numbers() {
        assert_eq!(levels_above("Name:\tx\nNSpid:\t5000\t1\n"), 1);
        assert_eq!((levels_above("NSpid:\t1\n"), levels_above(""), levels_above("NSpid:")), (0, 0, 0));
    }

    #[test]
    fn a_folder_is_no_namespace() {
        assert_eq!(Scope::of(Path::new("/nonexistent")), Scope::Initial);
    }
}
