//! Nested limits: the limits that would be reached next are to be raised, too.

use whyslow_model::table::{Cgroup, CgroupMemory};

use super::*;
use crate::rules::memory_fixture::{Host, MS};

const LIMIT: u64 = 64 << 20;

/// Commands of the fixes, where the tasks' cgroup has a limit of 64 MiB, and its parent has this limit and usage.
fn commands(limit: Option<u64>, usage: u64, hits: [u64; 2]) -> Vec<String> {
    let host = Host::new("/pod/app").refaults(90_000, 100_000, 0).filled(800 * MS, 700 * MS);
    let mut rec = host.reclaimed(500 * MS).recording();
    let groups = rec.tables.cgroups.as_mut().unwrap();
    let memory = CgroupMemory { usage, limit, limit_hits: hits[0], ..CgroupMemory::default() };
    let pod = Cgroup {
        id: 4 << 56 | 8,
        path: "/pod".into(),
        files: Some("/sys/fs/cgroup/memory/pod".into()),
        memory: Some(memory),
        ..Cgroup::default()
    };
    groups[0].parent = pod.id;
    groups[0].memory.as_mut().unwrap().limit_hits = hits[1];
    groups[0].memory.as_mut().unwrap().usage = LIMIT;
    groups.push(pod);
    let found = check(&Evidence::of(&rec)).unwrap();
    assert_eq!(found.len(), 1, "each loss is reported once");
    found[0].fixes.iter().filter_map(|fix| fix.command.as_deref().map(str::to_owned)).collect()
}

#[test]
fn of_two_that_are_alike_both_are_to_be_raised() {
    let [app, pod] = ["/pod/app", "/pod"]
        .map(|path| format!("echo {} > /sys/fs/cgroup/memory{path}/memory.limit_in_bytes", 2 * LIMIT));
    assert_eq!(commands(Some(LIMIT), LIMIT, [0, 9]), [app.clone(), pod.clone()]);
    assert_eq!(commands(Some(LIMIT), LIMIT, [9, 0]), [pod, app.clone()]);
    assert_eq!(commands(Some(8 * LIMIT), LIMIT, [0, 9]), std::slice::from_ref(&app), "the parent has room");
    assert_eq!(commands(None, LIMIT, [0, 9]), [app]);
}
