use whyslow_model::table::{Disk, IoFile};
use whyslow_model::timeline::{Context, Span, Stack, State, StateTimes, Waker};
use whyslow_model::{FileSnapshot, Kind, Meta, Recording};

use super::super::answer_fixture::answer_of;
use super::*;

const MS: u64 = 1_000_000;

/// A backup (9) and a shop (7) read from a disk. Each read of the shop takes `each` ms at the disk, and `queued` ms before that.
struct Host {
    each: u64,
    queued: u64,
    /// How long each read took that met no other request, if there were such reads.
    alone: Option<u64>,
    /// Of ten requests that are there at once, those of the backup.
    others: u64,
}

impl Host {
    fn rec(&self) -> Recording {
        let task = |pid: u32, comm: &str| Task {
            pid,
            tgid: pid,
            ppid: 1,
            comm: comm.into(),
            lived_ns: 1000 * MS,
            io_ns: 900 * MS,
            ..Task::default()
        };
        let wait = |pid: u32, comm: &str| Span {
            pid,
            tgid: pid,
            comm: comm.into(),
            at_ns: 50 * MS,
            woken_ns: 950 * MS,
            to_ns: 950 * MS,
            state: State::Io,
            device: Some("254:0".into()),
            mixed: StateTimes { running_ns: 50 * MS, ..StateTimes::default() },
            ..Span::default()
        };
        let row = |tgid: u32, comm: &str, requests: u64, ns: u64| IoFile {
            tgid,
            comm: comm.into(),
            dev: "254:0".into(),
            device: "vda".into(),
            op: "read".into(),
            requests,
            bytes: requests * 4096,
            device_ns: ns,
            ..IoFile::default()
        };
        let (own, queued) = (10 * self.each * MS, 10 * self.queued * MS);
        let theirs = (own + queued) * self.others / (10 - self.others);
        let disk = Disk {
            dev: "254:0".into(),
            device: "vda".into(),
            op: "read".into(),
            requests: 100,
            alone: if self.alone.is_some() { 20 } else { 0 },
            alone_bytes: 20 * 4096,
            alone_ns: 20 * self.alone.unwrap_or(0) * MS,
            ..Disk::default()
        };
        let mut rec =
            Recording { meta: Meta { window_ns: 1000 * MS, ..Meta::default() }, ..Recording::default() };
        rec.tables.tasks = Some(vec![task(7, "shop"), task(9, "backup")]);
        rec.tables.spans = Some(vec![wait(7, "shop"), wait(9, "backup")]);
        rec.tables.disk = Some(vec![disk]);
        let mine = IoFile { queue_ns: queued, ..row(7, "shop", 10, own) };
        rec.tables.io_files = Some(vec![mine, row(9, "backup", 90, theirs)]);
        rec
    }

    fn found(&self) -> Vec<Finding> {
        check(&Evidence::of(&self.rec())).unwrap()
    }
}

const SLOWED: Host = Host { each: 5, queued: 0, alone: Some(1), others: 9 };

#[test]
fn fires_when_others_fill_the_queue_and_a_request_alone_is_fast() {
    let found = SLOWED.found();
    assert_eq!((found.len(), found[0].kind), (1, Kind::Cause), "{found:?}");
    assert_eq!((found[0].victim.id.as_str(), found[0].culprit.as_ref().unwrap().id.as_str()), ("7", "9"));
    // Four fifths of a wait are the queue; the shop's own request there is the one that waits.
    let lost = found[0].lost.unwrap().as_millis();
    assert!((712..=728).contains(&lost), "{lost}");
    assert!(found[0].title.contains("1 ms when no other request was there"), "{}", found[0].title);
}

/// A part of the shop's waits, or most of them, are too short for rows of their own.
#[test]
fn short_waits_are_for_the_disk_if_the_long_ones_are() {
    let lost = |long: u64, short: u64| {
        let mut rec = Host { each: 90, alone: Some(18), ..SLOWED }.rec();
        let span = &mut rec.tables.spans.as_mut().unwrap()[0];
        span.at_ns = span.woken_ns - long * MS;
        span.mixed = StateTimes { io_ns: short * MS, ..StateTimes::default() };
        let found = check(&Evidence::of(&rec)).unwrap();
        found.first().and_then(|finding| finding.lost).unwrap_or_default().as_millis()
    };
    let (long, both, mostly) = (lost(500, 0), lost(500, 400), lost(200, 700));
    assert!((both * 5).abs_diff(long * 9) <= both / 2, "{both} of both, {long} of the long ones");
    assert!(mostly * 2 <= long, "{mostly}: what most of them waited for is not known");
}

