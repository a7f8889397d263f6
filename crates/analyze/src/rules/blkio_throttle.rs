//! A cgroup has I/O to do, and a limit on its block I/O holds it back.
//!
//! Signal: bios that blk-throttle let go late, and how long tasks of their cgroup were blocked meanwhile: a time that
//! ends before the request is queued, so that the device has no part in it. Lost: that time, less what the tasks'
//! sleeps absorb. Not this rule: a slow device (`disk-latency`); a limit that is there and holds nobody up.

use std::time::Duration;

use whyslow_model::table::{Cgroup, Disk, Task};
use whyslow_model::{Culprit, Finding, Hop, Missing, Not, SubjectKind, seconds};

use super::Rule;
use crate::Evidence;
use crate::names;
use crate::parse::io_limits::{self, Limit};
use crate::shell::quoted;
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
};

/// Less than this share of one task's window is not worth a line.
const WORTH_IT: f64 = 0.01;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let (disk, tasks, cgroups) = (ev.disk()?, ev.tasks()?, ev.cgroups()?);
    let mut found = Vec::new();
    for group in cgroups {
        let mut rows: Vec<&Disk> =
            disk.iter().filter(|row| row.cgroup == group.id && row.held_ns > 0).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.held_ns));
        let held: u64 = rows.iter().fold(0, |sum, row| sum.saturating_add(row.held_ns));
        let victims: Vec<&Task> = tasks.iter().filter(|t| t.io_cgroup == group.id && t.io_ns > 0).collect();
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
    let limit = limit_of(ev, group, most);
    let (file, lift) = (quoted(&limit.file), quoted(&limit.lift));
    let undo = limit
        .line
        .as_ref()
        .map_or_else(|| "the limit as it was".to_owned(), |line| format!("echo {} > {file}", quoted(line)));
    let hop = |edge: &str, waits_for: String, lost, worst_ns, count, per_call| Hop {
        edge: edge.into(),
        who: format!("{} tasks of {}", loss.tasks, victim.name),
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
    f.by(Culprit::new(SubjectKind::Quota, limit.file.clone(), limit.words).at_file(limit.file))
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
            format!("cat {file}; lsblk -o NAME,MAJ:MIN"),
        )
        .fix(format!("raise or lift the limit (undo: {undo})"), format!("echo {lift} > {file}"))
}

/// The limit that held a cgroup's I/O.
struct Named {
    file: String,
    words: String,
    line: Option<String>,
    lift: String,
}

/// From the limit files of the group and, on v2, of its ancestors; where none was recorded, the file it must be.
fn limit_of(ev: &Evidence<'_>, group: &Cgroup, row: &Disk) -> Named {
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
    let found = names.iter().find_map(|name| {
        let frame = ev.recording().last(name.trim_start_matches('/')).ok()?;
        let text = String::from_utf8_lossy(&frame.bytes);
        Some((
            name.clone(),
            io_limits::of_device(&text, &row.dev, write, name.ends_with("iops_device")).ok()??,
        ))
    });
    let lift = if v1 {
        format!("{} 0", row.dev)
    } else {
        format!("{} rbps=max wbps=max riops=max wiops=max", row.dev)
    };
    let verb = if write { "write" } else { "read" };
    match found {
        Some((file, Limit { words, line })) => Named {
            file,
            words: format!("{verb} limit of {words} on {}", row.device),
            line: Some(line),
            lift,
        },
        None => Named {
            file: names.first().cloned().unwrap_or_default(),
            words: format!("{verb} limit on {}", row.device),
            line: None,
            lift,
        },
    }
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

    #[test]
    fn says_so_when_it_cannot_tell() {
        let mut rec = host(SECOND, 0);
        rec.tables.disk = None;
        assert_eq!(check(&Evidence::of(&rec)).unwrap_err().to_string(), "block I/O was not recorded");
    }
}
