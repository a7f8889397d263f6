//! Processes that read statistics files: the CPU time by on-CPU samples, the files and the length of single reads by the table of reads.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::table::{Sample, StatRead};
use whyslow_model::{Missing, Share};

use super::NOTICEABLE;
use crate::Evidence;
use crate::stat_reads::StatReads;

/// Functions that make, list or look up all such files.
#[rustfmt::skip] // a list of words
const READERS: &[&str] = &[
    "seq_read", "seq_read_iter", "proc_reg_read", "proc_reg_read_iter", "proc_sys_call_handler",
    "proc_sys_readdir", "proc_root_readdir", "proc_readdir", "proc_pid_readdir", "proc_task_readdir",
    "proc_readfd_common", "proc_tgid_base_readdir", "proc_pid_lookup", "proc_root_lookup", "proc_lookup",
    "proc_lookup_de", "proc_tgid_base_lookup", "proc_pident_lookup", "proc_lookupfd_common",
    "proc_pid_readlink", "proc_pid_get_link", "proc_pid_cmdline_read", "environ_read", "pagemap_read",
    "pid_revalidate", "pid_getattr", "kernfs_fop_read", "kernfs_fop_read_iter", "kernfs_seq_show",
    "kernfs_fop_readdir", "kernfs_iop_lookup", "kernfs_dop_revalidate",
];
/// Functions between a reader and the function that makes this one file.
const WRAPPERS: &[&str] = &[
    "cgroup_seqfile_show",
    "sysfs_kf_seq_show",
    "dev_attr_show",
    "kobj_attr_show",
    "proc_single_show",
    "seq_read",
    "proc_reg_read_iter",
];
/// Fewer long reads are somebody's who looks once.
const REPEATED: u64 = 3;

/// A process, or several processes of one name, and the time spent reading.
#[derive(Debug, Clone, Default)]
pub struct Reader {
    pub pids: Vec<u32>,
    pub name: String,
    sampled: Duration,
    pub by_function: BTreeMap<String, Duration>,
    pub by_file: BTreeMap<String, FileCost>,
}

/// What reads of files of one name took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileCost {
    pub time: Duration,
    pub long_reads: u64,
    long: Duration,
    pub worst: Duration,
    /// Long reads that may be the hypervisor's.
    doubtful: u64,
}

impl FileCost {
    fn of(row: &StatRead, is_its_own: bool) -> Self {
        if !is_its_own {
            return FileCost { doubtful: row.long_reads, ..FileCost::default() };
        }
        let [time, long, worst] = [row.ns, row.long_ns, row.worst_ns].map(Duration::from_nanos);
        FileCost { time, long_reads: row.long_reads, long, worst, doubtful: 0 }
    }

    fn add(&mut self, other: &FileCost) {
        self.time = self.time.saturating_add(other.time);
        self.long_reads = self.long_reads.saturating_add(other.long_reads);
        self.long = self.long.saturating_add(other.long);
        self.worst = self.worst.max(other.worst);
        self.doubtful = self.doubtful.saturating_add(other.doubtful);
    }

    /// How long one of the long reads took.
    pub fn each(&self) -> Duration {
        self.long / u32::try_from(self.long_reads.max(1)).unwrap_or(u32::MAX)
    }
}

impl Reader {
    /// Samples count each moment once, however late the sampler's timer is; reads count all of their time, but not that of listings.
    pub fn time(&self) -> Duration {
        let reads = self.by_file.values().fold(Duration::ZERO, |sum, cost| sum.saturating_add(cost.time));
        self.sampled.max(reads)
    }

    pub fn share(&self, ev: &Evidence<'_>) -> Share {
        Share::of(self.time().as_secs_f64(), ev.window().as_secs_f64())
    }

    /// The file whose long reads took most.
    pub fn slowest(&self) -> Option<(&str, &FileCost)> {
        let repeated = self.by_file.iter().filter(|(_, cost)| cost.long_reads >= REPEATED);
        repeated.max_by_key(|(_, cost)| cost.long).map(|(file, cost)| (file.as_str(), cost))
    }

    /// The file on which most of the time was spent.
    pub fn dearest(&self) -> Option<(&str, &FileCost)> {
        self.by_file.iter().max_by_key(|(_, cost)| cost.time).map(|(file, cost)| (file.as_str(), cost))
    }