/// The shop's requests were at this disk for 50 ms: it waited for another disk.
#[test]
fn short_waits_are_not_for_a_disk_that_was_asked_for_less() {
    let lost = |short: u64| {
        let mut rec = SLOWED.rec();
        let span = &mut rec.tables.spans.as_mut().unwrap()[0];
        (span.at_ns, span.mixed) =
            (span.woken_ns - 500 * MS, StateTimes { io_ns: short * MS, ..StateTimes::default() });
        check(&Evidence::of(&rec)).unwrap()[0].lost.unwrap()
    };
    assert_eq!(lost(400), lost(0));
}

/// On average the shop has 30 requests there at once, and the backup 70, 63 of them while the shop waited: of 92 requests that a request
/// of the shop met, 29 were the shop's own.
#[test]
fn own_requests_beside_the_one_that_waits_are_nobody_elses() {
    let found = Host { each: 3000, others: 7, ..SLOWED }.found();
    let lost = found[0].lost.unwrap().as_millis();
    assert!((607..=623).contains(&lost), "{lost}");
}

#[test]
fn is_quiet_where_a_request_alone_takes_as_long_and_where_the_queue_is_the_waiters_own() {
    assert_eq!(Host { alone: Some(5), ..SLOWED }.found(), Vec::new());
    assert_eq!(Host { others: 4, ..SLOWED }.found(), Vec::new());
}

/// Whether a fast disk that was never idle could serve many requests at once is not known.
#[test]
fn accuses_nobody_where_a_disk_was_never_idle_and_is_not_slow() {
    assert_eq!(Host { alone: None, ..SLOWED }.found(), Vec::new());
    let slow = Host { each: 40, alone: None, ..SLOWED };
    assert_eq!(slow.found().len(), 1, "no disk of its kind needs 40 ms");
    let spinning = |host: &Host| {
        let mut rec = host.rec();
        let name = "sys/block/vda/queue/rotational".into();
        rec.snapshots.push(FileSnapshot { at: Duration::ZERO, name, bytes: b"1\n".to_vec() });
        check(&Evidence::of(&rec)).unwrap().len()
    };
    assert_eq!(spinning(&slow), 0);
    let queued = Host { each: 4, queued: 36, alone: None, others: 9 };
    assert_eq!(spinning(&queued), 1, "before the disk took the request, it waited only for others");
}

/// Three groups read from a disk that takes 90 ms for each request, however many it has at once.
#[test]
fn accuses_no_equal_where_it_is_not_known_what_a_request_alone_takes() {
    let beside = |host: &Host, name: &str, size: u64| {
        let mut rec = host.rec();
        let third = Task { pid: 11, tgid: 11, ..rec.tables.tasks.as_ref().unwrap()[1].clone() };
        let third = Task { comm: name.into(), ..third };
        rec.tables.tasks.as_mut().unwrap().push(third);
        let files = rec.tables.io_files.as_mut().unwrap();
        files.push(IoFile { tgid: 11, comm: name.into(), ..files[1].clone() });
        files.iter_mut().skip(1).for_each(|row| row.bytes = row.requests * size);
        check(&Evidence::of(&rec)).unwrap()
    };
    let alike = |host: &Host| beside(host, "copy", 4096);
    let by_name = |host: &Host| beside(host, "backup", 4096);
    let slow = Host { each: 90, alone: None, others: 5, ..SLOWED };
    assert_eq!(alike(&slow), Vec::new());
    assert_eq!(by_name(&slow), Vec::new(), "two jobs of one name count as one job each");
    assert!(!beside(&slow, "copy", 1 << 20).is_empty(), "one large request is no equal of a small one");
    let mut twice = Host { others: 6, ..slow };
    assert_eq!(twice.found(), Vec::new(), "one and a half times as much");
    twice.others = 7;
    assert_eq!(twice.found().len(), 1, "more than twice as much");
    assert!(!alike(&Host { alone: Some(2), ..slow }).is_empty(), "alone it is known to be fast");
    assert!(!alike(&Host { each: 9, queued: 81, alone: None, others: 5 }).is_empty(), "they waited for room");
    assert!(!alike(&Host { each: 90, alone: None, others: 8, ..SLOWED }).is_empty(), "four times as much");
}

