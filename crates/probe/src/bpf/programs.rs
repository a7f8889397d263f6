//! What do BPF programs cost: those of others, and our own?
//!
//! Signal: `run_time_ns` and `run_cnt` of each loaded program, which the kernel counts only on request: through sysctl
//! kernel.bpf_stats_enabled (v5.1, 492ecee892c2), or while a descriptor of BPF_ENABLE_STATS is open (v5.8, d46edd671a14). We hold one for a
//! sampled part of the window and scale up. The sysctl stays 0 while a process holds a descriptor, so statistics that others requested show
//! only in counts that advance before ours are on. The time counted is that within the program; the way into it (trampoline, dispatch) is
//! measured once with an empty one (`tasks.rs`) and added for each run of ours. Cost: two clock reads a run, while ours are on. Not seen:
//! programs that were loaded and unloaded in between.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use libbpf_rs::libbpf_sys;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use whyslow_model::{Missing, table};

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::BpfPrograms.word();

/// What the statistics add to each run: two reads of the clock and a per-CPU update (20 ns each on hosts with a TSC).
const STATISTICS_NS: u64 = 50;

/// The kernel's counts of one program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Count {
    name: String,
    kind: String,
    run_ns: u64,
    runs: u64,
}

type Counts = HashMap<u32, Count>;

/// Counts of all programs, at the moments that matter.
#[derive(Debug)]
pub struct Programs {
    own: Vec<u32>,
    entry: Option<Duration>,
    others_count: bool,
    before: Counts,
    statistics: Option<(OwnedFd, Instant, Counts)>,
    sampled: Option<(Duration, Counts, Counts)>,
}

impl Programs {
    /// Read the counts, before our statistics are on. `own` are the ids of our programs.
    #[must_use]
    pub fn before(own: &[u32]) -> Self {
        let sysctl = fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled");
        let others_count = sysctl.is_ok_and(|text| text.trim() == "1");
        Programs {
            own: own.to_vec(),
            entry: None,
            others_count,
            before: counts(),
            statistics: None,
            sampled: None,
        }
    }

    /// Begin the sampled part. Counts that advanced since `before` were requested by another process.
    pub fn enable(&mut self) -> Result<(), Missing> {
        let began = counts();
        self.others_count |= advanced(&self.before, &began);
        // SAFETY: takes a number, returns a descriptor or a negative error.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            return Err(refused(&io::Error::last_os_error()));
        }
        // SAFETY: the descriptor was just opened for us, and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        self.statistics = Some((fd, Instant::now(), began));
        Ok(())
    }

    /// The cost to enter a program and to leave it, which the statistics leave out. Measured once, and not before the window: no user waits
    /// for it then.
    pub fn knows_entry(&mut self, cost: impl FnOnce() -> Option<Duration>) {
        if self.entry.is_none() {
            self.entry = Some(cost().unwrap_or_default());
        }
    }

    /// The kernel now counts for us.
    #[must_use]
    pub fn is_counting(&self) -> bool {
        self.statistics.is_some()
    }

    /// End the sampled part; a second one replaces the first.
    pub fn disable(&mut self) {
        let Some((fd, began, first)) = self.statistics.take() else { return };
        let took = began.elapsed();
        drop(fd);
        let last = counts();
        // Runs that we had counted ourselves are not another process's request when the next part begins.
        self.before.clone_from(&last);
        self.sampled = Some((took, first, last));
    }

    /// Programs of others that ran, and the run time of our own with what the statistics cost, scaled to `window`.
    pub fn rows(&mut self, window: Duration) -> Result<(Vec<table::Program>, Option<u64>), Missing> {
        self.disable();
        let Some((took, first, last)) = &self.sampled else {
            return Err(Missing::not_recorded(WHAT));
        };
        let scale = window.as_secs_f64() / took.as_secs_f64().max(1e-6);
        let rows = differences(first, last, &self.own, self.others_count, scale);
        let own_ns = cost_of(&self.own, first, last, self.entry.unwrap_or_default());
        let runs: u64 =
            last.iter().filter_map(|(id, l)| Some(l.runs.saturating_sub(first.get(id)?.runs))).sum();
        // The statistics were on for the sampled part only: their cost is not scaled.
        let statistics_ns = runs.saturating_mul(STATISTICS_NS);
        Ok((rows, Some(scaled(own_ns, scale).saturating_add(statistics_ns))))
    }
}

