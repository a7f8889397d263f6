//! A device takes long for each request.
//!
//! Signal: the time from handing a request to the device until the request is done, by device and direction, while tasks waited for
//! I/O. Lost: not measured, because the speed that the device ought to have is not known; so this rule makes risks. Not this rule: time
//! before the request is queued (`blkio-throttle`).

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::table::Disk;
use whyslow_model::timeline::State;
use whyslow_model::wait::{Reason, TaskState};
use whyslow_model::{Culprit, Finding, Hop, Missing, RuledOut, Subject, SubjectKind, command, seconds};

use super::Rule;
use crate::Evidence;
use crate::wait_reasons;

pub const RULE: Rule = Rule {
    id: "disk-latency",
    question: "Does a disk take long for each request?",
    what: "A slow disk delays tasks that read data that is not in memory, and tasks that must have their data on disk before they go on.",
    how: "Each request is timed from its issue to its completion, by device and direction. Reported when the mean of at least \
          20 requests is above 100 ms on a spinning disk, above 10 ms on any other, and tasks waited for I/O meanwhile for more than \
          1 % of the window. There is no time lost and no counterfactual.",
    limits: "Risks only: what the disk could do is not known. The device's own queue: its time is included, so a deep queue makes \
             each request slow without a slow disk. Stacked devices (dm, md): their requests are seen at the devices below them.",
    sources: "block/blk-mq.c (blk_mq_start_request, blk_update_request); Documentation/block/stat.rst.",
    can_be_cause: false,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: |reason, _| reason == Reason::BlockIo,
};

/// The mean of fewer requests says little.
const ENOUGH_REQUESTS: u64 = 20;
/// Waits below this share of the window do not matter.
const WAITED: f64 = 0.01;

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let disk = ev.disk()?;
    if !somebody_waited(ev)? {
        return Ok(Vec::new());
    }
    let mut sums: BTreeMap<(&str, &str), Disk> = BTreeMap::new();
    for row in disk {
        let sum = sums.entry((&row.device, &row.op)).or_default();
        sum.requests = sum.requests.saturating_add(row.requests);
        sum.device_ns = sum.device_ns.saturating_add(row.device_ns);
        sum.device_worst_ns = sum.device_worst_ns.max(row.device_worst_ns);
    }
    let reported = sums.into_iter().filter_map(|((device, op), sum)| {
        let mean = mean_of(&sum)?;
        (op != "other" && mean > ev.slow_request(device)).then(|| finding(device, op, &sum, mean))
    });
    Ok(reported.collect())
}

fn mean_of(sum: &Disk) -> Option<Duration> {
    (sum.requests >= ENOUGH_REQUESTS)
        .then(|| Duration::from_nanos(sum.device_ns.checked_div(sum.requests).unwrap_or(0)))
}

/// Whether tasks waited for a disk: time in `in_iowait`, and other uninterruptible waits that were for a disk. Some paths
/// (wait_on_buffer of a journal, a driver's own queue) sleep without io_schedule().
fn somebody_waited(ev: &Evidence<'_>) -> Result<bool, Missing> {
    let waited: u64 = ev.tasks()?.iter().map(|t| t.io_ns).fold(0, u64::saturating_add);
    let is_much = |waited: u64| Duration::from_nanos(waited) > ev.window().mul_f64(WAITED);
    Ok(is_much(waited) || is_much(waited.saturating_add(blocked_by_disks(ev))))
}

fn blocked_by_disks(ev: &Evidence<'_>) -> u64 {
    let stacks = ev.stacks();
    let rows = ev.spans().unwrap_or_default().iter().filter(|span| span.state == State::Blocked);
    let disks = rows.filter(|span| wait_reasons::of(span, stacks).reason == Reason::BlockIo);
    disks
        .map(|span| span.woken_ns.saturating_sub(span.at_ns).max(span.sampled_wait_ns))
        .fold(0, u64::saturating_add)
}

