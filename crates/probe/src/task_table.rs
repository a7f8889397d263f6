//! Makes the tables of tasks and cgroups from snapshots and traces.

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use whyslow_model::task::Phases;
use whyslow_model::timeline::StateTimes;
use whyslow_model::{Missing, counted, table};

use crate::bpf::constants::tasks_c;
use crate::bpf::exits;
use crate::bpf::sched::{self, sched_exit, sched_slot};
use crate::bpf::tasks::{CONTROLLERS, Snapshot, tasks_cgroup, tasks_one};
use crate::bpf::text;
use crate::bpf::titles::Titles;
use crate::span_table::Window;

/// include/linux/sched.h
const PF_KTHREAD: u32 = 0x0020_0000;
const PF_EXITING: u32 = 4;
/// 64-bit kernels count weights and shares 1024-fold (SCHED_FIXEDPOINT_SHIFT, v4.7, 2159197d6677).
const WEIGHT_SCALE: u64 = 1024;

/// Bits of `tasks_cgroup::controllers`.
const CPU: u64 = tasks_c::CPU as u64;
const MEMORY: u64 = tasks_c::MEMORY as u64;

/// One row per task: tasks that live at the end, then tasks that ended.
#[must_use]
pub fn tasks(start: &Snapshot, end: &Snapshot, seen: &sched::RawSched, window: Window) -> Vec<table::Task> {
    let possible = libbpf_rs::num_possible_cpus().unwrap_or(1);
    let before: HashMap<(u32, u64), &tasks_one> =
        start.tasks.iter().map(|t| ((t.pid, t.start_ns), t)).collect();
    let slots: HashMap<u32, &sched_slot> = seen.live.iter().map(|l| (l.slot.pid, &l.slot)).collect();
    let gone: HashMap<(u32, u64), u64> = seen.exits.late().iter().map(|end| (end.key, end.exec_ns)).collect();
    // A task that ended between this walk and the probe's walk is reported by its exit record. A thread that executed a program took over its
    // leader's number and begin (fs/exec.c, de_thread), but not the CPU time that the leader had used when it ended.
    let ended_late =
        |now: &tasks_one| gone.get(&(now.pid, now.start_ns)).is_some_and(|exec_ns| *exec_ns >= now.exec_ns);
    // A zombie: it is listed until its parent waits for it. Some tasks born in the window are reported together with others.
    let reported = LazyCell::new(|| {
        seen.exits.single().iter().map(|exit| (exit.pid, exit.start_ns)).collect::<HashSet<_>>()
    });
    let is_zombie = |now: &tasks_one| {
        let key = (now.pid, now.start_ns);
        let is_with_others = || !before.contains_key(&key) && seen.exits.has_folded();
        now.flags & PF_EXITING != 0 && (reported.contains(&key) || is_with_others())
    };
    let has_ended = |now: &tasks_one| !slots.contains_key(&now.pid) && (ended_late(now) || is_zombie(now));
    let live = end.tasks.iter().filter(|t| t.pid != 0 && !has_ended(t)).map(|now| {
        let then = before.get(&(now.pid, now.start_ns)).copied();
        let slot = slots.get(&now.pid);
        // A thread that took over this pid in the window (exec) is not the task that had the pid at the begin.
        let mut row = row_of(now, then.filter(|_| slot.is_none_or(|slot| slot.taken_over == 0)), possible);
        row.cmdline = words(&row, &seen.titles, now.start_ns);
        if let Some(slot) = slot {
            add_trace(&mut row, slot);
        } else {
            row.lived_ns = window.ns;
            not_seen(&mut row);
        }
        row
    });
    let mut rows: Vec<table::Task> = live.collect();
    // The exit record has no user; the walk saw the zombie and knows it.
    let zombies = end.tasks.iter().filter(|now| is_zombie(now));
    let users: HashMap<(u32, u64), u32> = zombies.map(|now| ((now.pid, now.start_ns), now.uid)).collect();
    let with_user = |row: table::Task| {
        let uid = row.uid.or_else(|| users.get(&(row.pid, row.begun_ns)).copied());
        table::Task { uid, ..row }
    };
    rows.extend(ended(&before, seen, possible, window).into_iter().map(with_user));
    rows
}

