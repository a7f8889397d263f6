//! The order in which a recording is written. A file that is cut off keeps its beginning only: the most important parts come first.
//! The first and the last snapshot of a file stand side by side, because one without the other is useless.

use std::collections::HashMap;

use whyslow_model::FileSnapshot;

/// Small files with the most important data: the host's CPU time, pressure, memory, disks, network.
const HOST: [&str; 13] = [
    "proc/stat",
    "proc/uptime",
    "proc/loadavg",
    "proc/pressure/",
    "proc/meminfo",
    "proc/vmstat",
    "proc/schedstat",
    "proc/softirqs",
    "proc/diskstats",
    "proc/net/",
    "netns/",
    "proc/swaps",
    "proc/sys/net/",
];
/// The files of cgroups: their number grows with the number of cgroups.
const CGROUPS: &str = "sys/fs/cgroup/";
const CGROUPS_RANK: usize = HOST.len();
const OTHERS_RANK: usize = HOST.len() + 1;
const BETWEEN_RANK: usize = HOST.len() + 2;

/// Indexes of snapshots in the order in which they are written.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// First and last snapshots of the files about the whole host.
    pub host: Vec<usize>,
    /// First and last snapshots of the cgroups' files.
    pub cgroups: Vec<usize>,
    /// First and last snapshots of the other files, then all snapshots between a first and a last one.
    pub others: Vec<usize>,
}

/// The first and the last snapshot of each file.
pub fn ends<'n>(names: impl Iterator<Item = &'n str>) -> HashMap<&'n str, (usize, usize)> {
    let mut ends: HashMap<&str, (usize, usize)> = HashMap::new();
    for (i, name) in names.enumerate() {
        ends.entry(name).or_insert((i, i)).1 = i;
    }
    ends
}

/// The order for these snapshots.
pub fn of(snapshots: &[FileSnapshot]) -> Order {
    let ends = ends(snapshots.iter().map(|f| f.name.as_str()));
    let mut ranked: Vec<(usize, &str, usize)> = Vec::with_capacity(snapshots.len());
    for (i, snapshot) in snapshots.iter().enumerate() {
        let name = snapshot.name.as_str();
        let between = ends.get(name).is_some_and(|(first, last)| i != *first && i != *last);
        ranked.push((if between { BETWEEN_RANK } else { rank(name) }, name, i));
    }
    ranked.sort_unstable();
    let mut order = Order::default();
    for (rank, _, i) in ranked {
        match rank {
            ..CGROUPS_RANK => order.host.push(i),
            CGROUPS_RANK => order.cgroups.push(i),
            _ => order.others.push(i),
        }
    }
    order
}

fn rank(name: &str) -> usize {
    let of_host = HOST.iter().position(|start| name.starts_with(start));
    of_host.unwrap_or(if name.starts_with(CGROUPS) { CGROUPS_RANK } else { OTHERS_RANK })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn start_and_end_stand_side_by_side_and_the_middle_comes_last() {
        let name = |n: &str| FileSnapshot { at: Duration::ZERO, name: n.to_owned(), bytes: Vec::new() };
        let names =
            ["sys/x", "proc/vmstat", "proc/stat", "proc/stat", "proc/stat", "sys/x", "sys/fs/cgroup/a"];
        let snapshots: Vec<FileSnapshot> = names.into_iter().map(name).collect();
        assert_eq!(of(&snapshots), Order { host: vec![2, 4, 1], cgroups: vec![6], others: vec![0, 5, 3] });
    }
}
