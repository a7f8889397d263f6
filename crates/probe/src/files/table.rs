//! The rows of the table of files: which files, when they are read, which hazards they have, and their largest size.
//!
//! The rows themselves are `rows.rs`: data, so that tests can walk them.

use std::fmt;

/// Why reading a file can hurt other processes, or whyslow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hazard {
    /// Waits for the lock of all cgroup changes.
    CgroupMutex,
    /// Waits for the process's mmap_lock, which a page fault or munmap of the process may hold.
    MmapLock,
    /// Waits for an exec of that process to end.
    ExecUpdateLock,
    /// Waits for mounts and unmounts.
    NamespaceSem,
    /// Holds a zone's lock with interrupts off while it walks the free lists.
    ZoneLock,
    /// Waits for the lock of all slab caches; holds it while it walks them.
    SlabMutex,
    /// Waits for the lock of module loading.
    ModuleMutex,
    /// Waits for the lock of tracer changes.
    TraceLock,
    /// Sums up counters of a whole subtree on all CPUs, under a global lock.
    FlushesRstat,
    /// Interrupts another CPU and spins until it answers.
    SendsIpis,
    /// The same as `SendsIpis`, but only on kernels with the old frequency sampling (before 5.18).
    SendsIpisBefore518,
    /// Waits for a device, a driver or a server.
    MayBlock,
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hazard::CgroupMutex => "takes cgroup_mutex",
            Hazard::MmapLock => "takes mmap_lock",
            Hazard::ExecUpdateLock => "takes exec_update_lock",
            Hazard::NamespaceSem => "takes namespace_sem",
            Hazard::ZoneLock => "takes the zone lock with interrupts off",
            Hazard::SlabMutex => "takes slab_mutex",
            Hazard::ModuleMutex => "takes module_mutex",
            Hazard::TraceLock => "takes trace_types_lock",
            Hazard::FlushesRstat => "flushes rstat",
            Hazard::SendsIpis => "sends IPIs",
            Hazard::SendsIpisBefore518 => "sends IPIs before Linux 5.18",
            Hazard::MayBlock => "may block on a device or server",
        })
    }
}

/// When a row is read, and how often it may be read. In rising order of harmlessness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rate {
    /// Not at all: it sends IPIs on every kernel. The row stands here so that it is not added again.
    Never,
    /// Once a window: during the window, or at its end.
    Once,
    /// At both ends of the window.
    Ends,
    /// At both ends, and each second between.
    Seconds,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rate::Never => "never",
            Rate::Once => "once a window",
            Rate::Ends => "twice a window",
            Rate::Seconds => "once a second",
        })
    }
}

/// One row: files of one kind.
///
/// A pattern is a path below the root. `{a,b}` stands for either word, `*` for any characters of one path component,
/// and `{name}` for each of the devices of that name:
///
/// | | |
/// |---|---|
/// | `{cpu}`, `{disk}`, `{nic}` | `cpu0`, `vda`, `eth0` |
/// | `{netns}` | the inode of each network namespace |
/// | `{pid}` | the busiest processes |
/// | `{v2}` | each cgroup of the unified hierarchy, the root's too: `sys/fs/cgroup/web` |
/// | `{v1:memory}` | each cgroup of a version 1 hierarchy: `sys/fs/cgroup/memory/web` |
/// | `{v2:below}`, `{v1:memory:below}` | the same without the root |
/// | `{v2:top}`, `{v1:memory:top}` | only the root and the groups right below it |
/// | `{limited}` | the groups whose memory limit was met in the window, or nearly |
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name; unique.
    pub id: &'static str,
    /// Which files.
    pub pattern: &'static str,
    /// When it is read.
    pub read: Rate,
    /// The highest rate at which it does no harm.
    pub highest: Rate,
    /// Why it can hurt. Only the disposable child reads rows with a hazard.
    pub hazards: &'static [Hazard],
    /// Largest size kept of one file, in bytes.
    pub cap: usize,
    /// What it is used for, or why it is dangerous.
    pub why: &'static str,
    /// What a kernel or machine must have to provide it.
    pub needs: &'static str,
}

/// A page: what a sysfs attribute can be at most.
pub(super) const PAGE: usize = 4096;
/// 64 KiB.
pub(super) const SMALL: usize = 64 << 10;
/// 1 MiB.
pub(super) const LARGE: usize = 1 << 20;
/// 8 MiB: /proc/interrupts of 4096 CPUs.
pub(super) const HUGE: usize = 8 << 20;

impl Row {
    /// A harmless row, read once at the window's end.
    pub(super) const fn new(id: &'static str, pattern: &'static str, why: &'static str) -> Row {
        Row {
            id,
            pattern,
            read: Rate::Once,
            highest: Rate::Ends,
            hazards: &[],
            cap: SMALL,
            why,
            needs: "another kernel version, option or driver",
        }
    }

    /// Read at both ends.
    pub(super) const fn ends(self) -> Row {
        Row { read: Rate::Ends, ..self }
    }

    /// Read at both ends and each second.
    pub(super) const fn seconds(self) -> Row {
        Row { read: Rate::Seconds, highest: Rate::Seconds, ..self }
    }