/// Tasks that ended: one by one, and the sums of those that are reported together.
fn ended(
    before: &HashMap<(u32, u64), &tasks_one>,
    seen: &sched::RawSched,
    possible: usize,
    window: Window,
) -> Vec<table::Task> {
    let (exits, titles) = (&seen.exits, &seen.titles);
    let row = |exit: &sched_exit| {
        // A thread that took over this pid in the window (exec) is not the task that had the pid at the begin.
        let then = before.get(&(exit.pid, exit.start_ns)).copied().filter(|_| exit.slot.taken_over == 0);
        let mut row = row_of_exit(exit, then, possible);
        row.phases = phases(exit, window).map(Box::new);
        row.cmdline = words(&row, titles, exit.start_ns);
        if then.is_none() && exit.slot.creator == 0 && exit.slot.taken_over == 0 {
            of_the_window(&mut row);
        }
        row
    };
    let single = exits.single().into_iter().map(row);
    let folded = |(sum, count): (&sched_exit, u64)| table::Task {
        folded: count.saturating_sub(1),
        begun_ns: 0,
        phases: phases(sum, window).map(Box::new),
        ..row_of_exit(sum, None, possible)
    };
    single.chain(exits.together().into_iter().map(folded)).collect()
}

/// The command line or title of its process: the row of the first thread has it for all threads.
fn words(row: &table::Task, titles: &Titles, start_ns: u64) -> Option<String> {
    if row.pid == row.tgid && !row.kthread { titles.line(row.tgid, start_ns) } else { None }
}

fn row_of(now: &tasks_one, then: Option<&tasks_one>, possible: usize) -> table::Task {
    let since = |now: u64, then: Option<u64>| now.saturating_sub(then.unwrap_or(0));
    table::Task {
        pid: now.pid,
        tgid: now.tgid,
        ppid: now.ppid,
        comm: text(&now.comm),
        kthread: now.flags & PF_KTHREAD != 0,
        uid: Some(now.uid),
        begun_ns: now.start_ns,
        cpu_cgroup: now.cpu_cgroup,
        memory_cgroup: now.memory_cgroup,
        io_cgroup: now.io_cgroup,
        unified_cgroup: now.unified_cgroup,
        session: now.session,
        tracer: now.tracer,
        autogroup: now.autogroup,
        autogroup_weight: now.autogroup_shares / WEIGHT_SCALE,
        born: then.is_none(),
        exec_ns: since(now.exec_ns, then.map(|t| t.exec_ns)),
        run_delay_ns: since(now.run_delay_ns, then.map(|t| t.run_delay_ns)),
        switches_in: since(now.switches_in, then.map(|t| t.switches_in)),
        voluntary: since(now.voluntary, then.map(|t| t.voluntary)),
        involuntary: since(now.involuntary, then.map(|t| t.involuntary)),
        written_bytes: written(now.written, then),
        allowed: cpu_list(&now.allowed, possible),
        allowed_count: now.allowed_count,
        policy: now.policy,
        weight: now.weight / WEIGHT_SCALE,
        ..table::Task::default()
    }
}

