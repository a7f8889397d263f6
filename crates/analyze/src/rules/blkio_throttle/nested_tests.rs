//! Trees of groups with io.max: each reader gets what the tightest limit on its path leaves.

use std::time::Duration;

use whyslow_model::table::{Tables, Task};
use whyslow_model::{FileSnapshot, Finding, Kind, Meta, Recording};

use super::super::check;
use super::*;

const SECOND: u64 = 1_000_000_000;
const WINDOW_S: u64 = 10;

/// A group: its path, its limit in reads per second, and the reads per second that it got. The disk gives one group 100 per second.
type Drawn<'d> = (&'d str, Option<u64>, u64);

fn host(groups: &[Drawn<'_>], hierarchy: u64) -> Recording {
    const FREE: u64 = 100;
    let id = |at: usize| hierarchy << 56 | (at as u64 + 2);
    let root = if hierarchy == 0 { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/blkio" };
    let (mut tables, mut snapshots) = (Tables::default(), Vec::new());
    for (at, (path, limit, reads)) in groups.iter().enumerate() {
        let files = format!("{root}{path}");
        let (file, text) = match (hierarchy, limit) {
            (0, Some(limit)) => ("io.max", format!("254:0 rbps=max wbps=7 riops={limit} wiops=max\n")),
            (_, Some(limit)) => ("blkio.throttle.read_iops_device", format!("254:0 {limit}\n")),
            (0, None) => ("io.max", String::new()),
            (_, None) => ("blkio.throttle.read_iops_device", String::new()),
        };
        let name = format!("{}/{file}", &files[1..]);
        snapshots.push(FileSnapshot { at: Duration::ZERO, name, bytes: text.into_bytes() });
        let group = Cgroup { id: id(at), path: (*path).to_owned(), files: Some(files), ..Cgroup::default() };
        tables.cgroups.get_or_insert_default().push(group);
        let held = (FREE - reads) * WINDOW_S * SECOND / FREE;
        let row = Disk {
            dev: "254:0".into(),
            device: "vda".into(),
            cgroup: id(at),
            op: "read".into(),
            requests: reads * WINDOW_S,
            held: reads * WINDOW_S,
            held_ns: held,
            ..Disk::default()
        };
        let lived_ns = WINDOW_S * SECOND;
        let task = Task { io_cgroup: id(at), lived_ns, io_ns: lived_ns, ..Task::default() };
        let (disk, tasks) = (tables.disk.get_or_insert_default(), tables.tasks.get_or_insert_default());
        if *reads > 0 {
            disk.push(row);
            tasks.push(task);
        }
    }
    let meta = Meta { window_ns: WINDOW_S * SECOND, ..Meta::default() };
    Recording { meta, snapshots, tables, ..Recording::default() }
}

fn reported(groups: &[Drawn<'_>], hierarchy: u64) -> Vec<Finding> {
    check(&Evidence::of(&host(groups, hierarchy))).unwrap()
}

/// Groups whose limits the fixes lift: first the one that binds.
fn lifted(finding: &Finding) -> Vec<String> {
    let group = |command: &String| {
        let file = command.rsplit(' ').next()?.strip_prefix("/sys/fs/cgroup")?;
        Some(file.strip_prefix("/blkio").unwrap_or(file).rsplit_once('/')?.0.to_owned())
    };
    finding
        .fixes
        .iter()
        .filter_map(|fix| fix.command.as_deref().map(str::to_owned))
        .filter_map(|c| group(&c))
        .collect()
}

fn one(groups: &[Drawn<'_>], hierarchy: u64) -> (String, Vec<String>) {
    let found = reported(groups, hierarchy);
    assert_eq!((found.len(), found[0].kind), (1, Kind::Cause), "{found:?}");
    (found[0].victim.id.clone(), lifted(&found[0]))
}

/// Like the limits of a pod and its container. The limit above them is ample.
#[test]
fn of_two_that_are_alike_both_must_change_and_the_nearest_is_the_first() {
    let (victim, lifted) = one(&[("/a", Some(2000), 0), ("/a/b", Some(20), 0), ("/a/b/c", Some(20), 20)], 0);
    assert_eq!((victim.as_str(), lifted), ("/a/b/c", vec!["/a/b/c".to_owned(), "/a/b".to_owned()]));
}

/// A regression: the rule said that each limit must change that is not ten times as wide.
#[test]
fn a_wider_one_must_change_if_it_gives_less_than_would_be_done() {
    let of = |outer, inner| one(&[("/a", Some(outer), 0), ("/a/b", Some(inner), 20)], 0);
    assert_eq!(of(40, 20), ("/a/b".to_owned(), vec!["/a/b".to_owned(), "/a".to_owned()]));
    assert_eq!(of(150, 20), ("/a/b".to_owned(), vec!["/a/b".to_owned()]));
    assert_eq!(of(20, 40), ("/a".to_owned(), vec!["/a".to_owned(), "/a/b".to_owned()]));
    assert_eq!(of(20, 150), ("/a".to_owned(), vec!["/a".to_owned()]));
}

/// A regression: the rule said that each group lost to a limit of its own.
#[test]
fn siblings_lose_to_the_limit_above_them_together() {
    let groups = [("/a", Some(40), 0), ("/a/b", None, 20), ("/a/c", None, 20)];
    assert_eq!(one(&groups, 0), ("/a".to_owned(), vec!["/a".to_owned()]));
    let lost = reported(&groups, 0)[0].lost.unwrap().as_secs_f64();
    assert!((lost - 16.0).abs() < 0.01, "{lost}");
    let own = |limit| one(&[("/a", Some(40), 0), ("/a/b", Some(limit), 20), ("/a/c", Some(limit), 20)], 0);
    assert_eq!(own(40).1, ["/a", "/a/b", "/a/c"]);
    assert_eq!(own(400).1, ["/a"]);
}

#[test]
fn siblings_with_limits_of_their_own_lose_each_to_its_own() {
    let found = reported(&[("/a", Some(500), 0), ("/a/b", Some(20), 20), ("/a/c", Some(10), 10)], 0);
    assert_eq!(found.iter().map(lifted).collect::<Vec<_>>(), [["/a/b"], ["/a/c"]]);
}

/// On v1 groups stand side by side: the kernel never applies a limit of a group above.
#[test]
fn on_v1_limits_above_hold_nobody() {
    let (victim, lifted) = one(&[("/a", Some(5), 0), ("/a/b", Some(20), 20)], 7);
    assert_eq!((victim.as_str(), lifted), ("/a/b", vec!["/a/b".to_owned()]));
}

/// Only the direction that was held is lifted.
#[test]
fn a_limit_on_writes_stays_where_reads_were_held() {
    let found = reported(&[("/a", Some(20), 20)], 0);
    assert_eq!(
        found[0].fixes[0].command.as_deref(),
        Some("echo '254:0 rbps=max riops=max' > /sys/fs/cgroup/a/io.max")
    );
    assert!(found[0].fixes[0].text.contains("undo: echo '254:0 rbps=max wbps=7 riops=20 wiops=max'"));
}

#[test]
fn the_title_names_those_that_must_change_with_it() {
    let found = reported(&[("/a", Some(20), 0), ("/a/b", Some(20), 20)], 0);
    assert!(found[0].title.ends_with("; that of /a must change with it"), "{}", found[0].title);
}

#[test]
fn of_two_thousand_that_share_one_limit_a_title_names_three() {
    let paths: Vec<String> = (0..2000).map(|n| format!("/a/b{n:04}")).collect();
    let mut groups = vec![("/a", Some(2000), 0)];
    // Each group has a limit that would hold it back next.
    groups.extend(paths.iter().map(|path| (path.as_str(), Some(2), 1)));
    let found = reported(&groups, 0);
    let first = found.iter().find(|f| f.victim.id == "/a").expect("the limit above them all");
    assert!(
        first.title.ends_with(" and 1997 others must change with it") && first.title.len() < 200,
        "{}",
        first.title
    );
    let last = first.fixes.last().unwrap();
    assert!(first.fixes.len() < 20 && last.text.ends_with(" further groups need the same"), "{last:?}");
}
