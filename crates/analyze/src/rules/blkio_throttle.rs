//! A cgroup has I/O to do, and a limit on its block I/O holds it back.
//!
//! Signal: bios that blk-throttle let go late, and how long tasks of their cgroup were blocked meanwhile: a time that
//! ends before the request is queued, so that the device has no part in it. Lost: that time, less what the tasks'
//! sleeps absorb. Not this rule: a slow device (`disk-latency`); a limit that is there and holds nobody up.

use std::collections::HashMap;
use std::time::Duration;

use whyslow_model::table::{Cgroup, Disk, Task};
use whyslow_model::{Culprit, Finding, Hop, Missing, Not, SubjectKind, command, seconds};

use super::Rule;
use crate::Evidence;
use crate::names;
use crate::parse::io_limits::{self, Limit};
use crate::spread::{self, Loss};

/// The rule.
pub const RULE: Rule = Rule {
    id: "blkio-throttle",
    question: "Does a limit on block I/O make a cgroup wait?",
    what: "A cgroup with a limit on its block I/O (io.max, blkio.throttle.*_device) has used up what it may read or write \
           now. The kernel keeps its requests, and its tasks wait, although the device could serve them.",
    how: "The kernel's throttle releases held bios from a worker of its own; block_bio_queue fires only then. Tasks of \
          the cgroup that slept for I/O up to such a release were held. Counterfactual: without the limit each I/O costs \
          what its queue and device cost after the release. Time lost = time blocked on held bios, less what the tasks' \
          sleeps absorb: a task that meets its timer's deadlines all the same has lost nothing.",
    limits: "Asynchronous I/O (io_uring, libaio) that nobody sleeps for in D state is not counted. A task that waits for \
             another device at the moment of a release is taken to wait for it. Held writeback of another cgroup's pages \
             is that cgroup's. If held times never vary, sleeps may have absorbed them or not: then a range is given.",
    sources: "block/blk-throttle.c (__blk_throtl_bio, blk_throtl_dispatch_work_fn), block/blk-core.c \
              (submit_bio_noacct_nocheck); Documentation/admin-guide/cgroup-v2.rst (io.max).",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    shows: |edge, _| edge == "io-throttle",
};

/// Less than this share of one task's window is not worth a line.
const WORTH_IT: f64 = 0.01;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let (disk, tasks, cgroups) = (ev.disk()?, ev.tasks()?, ev.cgroups()?);
    let mut held_rows: HashMap<u64, Vec<&Disk>> = HashMap::new();
    for row in disk.iter().filter(|row| row.held_ns > 0) {
        held_rows.entry(row.cgroup).or_default().push(row);
    }
    let mut waiters: HashMap<u64, Vec<&Task>> = HashMap::new();
    for task in tasks.iter().filter(|task| task.io_ns > 0 && held_rows.contains_key(&task.io_cgroup)) {
        waiters.entry(task.io_cgroup).or_default().push(task);
    }
    let mut found = Vec::new();
    for group in cgroups {
        let Some(mut rows) = held_rows.remove(&group.id) else { continue };
        rows.sort_by_key(|row| std::cmp::Reverse(row.held_ns));
        let held: u64 = rows.iter().fold(0, |sum, row| sum.saturating_add(row.held_ns));
        let victims = waiters.remove(&group.id).unwrap_or_default();
        // Nobody was held longer than he waited for I/O.
        let waited: u64 = victims.iter().fold(0, |sum, task| sum.saturating_add(task.io_ns));
        let loss = spread::lost(&victims, |t| t.io_ns, held.min(waited) as f64);
        if loss.high.as_secs_f64() > WORTH_IT * ev.window().as_secs_f64() {
            found.push(finding(ev, group, &rows, &loss).raw_wait(Duration::from_nanos(held.min(waited))));
        }
    }
    Ok(found)
}