#[test]
fn kernel_writeback_is_charged_to_the_process_that_wrote() {
    let mut rec = SLOWED.rec();
    let worker = Task { pid: 50, tgid: 50, kthread: true, comm: "kworker/u8:1".into(), ..Task::default() };
    let tasks = rec.tables.tasks.as_mut().unwrap();
    tasks.push(worker);
    tasks.iter_mut().for_each(|task| task.written_bytes = Some(if task.pid == 9 { 1 << 30 } else { 0 }));
    for row in rec.tables.io_files.as_mut().unwrap() {
        row.op = "write".into();
    }
    let row = &mut rec.tables.io_files.as_mut().unwrap()[1];
    (row.tgid, row.comm) = (50, "kworker/u8:1".into());
    let disk = &mut rec.tables.disk.as_mut().unwrap()[0];
    (disk.op, disk.bytes) = ("write".into(), 1 << 30);
    let culprit = |rec: &Recording| {
        let found = check(&Evidence::of(rec)).unwrap();
        found.first().and_then(|finding| finding.culprit.clone()).map(|culprit| culprit.id)
    };
    assert_eq!(culprit(&rec).as_deref(), Some("9"));
    rec.tables.tasks.as_mut().unwrap().iter_mut().for_each(|task| task.written_bytes = None);
    assert_eq!(culprit(&rec), None, "no task is known to have written");
    rec.tables.tasks.as_mut().unwrap().iter_mut().for_each(|task| task.written_bytes = Some(5 << 30));
    assert_eq!(culprit(&rec), None, "most of it went elsewhere");
    let row = &mut rec.tables.io_files.as_mut().unwrap()[1];
    (row.op, row.comm) = ("write".into(), "md0_resync".into());
    assert_eq!(culprit(&rec).as_deref(), Some("50"), "a kernel thread that works for itself");
}

#[test]
fn cannot_tell_without_block_io() {
    let mut rec = SLOWED.rec();
    rec.tables.disk = None;
    assert!(check(&Evidence::of(&rec)).is_err());
    let mut rec = SLOWED.rec();
    rec.tables.io_files = None;
    assert!(check(&Evidence::of(&rec)).is_err(), "the owners of the requests are not known");
    rec.tables.spans = Some(Vec::new());
    assert_eq!(check(&Evidence::of(&rec)), Ok(Vec::new()), "no task waits for a disk");
}

#[test]
fn process_that_keeps_a_disk_busy_is_reported_even_without_victims() {
    let busy = |ms: u64| {
        let mut rec = SLOWED.rec();
        rec.tables.spans = Some(Vec::new());
        let name: String = "proc/diskstats".into();
        for (at, busy) in [(0, 0), (1, ms)] {
            let line = format!(" 254 0 vda {at} 0 80 5 0 0 0 0 0 {busy} 10\n");
            let at = Duration::from_millis(at * 1000);
            rec.snapshots.push(FileSnapshot { at, name: name.clone(), bytes: line.into_bytes() });
        }
        check(&Evidence::of(&rec)).unwrap()
    };
    let told = busy(950);
    assert_eq!((told.len(), told[0].kind), (1, Kind::Busy), "{told:?}");
    assert!(told[0].victim.id == "9" && told[0].title.starts_with("keeps vda busy ("), "{told:?}");
    assert_eq!(busy(500), Vec::new());
}

/// A program and the processes that it started are one tree, whatever their sessions.
#[test]
fn is_quiet_about_who_waits_behind_what_it_has_started() {
    let mut rec = SLOWED.rec();
    let group = whyslow_model::table::Cgroup { id: 5, path: "/jobs".into(), ..Default::default() };
    rec.tables.cgroups = Some(vec![group]);
    for task in rec.tables.tasks.as_mut().unwrap() {
        (task.unified_cgroup, task.session) = (5, task.pid);
    }
    rec.tables.disk.as_mut().unwrap()[0].cgroup = 5;
    assert_eq!(check(&Evidence::of(&rec)).unwrap().len(), 1, "two jobs of one terminal");
    rec.tables.tasks.as_mut().unwrap()[1].ppid = 7;
    assert_eq!(check(&Evidence::of(&rec)).unwrap(), Vec::new());
}

/// Adds a client that has no requests at a disk: it waits over a socket for a service that waits for the disk.
fn with_a_client(rec: &mut Recording, pid: u32, (service, comm): (u32, &str)) {
    let asks = Span {
        pid,
        tgid: pid,
        comm: "client".into(),
        at_ns: 50 * MS,
        woken_ns: 950 * MS,
        to_ns: 950 * MS,
        state: State::Sleep,
        syscall: Some(7),
        args: [3, 1, 1, 20],
        waker: Some(answer_of(service, comm, 900 * MS, true)),
        mixed: StateTimes { running_ns: 50 * MS, ..StateTimes::default() },
        ..Span::default()
    };
    rec.tables.spans.as_mut().unwrap().push(asks);
    let task = Task {
        pid,
        tgid: pid,
        ppid: 1,
        comm: "client".into(),
        lived_ns: 1000 * MS,
        sleep_ns: 900 * MS,
        ..Task::default()
    };
    rec.tables.tasks.as_mut().unwrap().push(task);
}

