//! Which of several nested limits on block I/O must change? On v2 a bio waits for the limit of its own group, and then for that of
//! each group above (block/blk-throttle.c, throtl_dispatch_tg): all groups below a limit share it. On v1 the groups stand side by side
//! ("the broken flat hierarchy", throtl_pd_init): limits above a group hold back nothing in it.
//!
//! The most used limit binds. Without it the tasks would do more in the time that they were held back: another limit that gives less than
//! that would hold them back next.

use whyslow_model::table::{Cgroup, Disk};

use crate::Evidence;
use crate::MAX_DEPTH;
use crate::hashing::{Table, with_room};
use crate::parse::io_limits::{self, Limit};

/// A limit on a cgroup's block I/O.
pub(super) struct Named {
    /// The group's path.
    pub group: String,
    pub file: String,
    /// "read limit of 1.0 MiB/s on vda".
    pub words: String,
    /// The limit's line in the file now.
    pub line: Option<String>,
    /// What to write to lift it.
    pub lift: String,
}

/// Bytes and requests.
type Amounts = [f64; 2];

/// The I/O of each group and of the groups below it, on each device and in each direction: what was done, and what would have been
/// done if no limit had held it back.
pub(super) struct Done<'r> {
    sums: Table<Place<'r>, (Amounts, Amounts)>,
}

/// A group by its path (and whether it is one of v1), device, direction.
type Place<'r> = (&'r str, bool, &'r str, &'r str);

impl<'r> Done<'r> {
    /// `growth`: how many times as much the tasks of a cgroup would do if no limit held them back.
    pub fn of(ev: &Evidence<'r>, growth: Table<u64, f64>) -> Self {
        let rows = ev.disk().unwrap_or_default();
        let mut sums: Table<Place<'r>, (Amounts, Amounts)> = with_room(rows.len());
        for row in rows {
            let Some(group) = ev.cgroup(row.cgroup) else { continue };
            let times = growth.get(&row.cgroup).copied().unwrap_or(1.0);
            // On v1 groups do not share the limit of a group above.
            let levels = if is_v1(group) { 1 } else { MAX_DEPTH };
            for path in ups(&group.path).take(levels) {
                let (done, wanted) = sums.entry((path, is_v1(group), &row.dev, &row.op)).or_default();
                for (at, amount) in [row.bytes, row.requests].into_iter().enumerate() {
                    done[at] += amount as f64;
                    wanted[at] += amount as f64 * times;
                }
            }
        }
        Done { sums }
    }

    /// How long, in s, a limit takes to let through what was done in `path`, and what would have been done there.
    fn takes(&self, group: &Cgroup, path: &str, most: &Disk, limit: &Limit) -> (f64, f64) {
        let (done, wanted) =
            self.sums.get(&(path, is_v1(group), &*most.dev, &*most.op)).copied().unwrap_or_default();
        let takes = |amounts: Amounts| {
            let at = |amount: f64, rate: Option<u64>| {
                rate.map_or(0.0, |rate| amount.max(1.0) / rate.max(1) as f64)
            };
            at(amounts[0], limit.bytes).max(at(amounts[1], limit.requests))
        };
        (takes(done), takes(wanted))
    }
}

/// A path and the paths above it, without the root: "/a/b", "/a".
fn ups(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| {
        path.rsplit_once('/').map(|(up, _)| up).filter(|up| !up.is_empty())
    })
}

/// The limit that held back a group's I/O, and the limits that would hold it back next. If no limit was recorded: the file where it
/// must be.
pub(super) fn limits_of(
    ev: &Evidence<'_>,
    group: &Cgroup,
    most: &Disk,
    done: &Done<'_>,
) -> (Named, Vec<Named>) {
    let files = files_of(group, most);
    let above = if is_v1(group) { "" } else { ", its own or that of a group above" };
    let none = |(path, file): &(String, String)| Named {
        group: path.clone(),
        file: file.clone(),
        words: format!("{} limit on {}{above}", verb(most), most.device),
        line: None,
        lift: lift(group, most),
    };
    let window_s = ev.window().as_secs_f64();
    let mut found: Vec<(f64, f64, Named)> = files
        .iter()
        .filter_map(|place| {
            let limit = limit_in(ev, &place.1, most)?;
            let (used, wanted) = done.takes(group, &place.0, most, &limit);
            let words = format!("{} limit of {} on {}", verb(most), limit.words, most.device);
            Some((used, wanted, Named { words, line: Some(limit.line), ..none(place) }))
        })
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0)); // stable: among equal limits the nearest is first
    let mut found = found.into_iter();
    match (found.next(), files.first()) {
        (Some((.., first)), _) => {
            let next = found.filter(|(_, wanted, _)| *wanted > window_s);
            (first, next.map(|(.., named)| named).collect())
        }
        (None, Some(own)) => (none(own), Vec::new()),
        (None, None) => (none(&(group.path.clone(), String::new())), Vec::new()),
    }
}

/// v1 hierarchies have a number, kept in the top byte of the id; the unified one has none.
fn is_v1(group: &Cgroup) -> bool {
    group.id >> 56 != 0
}

fn verb(row: &Disk) -> &'static str {
    if row.op == "write" { "write" } else { "read" }
}

/// Groups whose limits can hold back this one: itself first, then upwards, each with the file of its limit.
fn files_of(group: &Cgroup, row: &Disk) -> Vec<(String, String)> {
    let files = group.files.clone().unwrap_or_else(|| format!("<io cgroup>{}", group.path));
    if is_v1(group) {
        let file = |unit| format!("{files}/blkio.throttle.{}_{unit}_device", verb(row));
        return ["bps", "iops"].map(|unit| (group.path.clone(), file(unit))).to_vec();
    }
    let depth = group.path.split('/').filter(|part| !part.is_empty()).count();
    let up = |path: &str, n: usize| path.rsplitn(n + 1, '/').last().unwrap_or_default().to_owned();
    (0..depth.clamp(1, MAX_DEPTH))
        .map(|n| (up(&group.path, n), format!("{}/io.max", up(&files, n))))
        .collect()
}

/// What to write to lift a limit only in the direction that was held back.
fn lift(group: &Cgroup, row: &Disk) -> String {
    match is_v1(group) {
        true => format!("{} 0", row.dev),
        false if row.op == "write" => format!("{} wbps=max wiops=max", row.dev),
        false => format!("{} rbps=max riops=max", row.dev),
    }
}

fn limit_in(ev: &Evidence<'_>, file: &str, row: &Disk) -> Option<Limit> {
    let frame = ev.last(file.trim_start_matches('/')).ok()?;
    let text = String::from_utf8_lossy(&frame.bytes);
    io_limits::of_device(&text, &row.dev, row.op == "write", file.ends_with("iops_device")).ok()?
}

#[cfg(test)]
#[path = "nested_tests.rs"]
mod tests;
