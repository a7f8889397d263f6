//! A cgroup has I/O to do, and a limit on its block I/O holds it back.
//!
//! Signal: bios that blk-throttle released late, and the time that tasks of their cgroup slept for I/O up to such a release. The
//! kernel releases held bios from a worker of its own; block_bio_queue fires only then. The time ends before the request is queued, so the
//! device has no part in it. Lost: that time, less what the tasks' sleeps absorb: a task that meets its timer's deadlines all the same
//! has lost nothing.
//! Of nested limits (version 2) the most used one binds first, and the cgroups below it lose to it together. Other limits that would
//! then hold back the tasks must change with it. On version 1 a limit above a cgroup holds back nothing in it.
//! Not this rule: a slow device (`disk-latency`); a limit that holds back no request.

use std::time::Duration;

use whyslow_model::table::{Cgroup, Disk, Task};
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Culprit, Finding, Hop, Missing, RuledOut, SubjectKind, command, seconds};

use super::Rule;
use crate::Evidence;
use crate::cpu::spread::{self, Loss};
use crate::hashing::{Set, Table, with_room};
use crate::names;

mod nested;
use nested::{Done, Named};

pub const RULE: Rule = Rule {
    id: "blkio-throttle",
    question: "Does a limit on block I/O make a cgroup wait?",
    what: "A cgroup with a limit on its block I/O (io.max, blkio.throttle.*_device) has used up what it may read or write \
           now. The kernel holds back its requests, and its tasks wait, although the device could serve them.",
    how: "block_bio_queue shows when the kernel releases a held request: tasks of the cgroup that slept for I/O up to that \
          moment were held back. Counterfactual: without the limit each I/O takes only the time in its queue and device after \
          the release; time lost = time blocked on held requests, less what the tasks' sleeps absorb, above 1 % of the window. Of \
          nested limits (version 2) the most used one is reported, with those that would hold back the tasks next.",
    limits: "Asynchronous I/O (io_uring, libaio) that no task sleeps for in D state: not counted. A task that waits for \
             another device at the moment of a release: counted as waiting for the released request. Held writeback of another \
             cgroup's pages: counted for the cgroup that owns the pages. Held times that never vary: sleeps may or may not have \
             absorbed them, so the rule reports a range. Version 1: limits above a cgroup hold back nothing in it.",
    sources: "block/blk-throttle.c (__blk_throtl_bio, blk_throtl_dispatch_work_fn), block/blk-core.c \
              (submit_bio_noacct_nocheck); Documentation/admin-guide/cgroup-v2.rst (io.max).",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: |reason, _| reason == Reason::IoThrottle,
};

/// Less than this share of one task's window is not worth a line.
const WORTH_IT: f64 = 0.01;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let held = held(ev)?;
    let done = Done::of(ev, held.iter().map(|held| (held.group.id, held.growth())).collect());
    // Cgroups that one limit holds back together lose to it together.
    let mut together: Vec<Together<'_>> = Vec::with_capacity(held.len());
    let mut of_limit: Table<(String, String, &str), usize> = with_room(held.len());
    for held in held {
        let (limit, others) = nested::limits_of(ev, held.group, held.rows[0], &done);
        let next = together.len();
        match *of_limit.entry((limit.file.clone(), limit.lift.clone(), &held.rows[0].op)).or_insert(next) {
            at if at < next => together[at].add(held, others),
            _ => together.push(Together::new(limit, others, held)),
        }
    }
    let least = WORTH_IT * ev.window().as_secs_f64();
    let noticed = together.into_iter().filter(|one| one.held.loss.high.as_secs_f64() > least);
    Ok(noticed.map(|one| finding(ev, one.sorted())).collect())
}

/// A cgroup whose tasks were held back.
struct Held<'r> {
    group: &'r Cgroup,
    /// Its held requests, by device and direction: the longest held time first.
    rows: Vec<&'r Disk>,
    /// Time that its requests were held, at most the time that its tasks waited for I/O.
    raw: Duration,
    loss: Loss,
    /// Time that its tasks lived, summed up.
    lived: Duration,
}

impl Held<'_> {
    /// How many times as much its tasks would do if no limit held them back.
    fn growth(&self) -> f64 {
        /// A cgroup that did next to nothing: how much more it would do is not known.
        const LEAST_LEFT: f64 = 0.001;
        let lived = self.lived.as_secs_f64();
        if lived <= 0.0 { 1.0 } else { 1.0 / (1.0 - self.loss.likely.as_secs_f64() / lived).max(LEAST_LEFT) }
    }
}