/// The run time of some programs, and what it cost to enter them.
fn cost_of(own: &[u32], first: &Counts, last: &Counts, entry: Duration) -> u64 {
    let entry = u64::try_from(entry.as_nanos()).unwrap_or(u64::MAX);
    let ours = own.iter().filter_map(|id| last.get(id).zip(first.get(id)));
    let cost = |(l, f): (&Count, &Count)| {
        let entered = l.runs.saturating_sub(f.runs).saturating_mul(entry);
        l.run_ns.saturating_sub(f.run_ns).saturating_add(entered)
    };
    ours.map(cost).fold(0, u64::saturating_add)
}

/// Where the kernel keeps the code of all loaded programs; empty where it does not say.
#[must_use]
pub fn code() -> Vec<Range<u64>> {
    let wanted = ProgInfoQueryOptions::default().include_jited_ksyms(true).include_jited_func_lens(true);
    let parts = ProgInfoIter::with_query_opts(wanted).flat_map(|program| {
        let starts = program.jited_ksyms.into_iter().map(|at| at as u64);
        starts.zip(program.jited_func_lens).collect::<Vec<_>>()
    });
    parts
        .map(|(start, length)| start..start.saturating_add(length.into()))
        .filter(|part| part.start != 0)
        .collect()
}

fn refused(err: &io::Error) -> Missing {
    match err.raw_os_error() {
        Some(libc::EPERM) => Missing::NotAllowed {
            what: WHAT.to_owned(),
            way_out: "run as root, or grant CAP_SYS_ADMIN".to_owned(),
        },
        Some(libc::EINVAL) => {
            Missing::NotInKernel { what: "BPF run time statistics".to_owned(), needs: "Linux 5.8".to_owned() }
        }
        _ => Missing::broken(WHAT, err),
    }
}

fn counts() -> Counts {
    let count = |p: libbpf_rs::query::ProgramInfo| {
        let name = p.name.to_string_lossy().into_owned();
        let kind = format!("{:?}", p.ty).to_lowercase();
        (p.id, Count { name, kind, run_ns: p.run_time_ns, runs: p.run_cnt })
    };
    ProgInfoIter::default().map(count).collect()
}

fn advanced(before: &Counts, after: &Counts) -> bool {
    after.iter().any(|(id, now)| before.get(id).is_some_and(|then| now.runs > then.runs))
}

fn differences(first: &Counts, last: &Counts, own: &[u32], counted: bool, scale: f64) -> Vec<table::Program> {
    let row = |(id, now): (&u32, &Count)| {
        // A program that was loaded in between began at zero.
        let then = first.get(id).cloned().unwrap_or_default();
        table::Program {
            id: *id,
            name: now.name.clone(),
            kind: now.kind.clone(),
            run_ns: scaled(now.run_ns.saturating_sub(then.run_ns), scale),
            runs: scaled(now.runs.saturating_sub(then.runs), scale),
            counted_before: counted,
        }
    };
    let mut rows: Vec<_> =
        last.iter().filter(|(id, _)| !own.contains(id)).map(row).filter(|p| p.runs > 0).collect();
    rows.sort_by_key(|p| (std::cmp::Reverse(p.run_ns), p.id));
    rows
}