    /// Read once, last, by the child.
    pub(super) const fn hazard(self, hazards: &'static [Hazard]) -> Row {
        Row { read: Rate::Once, highest: Rate::Once, hazards, ..self }
    }

    /// Not read.
    pub(super) const fn never(self, hazards: &'static [Hazard]) -> Row {
        Row { read: Rate::Never, highest: Rate::Never, hazards, ..self }
    }

    /// Keep no more than `cap` bytes.
    pub(super) const fn cap(self, cap: usize) -> Row {
        Row { cap, ..self }
    }

    /// What a kernel or machine must have to provide it.
    pub(super) const fn needs(self, needs: &'static str) -> Row {
        Row { needs, ..self }
    }

    /// Whether it is read by the disposable child.
    #[must_use]
    pub fn hazardous(&self) -> bool {
        !self.hazards.is_empty()
    }

    /// The pattern with each `{a,b}` spelt out.
    pub(super) fn patterns(&self) -> Vec<String> {
        spell_out(self.pattern)
    }
}

/// Replaces the first `{a,b}` by `a` and by `b`, until there is none.
fn spell_out(pattern: &str) -> Vec<String> {
    let mut from = 0;
    while let Some(open) = pattern[from..].find('{').map(|at| at + from) {
        let Some(close) = pattern[open..].find('}').map(|at| at + open) else { break };
        let inside = &pattern[open + 1..close];
        if inside.contains(',') {
            let (before, after) = (&pattern[..open], &pattern[close + 1..]);
            return inside.split(',').flat_map(|word| spell_out(&format!("{before}{word}{after}"))).collect();
        }
        from = close + 1;
    }
    vec![pattern.to_owned()]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::rows::ROWS;
    use super::*;

    #[test]
    fn alternatives_are_spelt_out_and_things_are_not() {
        assert_eq!(spell_out("a/{b,c}/{cpu}/x_{d,e}").len(), 4);
        assert_eq!(spell_out("a/{cpu}/{c,d}"), ["a/{cpu}/c", "a/{cpu}/d"]);
        assert_eq!(spell_out("a/{torn"), ["a/{torn"]);
    }

    #[test]
    fn ids_and_files_are_unique() {
        let mut ids = BTreeSet::new();
        let mut files = BTreeSet::new();
        for row in ROWS {
            assert!(ids.insert(row.id), "{} is there twice", row.id);
            for file in row.patterns() {
                assert!(files.insert(file.clone()), "{file} is there twice");
            }
        }
    }

    #[test]
    fn no_row_with_a_hazard_is_read_more_than_once() {
        for row in ROWS.iter().filter(|row| row.hazardous()) {
            assert!(row.read <= Rate::Once, "{} is read too often", row.id);
            assert!(row.highest <= Rate::Once, "{} may be read too often", row.id);
        }
    }

    #[test]
    fn no_row_is_read_more_often_than_it_may_be() {
        for row in ROWS {
            assert!(row.read <= row.highest, "{}", row.id);
        }
    }

    #[test]
    fn files_known_to_hurt_carry_their_hazard() {
        let known: [(&str, Hazard); 13] = [
            ("proc/cgroups", Hazard::CgroupMutex),
            ("proc/self/mountinfo", Hazard::NamespaceSem),
            ("proc/buddyinfo", Hazard::ZoneLock),
            ("proc/zoneinfo", Hazard::ZoneLock),
            ("proc/{pid}/io", Hazard::ExecUpdateLock),
            ("proc/cpuinfo", Hazard::SendsIpisBefore518),
            ("/scaling_cur_freq", Hazard::SendsIpisBefore518),
            ("/cpuinfo_cur_freq", Hazard::SendsIpis),
            ("{limited}/memory.stat", Hazard::FlushesRstat),
            ("{v2:top}/cpu.stat", Hazard::FlushesRstat),
            ("{v2:top}/io.stat", Hazard::FlushesRstat),
            ("/power_limit_uw", Hazard::SendsIpis),
            ("/energy_performance_preference", Hazard::SendsIpis),
        ];
        for (file, hazard) in known {
            let found = ROWS.iter().filter(|row| row.patterns().iter().any(|p| p.ends_with(file)));
            for row in found.clone() {
                assert!(row.hazards.contains(&hazard), "{} of {file}", row.id);
            }
            let spelt = file.trim_start_matches('/');
            assert!(
                found.count() > 0 || ROWS.iter().any(|r| r.pattern.contains(spelt)),
                "{file} is not in the table"
            );
        }
    }

    #[test]
    fn files_of_processes_that_wait_for_mmap_lock_are_not_there() {
        for row in ROWS {
            for file in ["/cmdline", "/environ", "/maps", "/smaps", "/cgroup"] {
                assert!(!row.pattern.ends_with(&format!("{{pid}}{file}")), "{}", row.id);
            }
        }
    }

    #[test]
    fn every_row_says_why_and_is_bounded() {
        for row in ROWS {
            assert!(!row.why.is_empty() && !row.needs.is_empty(), "{}", row.id);
            assert!(row.cap > 0 && row.cap <= HUGE, "{}", row.id);
        }
    }
}