/// Cgroups whose I/O was held back, each by itself.
fn held<'r>(ev: &Evidence<'r>) -> Result<Vec<Held<'r>>, Missing> {
    let (disk, tasks, cgroups) = (ev.disk()?, ev.tasks()?, ev.cgroups()?);
    let mut held_rows: Table<u64, Vec<&Disk>> = with_room(disk.len());
    for row in disk.iter().filter(|row| row.held_ns > 0) {
        held_rows.entry(row.cgroup).or_default().push(row);
    }
    let mut waiters: Table<u64, Vec<&Task>> = with_room(held_rows.len());
    for task in tasks.iter().filter(|task| task.io_ns > 0 && held_rows.contains_key(&task.io_cgroup)) {
        waiters.entry(task.io_cgroup).or_default().push(task);
    }
    let one = |group: &'r Cgroup| {
        let mut rows = held_rows.remove(&group.id)?;
        rows.sort_by_key(|row| std::cmp::Reverse(row.held_ns));
        let held: u64 = rows.iter().fold(0, |sum, row| sum.saturating_add(row.held_ns));
        let victims = waiters.remove(&group.id).unwrap_or_default();
        // Tasks were not held back for longer than they waited for I/O.
        let waited: u64 = victims.iter().fold(0, |sum, task| sum.saturating_add(task.io_ns));
        let loss = spread::lost(&victims, |t| t.io_ns, held.min(waited) as f64);
        let raw = Duration::from_nanos(held.min(waited));
        let lived = victims.iter().fold(0, |sum: u64, task| sum.saturating_add(task.lived_ns));
        Some(Held { group, rows, raw, loss, lived: Duration::from_nanos(lived) })
    };
    Ok(cgroups.iter().filter_map(one).collect())
}

/// All cgroups that one limit held back.
struct Together<'r> {
    limit: Named,
    /// Limits that would hold them back next, each once.
    others: Vec<Named>,
    known: Set<String>,
    held: Held<'r>,
}

impl<'r> Together<'r> {
    fn new(limit: Named, others: Vec<Named>, held: Held<'r>) -> Self {
        let known = others.iter().map(|other| other.file.clone()).collect();
        Together { limit, others, known, held }
    }

    /// Sorts the rows: the longest held time first.
    fn sorted(mut self) -> Self {
        self.held.rows.sort_by_key(|row| std::cmp::Reverse(row.held_ns));
        self
    }

    fn add(&mut self, other: Held<'r>, others: Vec<Named>) {
        let (held, loss) = (&mut self.held, other.loss);
        held.rows.extend(other.rows);
        held.raw = held.raw.saturating_add(other.raw);
        held.lived = held.lived.saturating_add(other.lived);
        held.loss = Loss {
            likely: held.loss.likely.saturating_add(loss.likely),
            low: held.loss.low.saturating_add(loss.low),
            high: held.loss.high.saturating_add(loss.high),
            lived: held.loss.lived.saturating_add(loss.lived),
            tasks: held.loss.tasks.saturating_add(loss.tasks),
        };
        let new = others.into_iter().filter(|other| self.known.insert(other.file.clone()));
        self.others.extend(new);
    }

    /// The sum of the rows of one device and direction: those of the row with the longest held time.
    fn sum(&self) -> Disk {
        let most = self.held.rows[0];
        let alike = self.held.rows.iter().filter(|row| row.dev == most.dev && row.op == most.op);
        let none = Disk {
            device: most.device.clone(),
            dev: most.dev.clone(),
            op: most.op.clone(),
            ..Disk::default()
        };
        alike.fold(none, |sum, row| Disk {
            requests: sum.requests.saturating_add(row.requests),
            device_ns: sum.device_ns.saturating_add(row.device_ns),
            device_worst_ns: sum.device_worst_ns.max(row.device_worst_ns),
            queue_ns: sum.queue_ns.saturating_add(row.queue_ns),
            held: sum.held.saturating_add(row.held),
            held_worst_ns: sum.held_worst_ns.max(row.held_worst_ns),
            ..sum
        })
    }
}

/// A thousand siblings may share one limit: the fixes of the first ones show what to do.
const MOST_FIXES: usize = 12;