fn finding(ev: &Evidence<'_>, group: &Cgroup, rows: &[&Disk], loss: &Loss) -> Finding {
    let victim = names::cgroup_subject(group);
    let (most, held) = (rows[0], rows.iter().map(|row| Duration::from_nanos(row.held_ns)).sum::<Duration>());
    let verb = if most.op == "write" { "writes to" } else { "reads from" };
    let noticed = loss.low.as_secs_f64() > WORTH_IT * ev.window().as_secs_f64();
    let f = if noticed {
        Finding::cause(RULE.id, victim.clone(), loss.likely)
            .titled(format!("a limit on its block I/O held back {verb} {}", most.device))
            .share_of(loss.lived)
            .between(loss.low, loss.high)
    } else {
        Finding::risk(RULE.id, victim.clone()).titled(format!(
            "a limit on its block I/O held back {verb} {} for {}; its tasks sleep enough to have absorbed it",
            most.device,
            seconds(held)
        ))
    };
    let (limit, others) = limits_of(ev, group, most);
    let (file, lift) = (limit.file.clone(), limit.lift.clone());
    let undo = limit.line.as_ref().map_or_else(
        || "the limit as it was".to_owned(),
        |line| command!("echo {} > {}", line, file).to_string(),
    );
    let hop = |edge: &str, waits_for: String, lost, worst_ns, count, per_call| Hop {
        edge: edge.into(),
        who: names::tasks_of(loss.tasks, &victim.name),
        waits_for,
        state: "disk sleep".into(),
        lost,
        worst: Some(Duration::from_nanos(worst_ns)),
        count: Some(count),
        per_call,
        grows_with: None,
    };
    let served = Duration::from_nanos(most.device_ns.saturating_add(most.queue_ns));
    let each = served.checked_div(u32::try_from(most.requests).unwrap_or(u32::MAX));
    let f = f
        .by(Culprit::new(SubjectKind::Quota, limit.file.clone(), limit.words).at_file(limit.file))
        .hop(hop(
            "io-throttle",
            format!("its I/O budget on {}", most.device),
            loss.likely,
            most.held_worst_ns,
            most.held,
            None,
        ))
        .hop(hop(
            "block-io",
            format!("{} itself", most.device),
            Duration::ZERO,
            most.device_worst_ns,
            most.requests,
            each,
        ))
        .check(
            "the limit of each device (major:minor) is in it",
            command!("cat {}; lsblk -o NAME,MAJ:MIN", file),
        )
        .fix(format!("raise or lift the limit (undo: {undo})"), command!("echo {} > {}", lift, file));
    others.into_iter().fold(f, |f, other| {
        let undo = other.line.map_or_else(String::new, |line| {
            format!(" (undo: {})", &*command!("echo {} > {}", line, other.file))
        });
        let text = format!("with it raise or lift the {} there, which would hold it next{undo}", other.words);
        f.fix(text, command!("echo {} > {}", other.lift, other.file))
    })
}

/// The limit that held a cgroup's I/O.
struct Named {
    file: String,
    words: String,
    line: Option<String>,
    lift: String,
}

/// A limit so many times as wide as the one that holds is not the next to hold.
const WIDE: f64 = 10.0;