fn row_of_exit(exit: &sched_exit, then: Option<&tasks_one>, possible: usize) -> table::Task {
    let since = |now: u64, then: Option<u64>| now.saturating_sub(then.unwrap_or(0));
    let mut row = table::Task {
        pid: exit.pid,
        tgid: exit.tgid,
        ppid: exit.ppid,
        comm: text(&exit.comm),
        parent: text(&exit.parent),
        kthread: exit.flags & PF_KTHREAD != 0,
        // The exit record has no user. A task rarely changes its user within the window: take the one it had at the begin.
        uid: then.map(|t| t.uid),
        begun_ns: exit.start_ns,
        cpu_cgroup: exit.cpu_cgroup,
        memory_cgroup: exit.memory_cgroup,
        io_cgroup: exit.io_cgroup,
        unified_cgroup: exit.unified_cgroup,
        session: exit.session,
        tracer: exit.tracer,
        autogroup: exit.autogroup,
        autogroup_weight: exit.autogroup_shares / WEIGHT_SCALE,
        born: then.is_none(),
        ended: true,
        exec_ns: since(exit.exec_ns, then.map(|t| t.exec_ns)),
        run_delay_ns: since(exit.run_delay_ns, then.map(|t| t.run_delay_ns)),
        switches_in: since(exit.switches_in, then.map(|t| t.switches_in)),
        voluntary: since(exit.voluntary, then.map(|t| t.voluntary)),
        involuntary: since(exit.involuntary, then.map(|t| t.involuntary)),
        written_bytes: written(exit.written, then),
        // The exit record has only the number of CPUs: if it has changed, the CPUs themselves are not known.
        allowed: then
            .filter(|t| t.allowed_count == exit.allowed_count)
            .map(|t| cpu_list(&t.allowed, possible))
            .unwrap_or_default(),
        allowed_count: exit.allowed_count,
        policy: exit.policy,
        weight: exit.weight / WEIGHT_SCALE,
        ..table::Task::default()
    };
    if exit.slot.task == 0 {
        row.lived_ns = row.exec_ns.saturating_add(row.run_delay_ns);
        not_seen(&mut row);
    } else {
        add_trace(&mut row, &exit.slot);
    }
    row
}

/// A task older than the window that was not met at its begin: the kernel's counts are of its whole life. A walk in a pid
/// namespace does not see tasks outside, but their exits are reported.
fn of_the_window(row: &mut table::Task) {
    row.born = false;
    if row.unseen {
        (row.runnable_ns, row.lived_ns, row.unknown_ns) = (0, 0, 0);
    }
    (row.exec_ns, row.run_delay_ns) = (row.traced_ns, row.runnable_ns);
    (row.switches_in, row.voluntary, row.involuntary) = (0, 0, 0);
    row.written_bytes = None;
}

/// The bytes that it wrote since then; a kernel may not count them.
fn written(now: u64, then: Option<&tasks_one>) -> Option<u64> {
    const NOT_COUNTED: u64 = u64::MAX;
    (now != NOT_COUNTED).then(|| now.saturating_sub(then.map_or(0, |then| then.written)))
}

/// A task that had no place in our table: the kernel knows how long it ran and was ready, but not how long it waited.
fn not_seen(row: &mut table::Task) {
    row.unseen = true;
    row.runnable_ns = row.run_delay_ns;
    row.unknown_ns = row.lived_ns.saturating_sub(row.exec_ns).saturating_sub(row.run_delay_ns);
}

/// The note about tasks that had no place: how many, and the largest of them.
#[must_use]
pub fn unseen(rows: &[table::Task]) -> Option<Missing> {
    /// So many are named.
    const NAMED: usize = 3;
    let mut unseen: Vec<&table::Task> = rows.iter().filter(|row| row.unseen).collect();
    // The probe was not running: its own note says why.
    if unseen.len() == rows.len() {
        return None;
    }
    unseen.sort_by_key(|row| (std::cmp::Reverse(row.exec_ns.saturating_add(row.run_delay_ns)), row.pid));
    let names: Vec<String> =
        unseen.iter().take(NAMED).map(|row| format!("{} ({})", row.comm, row.pid)).collect();
    let more = if unseen.len() > NAMED { " and others" } else { "" };
    let reason = format!(
        "there was no room left for {} ({}{more})",
        counted(unseen.len() as u64, "task"),
        names.join(", ")
    );
    (!unseen.is_empty()).then(|| Missing::skipped("what some tasks waited for", reason))
}