fn title(ev: &Evidence<'_>, one: &Together<'_>, most: &Disk, absorbed: bool) -> String {
    let verb = if most.op == "write" { "writes to" } else { "reads from" };
    let held = format!("a limit on its block I/O held back {verb} {}", most.device);
    if absorbed {
        let time = one.held.rows.iter().map(|row| Duration::from_nanos(row.held_ns)).sum::<Duration>();
        return format!("{held} for {}; its tasks sleep enough to have absorbed it", seconds(time));
    }
    let mut names: Vec<String> =
        one.others.iter().map(|other| ev.names().subject(&other.group).name).collect();
    names.dedup();
    format!("{held}{}", names::must_change(&names))
}

fn finding(ev: &Evidence<'_>, one: Together<'_>) -> Finding {
    let victim = ev.names().subject(&one.limit.group);
    let (most, loss) = (one.sum(), one.held.loss);
    let noticed = loss.low.as_secs_f64() > WORTH_IT * ev.window().as_secs_f64();
    let f = if noticed {
        Finding::cause(RULE.id, victim.clone(), loss.likely)
            .titled(title(ev, &one, &most, false))
            .share_of(loss.lived)
            .between(loss.low, loss.high)
    } else {
        Finding::risk(RULE.id, victim.clone()).titled(title(ev, &one, &most, true))
    };
    let f = with_hops(f.raw_wait(one.held.raw), &names::tasks_of(loss.tasks, &victim.name), &most, &loss);
    let limit = one.limit;
    let undo = limit.line.as_ref().map_or_else(
        || "the limit as it was".to_owned(),
        |line| command!("echo {} > {}", line, limit.file).to_string(),
    );
    let f = f
        .check(
            "the file lists the limit of each device (major:minor)",
            command!("cat {}; lsblk -o NAME,MAJ:MIN", limit.file),
        )
        .fix(
            format!("raise or lift the limit; others on the device may get slower (undo: {undo})"),
            command!("echo {} > {}", limit.lift, limit.file),
        )
        .by(Culprit::new(SubjectKind::Quota, limit.file.clone(), limit.words).at_file(limit.file));
    let more = one.others.len().saturating_sub(MOST_FIXES);
    one.others.into_iter().take(MOST_FIXES).enumerate().fold(f, |f, (at, other)| {
        let undo = other.line.map_or_else(String::new, |line| {
            format!(" (undo: {})", &*command!("echo {} > {}", line, other.file))
        });
        let text =
            format!("also raise or lift the {}, which would hold back the requests next{undo}", other.words);
        let text = match more {
            1.. if at + 1 == MOST_FIXES => format!("{text}; {more} further groups need the same"),
            _ => text,
        };
        f.fix(text, command!("echo {} > {}", other.lift, other.file))
    })
}

fn with_hops(f: Finding, who: &str, most: &Disk, loss: &Loss) -> Finding {
    let hop = |reason, what: String, lost, worst_ns, count, per_call| Hop {
        per_call,
        ..Hop::new(reason, who, what, TaskState::IoWait, lost).times(count, Duration::from_nanos(worst_ns))
    };
    let budget = format!("its I/O budget on {}", most.device);
    let served = Duration::from_nanos(most.device_ns.saturating_add(most.queue_ns));
    let each = served.checked_div(u32::try_from(most.requests).unwrap_or(u32::MAX));
    let device = format!("{} itself", most.device);
    f.hop(hop(Reason::IoThrottle, budget, loss.likely, most.held_worst_ns, most.held, None)).hop(hop(
        Reason::BlockIo,
        device,
        Duration::ZERO,
        most.device_worst_ns,
        most.requests,
        each,
    ))
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let held: u64 = ev.disk()?.iter().map(|row| row.held).fold(0, u64::saturating_add);
    let evidence = "no limit held back block I/O".to_owned();
    Ok((held == 0).then(|| RuledOut { what: "a limit on block I/O".into(), evidence }))
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::Tables;
    use whyslow_model::{FileSnapshot, Kind, Meta, Recording};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Two readers of /web for 10 s. Their requests were held for `held_ns` together; each reader slept for `sleep_ns`.
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
        let limit = FileSnapshot {
            at: Duration::ZERO,
            name: "sys/fs/cgroup/blkio/web/blkio.throttle.read_bps_device".into(),
            bytes: b"8:0 1\n254:0 1048576\n".to_vec(),
        };
        Recording {
            meta: Meta { window_ns: 10 * SECOND, ..Meta::default() },
            snapshots: vec![limit],
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
        rec.snapshots[0] = FileSnapshot {
            name: at.into(),
            bytes: b"254:0 rbps=max wbps=max riops=20 wiops=max\n".to_vec(),
            ..rec.snapshots[0].clone()
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
