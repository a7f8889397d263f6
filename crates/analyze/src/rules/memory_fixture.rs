//! A host with one cgroup at its memory limit and one task in it, as the tables have it. For the tests of rules.

use whyslow_model::table::{Cgroup, CgroupMemory, Memory, Sample, Tables, Task, Wait};
use whyslow_model::{Meta, Recording};

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
const GROUP: u64 = 4 << 56 | 9;
const PID: u32 = 77;

/// The host: a window of 3 s, and one task that lived all the time.
pub struct Host {
    task: Task,
    memory: Memory,
    samples: Vec<Sample>,
    waits: Vec<Wait>,
    path: String,
}

impl Host {
    /// One cgroup at `path`, with a limit of 64 MiB.
    pub fn new(path: &str) -> Self {
        let task = Task {
            pid: PID,
            memory_cgroup: GROUP,
            lived_ns: 3000 * MS,
            exec_ns: 1000 * MS,
            ..Task::default()
        };
        let memory = Memory { pid: PID, cgroup: GROUP, ..Memory::default() };
        Host { task, memory, samples: Vec::new(), waits: Vec::new(), path: path.into() }
    }

    /// `again`: pages that refaulted. `added`: pages that were read. `unknown`: pages of these that were read before the first refault.
    pub fn refaults(mut self, again: u64, added: u64, unknown: u64) -> Self {
        (self.memory.pages_refaulted, self.memory.pages_added, self.memory.pages_unknown) =
            (again, added, unknown);
        self
    }

    /// Pages that were swapped in.
    pub fn swapped(mut self, pages: u64) -> Self {
        self.memory.swapped_in = pages;
        self
    }

    /// CPU time spent filling the page cache, and the wait for the disk.
    pub fn filled(self, cpu: u64, io: u64) -> Self {
        self.missed(
            &["read_pages+0x1f", "page_cache_ra_unbounded", "filemap_get_pages"],
            &["filemap_get_pages"],
            cpu,
            io,
        )
    }

    /// CPU time spent swapping in, and the wait for the swap device.
    pub fn swapping(self, cpu: u64, io: u64) -> Self {
        self.missed(&["swap_read_folio", "do_swap_page"], &["__folio_lock_or_retry", "do_swap_page"], cpu, io)
    }

    fn missed(mut self, running: &[&str], waiting: &[&str], cpu: u64, io: u64) -> Self {
        let stack = |frames: &[&str]| frames.iter().map(|f| (*f).to_owned()).collect();
        self.task.exec_ns += cpu;
        self.task.io_ns += io;
        self.samples.push(Sample { pid: PID, ns: cpu, kernel: stack(running), ..Sample::default() });
        self.waits.push(Wait {
            pid: PID,
            ns: io / 2,
            state: "io".into(),
            kernel: stack(waiting),
            ..Wait::default()
        });
        self
    }

    /// Wall time spent in reclaim at the limit.
    pub fn reclaimed(mut self, ns: u64) -> Self {
        (self.memory.limit_reclaim_ns, self.memory.limit_reclaims) = (ns, 1000);
        self.task.exec_ns += ns;
        self.samples.push(Sample {
            pid: PID,
            ns,
            kernel: vec!["try_to_free_mem_cgroup_pages".into()],
            ..Sample::default()
        });
        self
    }

    /// Time that the task slept.
    pub fn slept(mut self, ns: u64) -> Self {
        self.task.sleep_ns = ns;
        self
    }

    /// The host as a recording.
    pub fn recording(self) -> Recording {
        let memory = CgroupMemory { limit: Some(64 << 20), limit_hits: 100, ..CgroupMemory::default() };
        let files = Some(format!("/sys/fs/cgroup/memory{}", self.path));
        let group = Cgroup { id: GROUP, path: self.path, files, memory: Some(memory), ..Cgroup::default() };
        Recording {
            meta: Meta { window_ns: 3000 * MS, page_size: 4096, cpus: 2, ..Meta::default() },
            tables: Tables {
                tasks: Some(vec![self.task]),
                cgroups: Some(vec![group]),
                samples: Some(self.samples),
                waits: Some(self.waits),
                memory: Some(vec![self.memory]),
                ..Tables::default()
            },
            ..Recording::default()
        }
    }
}