fn add_trace(row: &mut table::Task, slot: &sched_slot) {
    let sum = |state: usize| &slot.sum[state];
    row.creator = slot.creator;
    row.exec_ns = row.exec_ns.saturating_sub(slot.exec_base);
    row.run_delay_ns = row.run_delay_ns.saturating_sub(slot.delay_base);
    if slot.taken_over != 0 {
        row.written_bytes = None; // the bytes written under its own number are not known
    }
    row.traced_ns = sum(sched::RUNNING).ns;
    row.unknown_ns = slot.unknown_ns;
    (row.runnable_ns, row.runnable_worst_ns, row.runnable_count) = all_of(sum(sched::READY));
    (row.io_ns, row.io_worst_ns, row.io_count) = all_of(sum(sched::IO));
    (row.blocked_ns, row.blocked_worst_ns, row.blocked_count) = all_of(sum(sched::BLOCKED));
    (row.sleep_ns, row.sleep_worst_ns, row.sleep_count) = all_of(sum(sched::ASLEEP));
    row.lived_ns = (sched::RUNNING..=sched::ASLEEP).map(|s| slot.sum[s].ns).sum::<u64>() + slot.unknown_ns;
    row.cycles = slot.cycles;
    row.awake = slot.awake;
    row.rest = slot.rest;
    row.awake_awake = slot.awake_awake;
    row.awake_rest = slot.awake_rest;
    row.rest_rest = slot.rest_rest;
}

/// What its time went to before its program and after it; nothing where its end was not seen to begin, and where it executed a program and
/// the mark of that has made room for others.
fn phases(exit: &sched_exit, window: Window) -> Option<Phases> {
    if exit.flags & exits::NEVER_EXECUTED == 0 && exit.executed[sched::NONE] == 0 {
        return None;
    }
    let at =
        |mark: &[u64; sched::STATES]| Some(mark[sched::NONE]).filter(|at| *at != 0).map(|at| window.at(at));
    let times = |of: &dyn Fn(usize) -> u64| StateTimes {
        running_ns: of(sched::RUNNING),
        runnable_ns: of(sched::READY),
        io_ns: of(sched::IO),
        blocked_ns: of(sched::BLOCKED),
        sleep_ns: of(sched::ASLEEP),
        unknown_ns: 0,
    };
    Some(Phases {
        ending_at_ns: at(&exit.ending)?,
        executed_at_ns: at(&exit.executed),
        setup: times(&|state| exit.executed[state]),
        teardown: times(&|state| exit.slot.sum[state].ns.saturating_sub(exit.ending[state])),
    })
}

fn all_of(sum: &sched::sched_sum) -> (u64, u64, u64) {
    (sum.ns, sum.worst_ns, sum.count)
}

/// "0-3,8" of a CPU mask. The kernel allocates masks for `possible` CPUs only: the memory behind them belongs to other data.
fn cpu_list(words: &[u64], possible: usize) -> String {
    let set: Vec<usize> =
        (0..possible.min(words.len() * 64)).filter(|cpu| words[cpu / 64] >> (cpu % 64) & 1 == 1).collect();
    let mut list = String::new();
    let mut at = 0;
    while at < set.len() {
        let from = set[at];
        while at + 1 < set.len() && set[at + 1] == set[at] + 1 {
            at += 1;
        }
        let comma = if list.is_empty() { "" } else { "," };
        list +=
            &if set[at] == from { format!("{comma}{from}") } else { format!("{comma}{from}-{}", set[at]) };
        at += 1;
    }
    list
}

/// One row per cgroup. `mounts` says where each controller's hierarchy is: "cpu" -> "/sys/fs/cgroup/cpu".
#[must_use]
pub fn cgroups(
    start: &Snapshot,
    end: &Snapshot,
    mounts: &BTreeMap<String, std::path::PathBuf>,
    page_size: u64,
) -> Vec<table::Cgroup> {
    let all: HashMap<u64, &tasks_cgroup> =
        start.cgroups.iter().chain(&end.cgroups).map(|(id, c)| (*id, c)).collect();
    let mut rows: Vec<_> = all
        .iter()
        .map(|(id, now)| {
            let path = path_of(*id, &all);
            let controllers = CONTROLLERS.iter().filter(|(bit, _)| now.controllers & bit != 0);
            let controllers: Vec<String> = controllers.map(|(_, name)| (*name).to_owned()).collect();
            let mount = controllers.iter().find_map(|c| mounts.get(c));
            table::Cgroup {
                id: *id,
                parent: now.parent,
                name: text(&now.name),
                files: mount
                    .map(|m| m.join(Path::new(path.trim_start_matches('/'))).to_string_lossy().into_owned()),
                cpu: cpu_facts(start.cgroups.get(id), now),
                memory: memory_facts(*id, start.cgroups.get(id), now, page_size),
                uncounted: !has_begin(start.cgroups.get(id), now, CPU | MEMORY),
                controllers,
                path,
            }
        })
        .collect();
    rows.sort_by_key(|row| row.id);
    rows
}