/// From the limit files of the group and, on v2, of its ancestors: the tightest for what was done, and others that are not much
/// wider. Where none was recorded, the file it must be. On v1 the limits of ancestors hold nobody below.
fn limits_of(ev: &Evidence<'_>, group: &Cgroup, row: &Disk) -> (Named, Vec<Named>) {
    // v1 hierarchies have a number, kept in the top byte of the id; the unified one has none.
    let v1 = group.id >> 56 != 0;
    let write = row.op == "write";
    let files = group.files.clone().unwrap_or_else(|| format!("<io cgroup>{}", group.path));
    let names: Vec<String> = if v1 {
        let op = if write { "write" } else { "read" };
        ["bps", "iops"].iter().map(|unit| format!("{files}/blkio.throttle.{op}_{unit}_device")).collect()
    } else {
        let depth = group.path.split('/').filter(|part| !part.is_empty()).count();
        let up = |n: usize| files.rsplitn(n + 1, '/').last().unwrap_or_default().to_owned();
        (0..depth.max(1)).map(|n| format!("{}/io.max", up(n))).collect()
    };
    let lift = match v1 {
        true => format!("{} 0", row.dev),
        false => format!("{} rbps=max wbps=max riops=max wiops=max", row.dev),
    };
    let verb = if write { "write" } else { "read" };
    let read = |name: &String| {
        let frame = ev.last(name.trim_start_matches('/')).ok()?;
        let text = String::from_utf8_lossy(&frame.bytes);
        let limit = io_limits::of_device(&text, &row.dev, write, name.ends_with("iops_device")).ok()??;
        let words = format!("{verb} limit of {} on {}", limit.words, row.device);
        let takes = takes(&limit, row);
        Some((takes, Named { file: name.clone(), words, line: Some(limit.line), lift: lift.clone() }))
    };
    let mut found: Vec<(f64, Named)> = names.iter().filter_map(read).collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0)); // stable: of equals the nearest is first
    let mut found = found.into_iter();
    match found.next() {
        Some((most, first)) => {
            (first, found.filter(|(takes, _)| takes * WIDE >= most).map(|(_, named)| named).collect())
        }
        None => {
            let words = format!("{verb} limit on {}", row.device);
            let file = names.first().cloned().unwrap_or_default();
            (Named { file, words, line: None, lift }, Vec::new())
        }
    }
}

