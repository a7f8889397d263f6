//! Cgroups whose memory limit was met, or nearly: `memory.stat` shows what fills it. These cgroups are known only when the window has
//! ended; reading the file in all cgroups would cost the host what monitoring agents cost it.

use whyslow_model::table::Cgroup;

use super::Files;
use super::devices::Device;
use super::name::{printable, raw_name};

/// Each costs a flush of the counters below it.
const MOST: usize = 8;
/// A group that uses less than this part of its limit has room.
const FULL: f64 = 0.9;

impl Files {
    /// Chooses the cgroups whose `memory.stat` is read with the hazardous files.
    pub fn note_limited(&mut self, groups: &[Cgroup]) {
        let live = self.root.live;
        let device = |path: &str| {
            use std::os::unix::ffi::OsStrExt as _;
            let raw = raw_name(path.trim_start_matches('/'));
            Device { raw: raw.as_bytes().to_vec(), name: printable(raw.as_bytes(), live) }
        };
        self.devices.insert("limited".to_owned(), fullest(groups).into_iter().map(device).collect());
    }
}

/// The folders of cgroups that met their limit, most often first, and then of those that nearly met it.
fn fullest(groups: &[Cgroup]) -> Vec<&str> {
    let mut found: Vec<(u64, u64, &str)> = groups
        .iter()
        .filter_map(|group| {
            let memory = group.memory.as_ref()?;
            let limit = memory.limit.into_iter().chain(memory.high).min()?;
            let is_full = memory.usage as f64 >= FULL * limit as f64;
            let met = memory.limit_hits > 0 || memory.oom_kills > 0;
            (met || is_full).then_some((memory.oom_kills, memory.limit_hits, group.files.as_deref()?))
        })
        .collect();
    found.sort_by_key(|(kills, hits, path)| (std::cmp::Reverse((*kills, *hits)), *path));
    found.into_iter().take(MOST).map(|(.., path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whyslow_model::table::CgroupMemory;

    fn group(name: &str, memory: CgroupMemory) -> Cgroup {
        let files = Some(format!("/sys/fs/cgroup/{name}"));
        Cgroup { files, memory: Some(memory), ..Cgroup::default() }
    }

    #[test]
    fn those_that_met_their_limit_come_first_and_those_with_room_not_at_all() {
        let limit = Some(100);
        let groups = [
            group("roomy", CgroupMemory { limit, usage: 89, ..CgroupMemory::default() }),
            group("full", CgroupMemory { limit, usage: 90, ..CgroupMemory::default() }),
            group("met", CgroupMemory { limit, limit_hits: 3, ..CgroupMemory::default() }),
            group("slowed", CgroupMemory { high: Some(10), usage: 12, ..CgroupMemory::default() }),
            group("killed", CgroupMemory { limit, oom_kills: 1, ..CgroupMemory::default() }),
            group("free", CgroupMemory { usage: 1 << 40, limit_hits: 9, ..CgroupMemory::default() }),
            Cgroup {
                memory: Some(CgroupMemory { limit, limit_hits: 9, ..CgroupMemory::default() }),
                ..Cgroup::default()
            },
        ];
        let want = ["killed", "met", "full", "slowed"].map(|name| format!("/sys/fs/cgroup/{name}"));
        assert_eq!(fullest(&groups), want);
    }

    #[test]
    fn of_a_thousand_full_groups_a_few_are_read() {
        let full = CgroupMemory { limit: Some(1), usage: 1, ..CgroupMemory::default() };
        let groups: Vec<Cgroup> = (0..1000).map(|n| group(&format!("g{n:04}"), full.clone())).collect();
        let found = fullest(&groups);
        assert_eq!((found.len(), found.first().copied()), (MOST, Some("/sys/fs/cgroup/g0000")));
    }

    #[test]
    fn memory_stat_is_read_for_a_nested_group_at_its_limit_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["pods/deep", "calm"] {
            let group = dir.path().join("sys/fs/cgroup").join(name);
            std::fs::create_dir_all(&group).unwrap();
            std::fs::write(group.join("memory.stat"), "anon 4096\n").unwrap();
        }
        let mut files = Files::open(dir.path());
        files.note_limited(&[group(
            "pods/deep",
            CgroupMemory { limit: Some(9), limit_hits: 1, ..CgroupMemory::default() },
        )]);
        let mut seen = super::super::RawFiles::default();
        let moment = std::time::Duration::from_secs(1);
        files.read_hazardous(moment, moment * 5, &mut seen);
        let names = seen.snapshots.iter().map(|snapshot| snapshot.name.as_str());
        let stats: Vec<_> = names.filter(|name| name.ends_with("memory.stat")).collect();
        assert_eq!(stats, ["sys/fs/cgroup/pods/deep/memory.stat"]);
    }
}