/// The note about cgroups whose counters at the window's begin are not known.
#[must_use]
pub fn uncounted(rows: &[table::Cgroup]) -> Option<Missing> {
    /// So many are named.
    const NAMED: usize = 3;
    let counts = |row: &&table::Cgroup| {
        let limited = |memory: &table::CgroupMemory| memory.limit.is_some() || memory.high.is_some();
        row.cpu.as_ref().is_some_and(|cpu| cpu.quota_ns.is_some()) || row.memory.as_ref().is_some_and(limited)
    };
    let old: Vec<&str> =
        rows.iter().filter(|row| row.uncounted).filter(counts).map(|row| row.path.as_str()).collect();
    let more = if old.len() > NAMED { " and others" } else { "" };
    let named = old.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    let reason = format!("no task was in it when the window began ({named}{more})");
    (!old.is_empty()).then(|| Missing::skipped("how often the limits of a cgroup were met", reason))
}

/// Whether the counters at the window's begin are known, or began later. A cgroup that the first walk did not meet may be as old as the host
/// without a task in it: its counters are those of its whole life.
fn has_begin(then: Option<&tasks_cgroup>, now: &tasks_cgroup, controllers: u64) -> bool {
    then.is_some() || now.controllers & controllers & !now.fresh == 0
}

/// The increase of a counter, if it is known; else 0.
fn risen(
    then: Option<&tasks_cgroup>,
    now: &tasks_cgroup,
    controller: u64,
    field: fn(&tasks_cgroup) -> u64,
) -> u64 {
    let is_known = has_begin(then, now, controller);
    if is_known { field(now).saturating_sub(then.map_or(0, field)) } else { 0 }
}

fn path_of(id: u64, all: &HashMap<u64, &tasks_cgroup>) -> String {
    let mut parts = Vec::new();
    let mut at = id;
    // Bounded: a table that was changed while it was read could hold a loop.
    for _ in 0..64 {
        match all.get(&at) {
            Some(c) if c.parent != 0 => {
                parts.push(text(&c.name));
                at = c.parent;
            }
            _ => break,
        }
    }
    parts.iter().rev().fold(String::new(), |path, part| path + "/" + part)
        + if parts.is_empty() { "/" } else { "" }
}

fn cpu_facts(then: Option<&tasks_cgroup>, now: &tasks_cgroup) -> Option<table::CgroupCpu> {
    let since = |field| risen(then, now, CPU, field);
    (now.controllers & CPU != 0).then(|| table::CgroupCpu {
        weight: now.shares / WEIGHT_SCALE,
        // RUNTIME_INF is ~0; 0 is a kernel without CONFIG_CFS_BANDWIDTH.
        quota_ns: Some(now.quota_ns).filter(|q| *q != u64::MAX && *q != 0),
        // ~0: a kernel without the field.
        burst_ns: Some(now.burst_ns).filter(|burst| *burst != u64::MAX),
        period_ns: now.period_ns,
        periods: since(|c| c.periods),
        throttled_periods: since(|c| c.throttled_periods),
        throttled_ns: since(|c| c.throttled_ns),
    })
}