fn finding(device: &str, op: &str, sum: &Disk, mean: Duration) -> Finding {
    let worst = Duration::from_nanos(sum.device_worst_ns);
    let hop = Hop {
        reason: Reason::BlockIo,
        who: "tasks that wait for I/O".into(),
        detail: format!("{op} requests on {device}").into(),
        state: TaskState::IoWait,
        lost: Duration::ZERO,
        worst: Some(worst),
        count: Some(sum.requests),
        per_call: Some(mean),
        ..Hop::default()
    };
    let subject = Subject::new(SubjectKind::Device, device, device);
    Finding::risk(RULE.id, subject)
        .titled(format!("a {op} takes {} on average ({} at worst)", seconds(mean), seconds(worst)))
        .raw_wait(Duration::from_nanos(sum.device_ns))
        .by(Culprit::new(SubjectKind::Device, device, device))
        .hop(hop)
        .check("r_await and w_await are this high", command!("iostat -x 1 3 {}", device))
        .advice("see in the account by cgroup which cgroup keeps the disk busy; check the disk's health, or the volume behind it")
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let waited = somebody_waited(ev)?;
    let evidence = "tasks waited for disks for 1 % of the window or less".to_owned();
    Ok((!waited).then(|| RuledOut { what: "a disk".into(), evidence }))
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::{Tables, Task};
    use whyslow_model::{FileSnapshot, Kind, Meta, Recording};

    use super::*;

    /// 100 reads by each of two cgroups, each of `each_ms`; one task waited for `waited_ms` of 10 s.
    fn host(each_ms: u64, waited_ms: u64) -> Recording {
        let row = |cgroup| Disk {
            device: "vda".into(),
            op: "read".into(),
            cgroup,
            requests: 100,
            device_ns: 100 * each_ms * 1_000_000,
            device_worst_ns: 3 * each_ms * 1_000_000,
            ..Disk::default()
        };
        let task = Task { io_ns: waited_ms * 1_000_000, ..Task::default() };
        let tables =
            Tables { disk: Some(vec![row(1), row(2)]), tasks: Some(vec![task]), ..Tables::default() };
        Recording {
            meta: Meta { window_ns: 10_000_000_000, ..Meta::default() },
            tables,
            ..Recording::default()
        }
    }

    #[test]
    fn tells_of_a_slow_disk_that_tasks_wait_for() {
        let found = check(&Evidence::of(&host(20, 5000))).unwrap();
        assert_eq!((found.len(), found[0].kind, found[0].lost), (1, Kind::Risk, None));
        assert_eq!(found[0].title, "a read takes 20 ms on average (60 ms at worst)");
        assert_eq!(found[0].chain[0].count, Some(200));
    }

    #[test]
    fn a_spinning_disk_may_take_longer() {
        let mut rec = host(20, 5000);
        let name = "sys/block/vda/queue/rotational".to_owned();
        rec.snapshots.push(FileSnapshot { at: Duration::ZERO, name, bytes: b"1\n".to_vec() });
        assert_eq!(check(&Evidence::of(&rec)), Ok(vec![]));
    }

    #[test]
    fn is_quiet_when_it_is_fast_or_nobody_waits() {
        assert_eq!(check(&Evidence::of(&host(2, 5000))), Ok(vec![]));
        assert_eq!(rules_out(&Evidence::of(&host(2, 5000))), Ok(None));
        assert_eq!(check(&Evidence::of(&host(20, 50))), Ok(vec![]));
        assert!(rules_out(&Evidence::of(&host(20, 50))).unwrap().is_some());
    }

    /// The task sleeps in state D without io_schedule(): no counter of I/O waits has that sleep, but the chains show it.
    #[test]
    fn a_wait_for_a_disk_that_no_counter_calls_io_is_one() {
        use whyslow_model::table::{Span, Stack};
        let mut rec = host(20, 0);
        let kernel = "schedule bit_wait __wait_on_bit out_of_line_wait_on_bit __wait_on_buffer ext4_read_bh";
        let kernel = kernel.split(' ').map(str::to_owned).collect();
        rec.tables.stacks = Some(vec![Stack { id: 1, kernel, ..Stack::default() }]);
        let wait = Span { state: State::Blocked, stack: Some(1), woken_ns: 5_000_000_000, ..Span::default() };
        let stacks = wait_reasons::Stacks::in_recording(&rec);
        assert_eq!(wait_reasons::of(&wait, &stacks).reason, Reason::BlockIo);
        rec.tables.spans = Some(vec![wait]);
        assert_eq!(rules_out(&Evidence::of(&rec)), Ok(None));
        assert_eq!(check(&Evidence::of(&rec)).unwrap().len(), 1);
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        let mut rec = host(20, 5000);
        rec.tables.tasks = None;
        assert_eq!(check(&Evidence::of(&rec)).unwrap_err().to_string(), "task list was not recorded");
    }
}