fn scaled(value: u64, by: f64) -> u64 {
    (value as f64 * by) as u64
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::bpf::connect::Connect;

    fn count(run_ns: u64, runs: u64) -> Count {
        Count { name: "p".into(), kind: "xdp".into(), run_ns, runs }
    }

    #[test]
    fn only_programs_of_others_that_ran_are_reported_scaled_to_the_window() {
        let first = HashMap::from([(1, count(100, 10)), (2, count(7, 7)), (3, count(0, 0))]);
        let last =
            HashMap::from([(1, count(300, 20)), (2, count(7, 7)), (3, count(9, 9)), (4, count(50, 5))]);
        let rows = differences(&first, &last, &[3], false, 2.0);
        let reported: Vec<_> = rows.iter().map(|p| (p.id, p.run_ns, p.runs)).collect();
        assert_eq!(reported, [(1, 400, 20), (4, 100, 10)]);
    }

    #[test]
    fn ours_cost_their_run_time_and_the_way_into_them() {
        let first = HashMap::from([(1, count(100, 10)), (2, count(7, 7))]);
        let last = HashMap::from([(1, count(300, 20)), (2, count(70, 70)), (3, count(5, 5))]);
        assert_eq!(cost_of(&[1], &first, &last, Duration::ZERO), 200);
        assert_eq!(cost_of(&[1], &first, &last, Duration::from_nanos(40)), 600);
        // A program whose first count is not known is left out, as before.
        assert_eq!(cost_of(&[1, 3], &first, &last, Duration::from_nanos(40)), 600);
    }

    #[test]
    fn own_program_cost_is_scaled_run_time_and_entries_plus_statistics() {
        let [first, last] = [HashMap::from([(1, count(100, 10))]), HashMap::from([(1, count(300, 20))])];
        let mut programs = Programs {
            own: vec![1],
            entry: None,
            others_count: false,
            before: Counts::new(),
            statistics: None,
            sampled: Some((Duration::from_secs(1), first, last)),
        };
        let window = Duration::from_secs(4);
        let statistics = 10 * STATISTICS_NS;
        assert_eq!(programs.rows(window).unwrap().1, Some(4 * 200 + statistics));
        programs.knows_entry(|| Some(Duration::from_nanos(40)));
        assert_eq!(programs.rows(window).unwrap().1, Some(4 * (200 + 10 * 40) + statistics));
        programs.knows_entry(|| panic!("it is measured once"));
    }

    #[test]
    fn counts_that_advance_without_us_are_somebody_elses() {
        let (still, moved) = (HashMap::from([(1, count(5, 5))]), HashMap::from([(1, count(6, 6))]));
        assert!(advanced(&still, &moved));
        assert!(!advanced(&still, &still));
        // Nothing to compare with: it may have run under our own statistics of a window before.
        assert!(!advanced(&HashMap::new(), &moved));
    }

    #[test]
    fn root_runs_are_counted_only_for_the_sampled_part_and_reported_apart_from_ours() {
        let mut slot = MaybeUninit::uninit();
        let connect = Connect::start(&mut slot).unwrap();
        let own = connect.programs();
        assert_eq!(own.len(), 3);
        assert!(code().len() >= 3, "each has code");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();

        let mut as_ours = Programs::before(&own);
        let mut as_others = Programs::before(&[]);
        as_ours.enable().unwrap();
        as_others.enable().unwrap();
        for _ in 0..10 {
            TcpStream::connect(at).unwrap();
            listener.accept().unwrap();
        }
        let window = Duration::from_secs(1);
        let (rows, own_ns) = as_ours.rows(window).unwrap();
        assert!(rows.iter().all(|p| !own.contains(&p.id)), "{rows:?}");
        assert!(own_ns.unwrap() > 0);
        let (rows, _) = as_others.rows(window).unwrap();
        let moved = rows.iter().find(|p| own.contains(&p.id) && p.name == "moved").expect("it ran 10 times");
        assert!(moved.run_ns > 0 && moved.runs >= 10, "{moved:?}");
        assert_eq!(moved.kind, "tracing");
    }

    #[test]
    fn root_rows_without_a_sampled_part_are_missing() {
        assert_eq!(Programs::before(&[]).rows(Duration::from_secs(1)), Err(Missing::not_recorded(WHAT)));
    }
}