fn memory_facts(
    id: u64,
    then: Option<&tasks_cgroup>,
    now: &tasks_cgroup,
    page_size: u64,
) -> Option<table::CgroupMemory> {
    // PAGE_COUNTER_MAX is LONG_MAX / PAGE_SIZE: anything near it is "no limit".
    let limit = |pages: u64| Some(pages).filter(|p| *p < i64::MAX as u64 / page_size).map(|p| p * page_size);
    let since = |field| risen(then, now, MEMORY, field);
    // `swap` and `memsw` are one counter (a union): on v1, whose hierarchies have a number, it is memory plus swap.
    let swap = if id >> 56 == 0 { now.swap_pages } else { now.swap_pages.saturating_sub(now.usage_pages) };
    (now.controllers & MEMORY != 0).then(|| table::CgroupMemory {
        usage: now.usage_pages.saturating_mul(page_size),
        limit: limit(now.limit_pages),
        high: limit(now.high_pages),
        limit_hits: since(|c| c.limit_hits),
        oom_kills: since(|c| c.oom_kills),
        swap: swap.saturating_mul(page_size),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::exits::Exits;

    const WINDOW: Window = Window { start_ns: 0, ns: 100 };

    #[test]
    fn cpu_masks_become_lists() {
        assert_eq!(cpu_list(&[0b1_0000_1111], 64), "0-3,8");
        assert_eq!(cpu_list(&[0, 1], 128), "64");
        assert_eq!(cpu_list(&[u64::MAX, 1], 128), "0-64");
        assert_eq!(cpu_list(&[u64::MAX, 1], 2), "0-1");
        assert_eq!(cpu_list(&[0], 4096), "");
    }

    #[test]
    fn a_mark_that_made_room_is_not_told_as_no_set_up() {
        let mut exit = sched_exit { flags: 0, ..sched_exit::default() };
        (exit.ending[sched::NONE], exit.executed[sched::NONE]) = (90, 20);
        assert_eq!(phases(&exit, WINDOW).and_then(|it| it.executed_at_ns), Some(20));
        exit.executed[sched::NONE] = 0;
        assert_eq!(phases(&exit, WINDOW), None);
        exit.flags = exits::NEVER_EXECUTED;
        assert_eq!(phases(&exit, WINDOW).map(|it| it.executed_at_ns), Some(None));
    }

    #[test]
    fn a_loop_of_parents_ends() {
        let looped = tasks_cgroup { parent: 7, ..tasks_cgroup::default() };
        let all = HashMap::from([(7, &looped)]);
        assert_eq!(path_of(7, &all).matches('/').count(), 64);
        assert_eq!(path_of(8, &all), "/");
    }

    fn quota(fresh: u64, throttled_periods: u64) -> tasks_cgroup {
        let (controllers, quota_ns) = (CPU | MEMORY | 8, 20_000_000);
        tasks_cgroup {
            controllers,
            fresh,
            quota_ns,
            throttled_periods,
            periods: 900,
            limit_hits: 7,
            ..Default::default()
        }
    }

    #[test]
    fn counters_of_a_cgroup_that_was_empty_are_not_reported_as_the_windows() {
        let rows = |then: Option<tasks_cgroup>, now: tasks_cgroup| {
            let walk = |one: Option<tasks_cgroup>| Snapshot {
                cgroups: one.into_iter().map(|one| (9, one)).collect(),
                ..Snapshot::default()
            };
            cgroups(&walk(then), &walk(Some(now)), &BTreeMap::new(), 4096)
        };
        let reported = |rows: &[table::Cgroup]| {
            let (cpu, memory) = (rows[0].cpu.clone().unwrap(), rows[0].memory.clone().unwrap());
            (cpu.throttled_periods, cpu.periods, memory.limit_hits, rows[0].uncounted)
        };
        assert_eq!(reported(&rows(None, quota(0, 800))), (0, 0, 0, true));
        assert_eq!(
            reported(&rows(None, quota(CPU | MEMORY, 8))),
            (8, 900, 7, false),
            "it was made in the window"
        );
        assert_eq!(reported(&rows(Some(quota(0, 790)), quota(0, 800))), (10, 0, 0, false));
        let said = uncounted(&rows(None, quota(0, 800))).unwrap().to_string();
        assert!(said.contains("no task was in it when the window began (/)"), "{said}");
        assert_eq!(uncounted(&rows(None, quota(CPU | MEMORY, 8))), None);
    }

    #[test]
    fn many_ended_tasks_are_folded_by_name_and_none_is_lost() {
        let mut exits = Exits::default();
        for pid in 0..crate::bpf::exits::MOST as u32 + 10 {
            let mut exit = sched_exit { exec_ns: 3, pid, tgid: pid, ..sched_exit::default() };
            exit.slot.creator = 1;
            exits.note(exit);
        }
        let seen = sched::RawSched { exits, ..sched::RawSched::default() };
        let rows = ended(&HashMap::new(), &seen, 2, WINDOW);
        assert_eq!(rows.len(), crate::bpf::exits::MOST + 1);
        let total: u64 = rows.iter().map(|r| r.exec_ns).sum();
        assert_eq!(total, 3 * (crate::bpf::exits::MOST as u64 + 10));
        assert_eq!(rows.last().unwrap().folded, 9);
    }

    #[test]
    fn of_a_task_without_a_place_the_kernels_sums_are_reported_and_its_waits_are_unknown() {
        let one =
            |pid, exec_ns| tasks_one { pid, exec_ns, run_delay_ns: 2 * exec_ns, ..tasks_one::default() };
        let end = Snapshot { tasks: vec![one(7, 10), one(8, 5)], ..Snapshot::default() };
        let mut noted = sched::sched_live::default();
        (noted.slot.pid, noted.slot.task) = (7, 1);
        let seen = sched::RawSched { live: vec![noted], ..sched::RawSched::default() };
        let rows = tasks(&Snapshot::default(), &end, &seen, WINDOW);
        assert_eq!((rows[0].unseen, rows[1].unseen), (false, true));
        assert_eq!((rows[1].runnable_ns, rows[1].unknown_ns, rows[1].lived_ns), (10, 85, 100));
        let said = unseen(&rows).unwrap().to_string();
        assert_eq!(said, "what some tasks waited for was skipped: there was no room left for 1 task ( (8))");
        let untraced = tasks(&Snapshot::default(), &end, &sched::RawSched::default(), WINDOW);
        assert_eq!(unseen(&untraced), None, "the probe did not run: that is reported elsewhere");
        assert_eq!(untraced[0].runnable_ns, 20, "by the kernel's count");
    }

    /// dpkg-deb, observed from within a container: 4.8 s in its life, 10 ms in the window.
    #[test]
    fn of_who_is_older_and_was_not_met_only_what_was_traced_is_reported() {
        let of = |creator, traced: bool| {
            let mut exit =
                sched_exit { pid: 7, tgid: 7, exec_ns: 4_800, run_delay_ns: 90, ..Default::default() };
            exit.slot.creator = creator;
            if traced {
                exit.slot.task = 1;
                exit.slot.sum[sched::RUNNING].ns = 10;
                exit.slot.sum[sched::READY].ns = 4;
            }
            let mut exits = Exits::default();
            exits.note(exit);
            let seen = sched::RawSched { exits, ..sched::RawSched::default() };
            let row = ended(&HashMap::new(), &seen, 2, WINDOW).remove(0);
            (row.exec_ns, row.run_delay_ns, row.lived_ns, row.born)
        };
        assert_eq!((of(0, true), of(0, false)), ((10, 4, 14, false), (0, 0, 0, false)));
        assert_eq!((of(3, true), of(3, false)), ((4_800, 90, 14, true), (4_800, 90, 4_890, true)));
    }

    #[test]
    fn task_that_ended_between_the_walks_is_reported_once() {
        let one = |pid, start_ns| tasks_one { pid, start_ns, exec_ns: 10, ..tasks_one::default() };
        // 7 is reported with others, 9 by itself, 3 lives on; 8 had no place, and an older 8 ended.
        let end = Snapshot { tasks: vec![one(3, 5), one(7, 5), one(8, 5), one(9, 5)], ..Snapshot::default() };
        let mut noted = sched::sched_live::default();
        (noted.slot.pid, noted.slot.task) = (3, 1);
        let mut seen = sched::RawSched { live: vec![noted], ..sched::RawSched::default() };
        seen.exits.mark();
        let mut ends = |pid, start_ns, lived| {
            let mut exit = sched_exit { pid, start_ns, exec_ns: 12, ..sched_exit::default() };
            (exit.slot.creator, exit.slot.task, exit.slot.unknown_ns) = (1, 1, lived);
            seen.exits.note(exit);
        };
        (100..99 + crate::bpf::exits::MOST as u32).for_each(|pid| ends(pid, 5, 20));
        ends(8, 4, 30);
        ends(9, 5, 30);
        ends(7, 5, 10);
        let rows = tasks(&Snapshot::default(), &end, &seen, WINDOW);
        let of = |pid| {
            rows.iter().filter(|row| row.pid == pid).map(|row| (row.ended, row.unseen)).collect::<Vec<_>>()
        };
        assert_eq!(of(9), [(true, false)]);
        assert_eq!(of(8), [(false, true), (true, false)], "an older task with its number hides no task");
        assert_eq!(of(3), [(false, false)]);
        assert!(unseen(&rows).unwrap().to_string().ends_with("no room left for 1 task ( (8))"));
        let used: u64 = rows.iter().filter(|row| row.ended).map(|row| row.exec_ns).sum();
        assert_eq!(
            used,
            12 * (crate::bpf::exits::MOST as u64 + 2),
            "7 is in the sum of many, and nowhere else"
        );
    }

    #[test]
    fn task_that_exited_but_was_not_reaped_is_reported_once() {
        let one = |pid, flags| tasks_one { pid, flags, uid: 3, exec_ns: 10, ..tasks_one::default() };
        // 5 ends as the window does, 6 was a zombie before it; 7 is older than the window, 8 was born in it, 9 is older and had no place.
        let tasks_then = vec![one(6, PF_EXITING), one(7, 0), one(9, 0)];
        let tasks_now = [5, 6, 7, 8, 9].map(|pid| one(pid, PF_EXITING)).to_vec();
        let [start, end] = [tasks_then, tasks_now].map(|tasks| Snapshot { tasks, ..Snapshot::default() });
        let mut seen = sched::RawSched::default();
        let of = |seen: &sched::RawSched| {
            let rows = tasks(&start, &end, seen, WINDOW);
            let mut rows: Vec<_> = rows.iter().map(|row| (row.pid, row.ended)).collect();
            rows.sort_unstable();
            rows
        };
        assert_eq!(of(&seen), [5, 6, 7, 8, 9].map(|pid| (pid, false)), "no exits are reported");
        for (pid, creator, task) in [(7, 0, 1), (8, 1, 1), (9, 1, 0)] {
            let mut exit = sched_exit { pid, exec_ns: 12, ..sched_exit::default() };
            (exit.slot.creator, exit.slot.task) = (creator, task);
            seen.exits.note(exit);
        }
        assert_eq!(of(&seen), [(5, false), (6, false), (7, true), (8, true), (9, true)]);
        let rows = tasks(&start, &end, &seen, WINDOW);
        assert_eq!(
            rows.iter().find(|row| row.pid == 8).and_then(|row| row.uid),
            Some(3),
            "the walk has its user"
        );
    }

    #[test]
    fn the_mask_of_a_task_that_ended_is_known_only_if_it_has_not_changed() {
        let mut then = tasks_one { pid: 5, allowed_count: 2, ..tasks_one::default() };
        then.allowed[0] = 0b11;
        let before = HashMap::from([((5, 0), &then)]);
        let of = |allowed_count| {
            let exit = sched_exit { pid: 5, allowed_count, ..sched_exit::default() };
            let mut exits = Exits::default();
            exits.note(exit);
            let seen = sched::RawSched { exits, ..sched::RawSched::default() };
            ended(&before, &seen, 2, WINDOW).remove(0).allowed
        };
        assert_eq!((of(2).as_str(), of(1).as_str()), ("0-1", ""));
    }
}