    /// A file whose reads may have taken long.
    pub fn doubtful(&self) -> Option<&str> {
        self.by_file.iter().find(|(_, cost)| cost.doubtful >= REPEATED).map(|(file, _)| file.as_str())
    }

    /// The kernel function in which it was met most.
    pub fn function(&self) -> Option<&str> {
        self.by_function.iter().max_by_key(|(_, time)| **time).map(|(name, _)| name.as_str())
    }

    fn add(&mut self, other: Reader) {
        self.pids.extend(other.pids);
        self.name = other.name;
        self.sampled = self.sampled.saturating_add(other.sampled);
        for (function, time) in other.by_function {
            let sum = self.by_function.entry(function).or_default();
            *sum = sum.saturating_add(time);
        }
        for (file, cost) in other.by_file {
            self.by_file.entry(file).or_default().add(&cost);
        }
    }

    fn is_worth_naming(&self, ev: &Evidence<'_>) -> bool {
        self.share(ev) >= NOTICEABLE || self.slowest().is_some()
    }
}

/// All readers, by process. Processes below the thresholds are summed up by name: a script starts a new process each time.
pub fn all(ev: &Evidence<'_>) -> Result<Vec<Reader>, Missing> {
    let mut by_process: BTreeMap<u32, Reader> = BTreeMap::new();
    let mut add = |tgid: u32, comm: &str, one: Reader| {
        let name = match ev.broods().of_child(tgid) {
            Some(brood) => brood.together(),
            None => ev.process_name(tgid, comm),
        };
        let pids = vec![tgid];
        by_process
            .entry(tgid)
            .or_insert_with(|| Reader { pids, ..Reader::default() })
            .add(Reader { name, ..one });
    };
    for sample in ev.samples()?.iter().filter(|s| s.tgid != 0 && !ev.is_own(s.pid, s.tgid)) {
        add_sample(sample, &mut add);
    }
    // Recordings without this table tell the time by samples alone.
    let _ = ev.stat_reads();
    for (row, is_its_own) in StatReads::of(ev.recording()).rows() {
        let by_file = BTreeMap::from([(row.file.clone(), FileCost::of(row, is_its_own))]);
        add(row.tgid, &row.comm, Reader { by_file, ..Reader::default() });
    }
    let (large, small): (Vec<Reader>, Vec<Reader>) =
        by_process.into_values().partition(|reader| reader.is_worth_naming(ev));
    let mut by_name: BTreeMap<String, Reader> = BTreeMap::new();
    for reader in small {
        by_name.entry(reader.name.clone()).or_default().add(reader);
    }
    Ok(large.into_iter().chain(by_name.into_values()).collect())
}

/// Those that others pay for.
pub fn worth_naming(ev: &Evidence<'_>) -> Result<Vec<Reader>, Missing> {
    let mut found: Vec<Reader> = all(ev)?.into_iter().filter(|reader| reader.is_worth_naming(ev)).collect();
    found.sort_by_key(|reader| std::cmp::Reverse(reader.time()));
    Ok(found)
}

fn add_sample(sample: &Sample, add: &mut impl FnMut(u32, &str, Reader)) {
    let Some(function) = made_by(&sample.kernel) else { return };
    let sampled = Duration::from_nanos(sample.ns);
    let by_function = BTreeMap::from([(function.to_owned(), sampled)]);
    add(sample.tgid, &sample.comm, Reader { sampled, by_function, ..Reader::default() });
}

/// The function that makes the file, if the stack is inside a read, a listing or a lookup of such a file. Innermost frame first.
pub fn made_by(kernel: &[String]) -> Option<&str> {
    // The compiler and the symboliser add suffixes: "show_stat.isra.0", "seq_read+0x1f", "do [ext4]".
    let plain = |frame: &'_ str| frame.find(['.', '+', ' ']).unwrap_or(frame.len());
    let name = |at: usize| kernel.get(at).and_then(|frame| frame.get(..plain(frame)));
    let reader = (0..kernel.len()).find(|at| name(*at).is_some_and(|n| READERS.contains(&n)))?;
    let inner = (0..reader).rev().filter_map(name).find(|n| !WRAPPERS.contains(n));
    inner.or_else(|| name(reader))
}