/// The time that all these requests take under a limit, in s.
fn takes(limit: &Limit, row: &Disk) -> f64 {
    let at =
        |amount: u64, rate: Option<u64>| rate.map_or(0.0, |rate| amount.max(1) as f64 / rate.max(1) as f64);
    at(row.bytes, limit.bytes).max(at(row.requests, limit.requests))
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<Not>, Missing> {
    let held: u64 = ev.disk()?.iter().map(|row| row.held).fold(0, u64::saturating_add);
    let evidence = "no block I/O was held back by one".to_owned();
    Ok((held == 0).then(|| Not { what: "a limit on block I/O".into(), evidence }))
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::Tables;
    use whyslow_model::{Frame, Kind, Meta, Recording};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Two readers of /web for 10 s; held so long in all, they slept so long each.
    fn host(held_ns: u64, sleep_ns: u64) -> Recording {
        let id = 7 << 56 | 5;
        let files = Some("/sys/fs/cgroup/blkio/web".to_owned());
        let web = Cgroup { id, path: "/web".into(), files, ..Cgroup::default() };
        let task = Task {
            io_cgroup: id,
            lived_ns: 10 * SECOND,
            io_ns: held_ns / 2 + SECOND / 2,
            sleep_ns,
            ..Task::default()
        };
        let row = Disk {
            dev: "254:0".into(),
            device: "vda".into(),
            cgroup: id,
            op: "read".into(),
            requests: 100,
            device_ns: SECOND,
            held: 100,
            held_ns,
            ..Disk::default()
        };
        let limit = Frame {
            at: Duration::ZERO,
            name: "sys/fs/cgroup/blkio/web/blkio.throttle.read_bps_device".into(),
            bytes: b"8:0 1\n254:0 1048576\n".to_vec(),
        };
        Recording {
            meta: Meta { window_ns: 10 * SECOND, ..Meta::default() },
            frames: vec![limit],
            tables: Tables {
                tasks: Some(vec![task; 2]),
                cgroups: Some(vec![web]),
                disk: Some(vec![row]),
                ..Tables::default()
            },
            ..Recording::default()
        }
    }

    #[test]
    fn fires_when_reads_are_held_back() {
        let rec = host(16 * SECOND, 0);
        let found = check(&Evidence::of(&rec)).unwrap();
        assert_eq!((found[0].kind, found[0].victim.id.as_str()), (Kind::Cause, "/web"));
        assert_eq!(found[0].lost, Some(Duration::from_secs(16)));
        let culprit = found[0].culprit.clone().unwrap();
        assert_eq!(culprit.file.as_deref(), Some("/sys/fs/cgroup/blkio/web/blkio.throttle.read_bps_device"));
        assert_eq!(culprit.name, "read limit of 1.0 MiB/s on vda");
        assert!(found[0].fixes[0].text.contains("echo '254:0 1048576' > "), "{:?}", found[0].fixes);
    }

    #[test]
    fn is_only_a_risk_when_a_timer_may_have_absorbed_it() {
        let found = check(&Evidence::of(&host(4 * SECOND, 7 * SECOND))).unwrap();
        assert_eq!((found[0].kind, found[0].lost), (Kind::Risk, None));
        assert!(found[0].title.contains("for 4.0 s; its tasks sleep enough"), "{}", found[0].title);
    }

    #[test]
    fn is_quiet_when_a_limit_is_there_and_holds_nobody() {
        let mut rec = host(0, 0);
        rec.tables.disk.as_mut().unwrap()[0].held = 0;
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
        assert!(rules_out(&Evidence::of(&rec)).unwrap().is_some());
    }

    #[test]
    fn a_v2_limit_may_be_an_ancestors() {
        let mut rec = host(16 * SECOND, 0);
        let (id, at) = (5, "sys/fs/cgroup/a.slice/io.max");
        rec.frames[0] = Frame {
            name: at.into(),
            bytes: b"254:0 rbps=max wbps=max riops=20 wiops=max\n".to_vec(),
            ..rec.frames[0].clone()
        };
        let group = &mut rec.tables.cgroups.as_mut().unwrap()[0];
        (group.id, group.path, group.files) =
            (id, "/a.slice/b.service".into(), Some("/sys/fs/cgroup/a.slice/b.service".into()));
        rec.tables.disk.as_mut().unwrap()[0].cgroup = id;
        for task in rec.tables.tasks.iter_mut().flatten() {
            task.io_cgroup = id;
        }
        let culprit = check(&Evidence::of(&rec)).unwrap()[0].culprit.clone().unwrap();
        assert_eq!(culprit.file.as_deref(), Some("/sys/fs/cgroup/a.slice/io.max"));
        assert_eq!(culprit.name, "read limit of 20 requests/s on vda");
    }

    /// As a pod and its container have them; the one above them is ample.
    #[test]
    fn of_nested_v2_limits_all_that_hold_are_named_the_tightest_first() {
        let fixes = |of: [(&str, u64); 3]| {
            let mut rec = host(16 * SECOND, 0);
            rec.frames = of
                .iter()
                .map(|(folder, riops)| Frame {
                    name: format!("sys/fs/cgroup/{folder}/io.max"),
                    bytes: format!("254:0 rbps=max wbps=max riops={riops} wiops=max\n").into_bytes(),
                    ..rec.frames[0].clone()
                })
                .collect();
            let group = &mut rec.tables.cgroups.as_mut().unwrap()[0];
            (group.id, group.path, group.files) = (5, "/a/b/c".into(), Some("/sys/fs/cgroup/a/b/c".into()));
            rec.tables.disk.as_mut().unwrap()[0].cgroup = 5;
            for task in rec.tables.tasks.iter_mut().flatten() {
                task.io_cgroup = 5;
            }
            let found = check(&Evidence::of(&rec)).unwrap();
            assert_eq!(found.len(), 1);
            let files = found[0].fixes.iter().filter_map(|fix| fix.command.as_ref()?.split("cgroup").nth(1));
            (found[0].culprit.clone().unwrap().id, files.map(str::to_owned).collect::<Vec<_>>())
        };
        let alike = fixes([("a/b/c", 20), ("a/b", 20), ("a", 2000)]);
        assert_eq!(alike.0, "/sys/fs/cgroup/a/b/c/io.max");
        assert_eq!(alike.1, ["/a/b/c/io.max", "/a/b/io.max"]);
        let above = fixes([("a/b/c", 40), ("a/b", 2000), ("a", 20)]);
        assert_eq!(above.1, ["/a/io.max", "/a/b/c/io.max"]);
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        let mut rec = host(SECOND, 0);
        rec.tables.disk = None;
        assert_eq!(check(&Evidence::of(&rec)).unwrap_err().to_string(), "block I/O was not recorded");
    }
}