#[test]
fn a_client_of_who_waits_loses_by_the_requests_of_its_service() {
    let mut rec = SLOWED.rec();
    with_a_client(&mut rec, 4, (7, "shop"));
    let found = check(&Evidence::of(&rec)).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].victim.id.as_str(), found[0].culprit.as_ref().unwrap().id.as_str()), ("4", "9"));
    let lost = found[0].lost.unwrap().as_millis();
    assert!((712..=728).contains(&lost), "{lost}");
    assert!(found[0].title.contains("each read of shop"), "{}", found[0].title);
    assert_eq!(found[0].chain.len(), 2, "it waits for the shop, which waits for the disk");
    // ... and a client that keeps the disk busy itself waits for its own requests.
    rec.tables.tasks.as_mut().unwrap().iter_mut().filter(|task| task.pid == 9).for_each(|task| task.tgid = 4);
    rec.tables.io_files.as_mut().unwrap()[1].tgid = 4;
    assert_eq!(check(&Evidence::of(&rec)).unwrap(), Vec::new());
}

/// The client's own requests at the disk count as its own, whatever the others request.
#[test]
fn a_clients_own_requests_are_nobody_elses() {
    let mut rec = SLOWED.rec();
    with_a_client(&mut rec, 4, (7, "shop"));
    let files = rec.tables.io_files.as_mut().unwrap();
    let own =
        IoFile { tgid: 4, comm: "client".into(), device_ns: files[1].device_ns * 9 / 10, ..files[1].clone() };
    files.push(own);
    let told = check(&Evidence::of(&rec)).unwrap();
    assert!(!told.iter().any(|finding| finding.victim.id == "4"), "{told:?}");
}

/// Two services of one name are in the same chain: which of them each client asks is not known.
#[test]
fn clients_of_two_services_of_one_name_are_not_told() {
    let mut rec = SLOWED.rec();
    let group = |id: u64| whyslow_model::table::Cgroup {
        id,
        path: format!("/docker/{}", id.to_string().repeat(64)),
        ..Default::default()
    };
    rec.tables.cgroups = Some(vec![group(5), group(6)]);
    rec.tables
        .tasks
        .as_mut()
        .unwrap()
        .iter_mut()
        .for_each(|task| task.unified_cgroup = if task.pid == 7 { 5 } else { 6 });
    rec.tables.tasks.as_mut().unwrap()[1].comm = "shop".into();
    rec.tables.spans.as_mut().unwrap()[1].comm = "shop".into();
    with_a_client(&mut rec, 4, (7, "shop"));
    with_a_client(&mut rec, 5, (9, "shop"));
    let told = check(&Evidence::of(&rec)).unwrap();
    let is_client = |finding: &Finding| ["4", "5"].contains(&finding.victim.id.as_str());
    assert!(!told.iter().any(is_client), "{told:?}");
}

/// The shop waits for the thread of the journal, which waits for the disk: that the thread works for the shop is known.
#[test]
fn a_client_of_who_waits_for_the_journals_thread_waits_for_the_disk() {
    let mut rec = SLOWED.rec();
    let kernel = |frames: &str| frames.split(' ').map(str::to_owned).collect();
    let commits = Stack {
        id: 1,
        kernel: kernel("schedule jbd2_log_wait_commit ext4_sync_file do_fsync"),
        user: Vec::new(),
    };
    rec.tables.stacks = Some(vec![commits]);
    let spans = rec.tables.spans.as_mut().unwrap();
    let journal = Span { pid: 50, tgid: 50, comm: "jbd2/vda-8".into(), ..spans[0].clone() };
    (spans[0].state, spans[0].device, spans[0].stack) = (State::Blocked, None, Some(1));
    spans[0].waker = Some(Waker {
        pid: 50,
        tgid: 50,
        comm: "jbd2/vda-8".into(),
        context: Context::Task,
        ..Waker::default()
    });
    spans.push(journal);
    let journal = Task { pid: 50, tgid: 50, kthread: true, comm: "jbd2/vda-8".into(), ..Task::default() };
    rec.tables.tasks.as_mut().unwrap().push(journal);
    with_a_client(&mut rec, 4, (7, "shop"));
    let told = check(&Evidence::of(&rec)).unwrap();
    let of_client = told.iter().find(|finding| finding.victim.id == "4");
    let culprit = of_client.and_then(|finding| finding.culprit.as_ref()).map(|culprit| culprit.id.as_str());
    assert_eq!(culprit, Some("9"), "{told:?}");
}
