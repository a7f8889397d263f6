//! Cgroups: by id, how many there are, and how many removed ones still exist.

use whyslow_model::{Missing, MissingNote};

use super::Evidence;
use crate::parse::{cgroups, flat};

impl Evidence<'_> {
    /// Cgroups with memory control that were removed and not yet freed.
    pub fn dying_memory_cgroups(&self) -> Result<u64, Missing> {
        let controllers = self.file("proc/cgroups", cgroups::parse);
        match controllers.as_ref().map(|all| all.iter().find(|c| c.name == "memory")) {
            Ok(Some(memory)) if memory.hierarchy != 0 => {
                Ok(memory.cgroups.saturating_sub(self.memory_directories()?))
            }
            // The counter does not exist on v1. Without the list of controllers it may be either version: the file of v2 shows that it is v2.
            _ => self.dying_on_v2().map_err(|unknown| controllers.err().unwrap_or(unknown)),
        }
    }

    fn dying_on_v2(&self) -> Result<u64, Missing> {
        let root = ["sys/fs/cgroup/cgroup.stat", "sys/fs/cgroup/unified/cgroup.stat"];
        let stat = self.file(root[0], flat::parse).or_else(|_| self.file(root[1], flat::parse))?;
        // Linux counts by controller since 6.12; before, it counts cgroups of all controllers together.
        let dying = stat.get("nr_dying_subsys_memory").or_else(|| stat.get("nr_dying_descendants"));
        let needs = "Linux 4.14 with cgroup version 2".into();
        dying.copied().ok_or_else(|| Missing::NotInKernel { what: "a count of dying cgroups".into(), needs })
    }

    /// Memory cgroups of v1 that have a directory: each of them has one limit file, if the walk read them all.
    fn memory_directories(&self) -> Result<u64, Missing> {
        let limits = self.files_like("sys/fs/cgroup/", "/memory.limit_in_bytes");
        let is_cut = |note: &&MissingNote| {
            note.missing.below().is_some_and(|below| limits.iter().any(|frame| frame.name.starts_with(below)))
        };
        if let Some(note) = self.rec.missing.iter().find(is_cut) {
            return Err(note.missing.clone());
        }
        let said = self.rec.said_of(&["sys/fs/cgroup/memory/memory.limit_in_bytes"]);
        if let Some(skipped @ Missing::Skipped { .. }) = said {
            return Err(skipped.clone());
        }
        match limits.len() as u64 {
            0 => Err(Missing::not_recorded("the number of memory cgroup directories")),
            n => Ok(n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;

    const V1: &str = "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t4\t13\t1\n";

    #[test]
    fn on_v1_they_are_what_has_no_directory() {
        let host = Fixture::second()
            .end("proc/cgroups", V1)
            .end("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
            .end("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1\n");
        assert_eq!(host.ev().dying_memory_cgroups(), Ok(11));
    }

    #[test]
    fn on_v1_a_walk_that_was_cut_short_tells_nothing() {
        let reason = || "1000 were read, at least 5 more are there".to_owned();
        for missing in [
            Missing::cut_short("sys/fs/cgroup/memory", reason()),
            Missing::skipped("{v1:memory}/{memory.limit_in_bytes,memory.swappiness}", reason()),
        ] {
            let host = Fixture::second()
                .end("proc/cgroups", V1)
                .end("sys/fs/cgroup/memory/memory.limit_in_bytes", "1\n")
                .missing(missing.clone());
            assert_eq!(host.ev().dying_memory_cgroups(), Err(missing));
        }
        assert!(Fixture::second().end("proc/cgroups", V1).ev().dying_memory_cgroups().is_err());
    }

    #[test]
    fn on_v2_the_kernel_counts_them() {
        let v2 =
            "nr_descendants 87\nnr_subsys_memory 80\nnr_dying_descendants 30\nnr_dying_subsys_memory 25\n";
        let host = Fixture::second().end("sys/fs/cgroup/cgroup.stat", v2);
        assert_eq!(host.ev().dying_memory_cgroups(), Ok(25));
        let older = Fixture::second()
            .end("sys/fs/cgroup/cgroup.stat", "nr_descendants 87\nnr_dying_descendants 30\n");
        assert_eq!(older.ev().dying_memory_cgroups(), Ok(30));
        assert!(Fixture::second().ev().dying_memory_cgroups().is_err());
    }
}
