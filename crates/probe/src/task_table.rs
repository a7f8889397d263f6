//! From snapshots and traces to the tables of tasks and cgroups.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use whyslow_model::table;

use crate::bpf::sched::{self, sched_exit, sched_slot};
use crate::bpf::tasks::{CONTROLLERS, Snapshot, tasks_cgroup, tasks_one};
use crate::bpf::text;

/// include/linux/sched.h
const PF_KTHREAD: u32 = 0x0020_0000;
/// Rows of ended tasks before those of one parent and name are folded into one.
const MAX_ENDED: usize = 20_000;
/// 64-bit kernels count weights and shares 1024-fold (SCHED_FIXEDPOINT_SHIFT, v4.7, 2159197d6677).
const WEIGHT_SCALE: u64 = 1024;

/// One row a task: those that live at the end, then those that ended.
#[must_use]
pub fn tasks(start: &Snapshot, end: &Snapshot, seen: &sched::Seen, window_ns: u64) -> Vec<table::Task> {
    let possible = libbpf_rs::num_possible_cpus().unwrap_or(1);
    let before: HashMap<(u32, u64), &tasks_one> =
        start.tasks.iter().map(|t| ((t.pid, t.start_ns), t)).collect();
    let slots: HashMap<u32, &sched_slot> = seen.live.iter().map(|l| (l.slot.pid, &l.slot)).collect();
    let live = end.tasks.iter().filter(|t| t.pid != 0).map(|now| {
        let then = before.get(&(now.pid, now.start_ns)).copied();
        let mut row = row_of(now, then, possible);
        if let Some(slot) = slots.get(&now.pid) {
            add_trace(&mut row, slot);
        } else {
            row.lived_ns = window_ns;
        }
        row
    });
    let mut rows: Vec<table::Task> = live.collect();
    rows.extend(ended(&before, &seen.exits, possible));
    rows
}

fn ended(
    before: &HashMap<(u32, u64), &tasks_one>,
    exits: &[sched_exit],
    possible: usize,
) -> Vec<table::Task> {
    let mut rows: Vec<table::Task> = Vec::new();
    let mut folded: BTreeMap<(u32, u64, String), table::Task> = BTreeMap::new();
    for exit in exits {
        let row = row_of_exit(exit, before.get(&(exit.pid, exit.start_ns)).copied(), possible);
        if rows.len() < MAX_ENDED {
            rows.push(row);
            continue;
        }
        match folded.entry((row.ppid, row.cpu_cgroup, row.comm.clone())) {
            std::collections::btree_map::Entry::Vacant(free) => drop(free.insert(row)),
            std::collections::btree_map::Entry::Occupied(mut known) => fold(known.get_mut(), &row),
        }
    }
    rows.extend(folded.into_values());
    rows
}

fn fold(into: &mut table::Task, row: &table::Task) {
    into.folded += 1;
    into.exec_ns += row.exec_ns;
    into.run_delay_ns += row.run_delay_ns;
    into.lived_ns += row.lived_ns;
    into.runnable_ns += row.runnable_ns;
    into.io_ns += row.io_ns;
    into.blocked_ns += row.blocked_ns;
    into.sleep_ns += row.sleep_ns;
    into.traced_ns += row.traced_ns;
}

fn row_of(now: &tasks_one, then: Option<&tasks_one>, possible: usize) -> table::Task {
    let since = |now: u64, then: Option<u64>| now.saturating_sub(then.unwrap_or(0));
    table::Task {
        pid: now.pid,
        tgid: now.tgid,
        ppid: now.ppid,
        comm: text(&now.comm),
        kthread: now.flags & PF_KTHREAD != 0,
        cpu_cgroup: now.cpu_cgroup,
        memory_cgroup: now.memory_cgroup,
        io_cgroup: now.io_cgroup,
        unified_cgroup: now.unified_cgroup,
        autogroup: now.autogroup,
        autogroup_weight: now.autogroup_shares / WEIGHT_SCALE,
        born: then.is_none(),
        exec_ns: since(now.exec_ns, then.map(|t| t.exec_ns)),
        run_delay_ns: since(now.run_delay_ns, then.map(|t| t.run_delay_ns)),
        switches_in: since(now.switches_in, then.map(|t| t.switches_in)),
        voluntary: since(now.voluntary, then.map(|t| t.voluntary)),
        involuntary: since(now.involuntary, then.map(|t| t.involuntary)),
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
        kthread: exit.flags & PF_KTHREAD != 0,
        cpu_cgroup: exit.cpu_cgroup,
        memory_cgroup: exit.memory_cgroup,
        io_cgroup: exit.io_cgroup,
        unified_cgroup: exit.unified_cgroup,
        autogroup: exit.autogroup,
        autogroup_weight: exit.autogroup_shares / WEIGHT_SCALE,
        born: then.is_none(),
        ended: true,
        exec_ns: since(exit.exec_ns, then.map(|t| t.exec_ns)),
        run_delay_ns: since(exit.run_delay_ns, then.map(|t| t.run_delay_ns)),
        switches_in: since(exit.switches_in, then.map(|t| t.switches_in)),
        voluntary: since(exit.voluntary, then.map(|t| t.voluntary)),
        involuntary: since(exit.involuntary, then.map(|t| t.involuntary)),
        // Its end tells the number only: where that has changed, which CPUs they were is not known.
        allowed: then
            .filter(|t| t.allowed_count == exit.allowed_count)
            .map(|t| cpu_list(&t.allowed, possible))
            .unwrap_or_default(),
        allowed_count: exit.allowed_count,
        policy: exit.policy,
        weight: exit.weight / WEIGHT_SCALE,
        ..table::Task::default()
    };
    add_trace(&mut row, &exit.slot);
    row
}

fn add_trace(row: &mut table::Task, slot: &sched_slot) {
    let sum = |state: usize| &slot.sum[state];
    row.creator = slot.creator;
    row.traced_ns = sum(sched::RUNNING).ns;
    row.unknown_ns = slot.unknown_ns;
    (row.runnable_ns, row.runnable_worst_ns, row.runnable_count) = all_of(sum(sched::READY));
    (row.io_ns, row.io_worst_ns, row.io_count) = all_of(sum(sched::IO));
    (row.blocked_ns, row.blocked_worst_ns, row.blocked_count) = all_of(sum(sched::BLOCKED));
    (row.sleep_ns, row.sleep_worst_ns, row.sleep_count) = all_of(sum(sched::ASLEEP));
    row.lived_ns = (sched::RUNNING..=sched::ASLEEP).map(|s| slot.sum[s].ns).sum::<u64>() + slot.unknown_ns;
    row.cycles = slot.cycles;
    // The kernel half counts in 1024 ns.
    let us = |n: u64| (u128::from(n) * 1024 / 1000) as u64;
    row.wait_us = us(slot.wait_us);
    row.rest_us = us(slot.rest_us);
    row.wait_wait = us(us(slot.wait_wait));
    row.wait_rest = us(us(slot.wait_rest));
    row.rest_rest = us(us(slot.rest_rest));
}

fn all_of(sum: &sched::sched_sum) -> (u64, u64, u64) {
    (sum.ns, sum.worst_ns, sum.count)
}

/// "0-3,8" of a CPU mask. The kernel allocates masks for `possible` CPUs only: what follows is somebody else's memory.
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

/// One row a cgroup. `mounts` says where each controller's hierarchy is: "cpu" -> "/sys/fs/cgroup/cpu".
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
                controllers,
                path,
            }
        })
        .collect();
    rows.sort_by_key(|row| row.id);
    rows
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
    let since = |field: fn(&tasks_cgroup) -> u64| field(now).saturating_sub(then.map_or(0, field));
    (now.controllers & 1 != 0).then(|| table::CgroupCpu {
        weight: now.shares / WEIGHT_SCALE,
        // RUNTIME_INF is ~0; 0 is a kernel without CONFIG_CFS_BANDWIDTH.
        quota_ns: Some(now.quota_ns).filter(|q| *q != u64::MAX && *q != 0),
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
    let since = |field: fn(&tasks_cgroup) -> u64| field(now).saturating_sub(then.map_or(0, field));
    // `swap` and `memsw` are one counter (a union): on v1, whose hierarchies have a number, it is memory plus swap.
    let swap = if id >> 56 == 0 { now.swap_pages } else { now.swap_pages.saturating_sub(now.usage_pages) };
    (now.controllers & 2 != 0).then(|| table::CgroupMemory {
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

    #[test]
    fn cpu_masks_become_lists() {
        assert_eq!(cpu_list(&[0b1_0000_1111], 64), "0-3,8");
        assert_eq!(cpu_list(&[0, 1], 128), "64");
        assert_eq!(cpu_list(&[u64::MAX, 1], 128), "0-64");
        assert_eq!(cpu_list(&[u64::MAX, 1], 2), "0-1");
        assert_eq!(cpu_list(&[0], 4096), "");
    }

    #[test]
    fn a_loop_of_parents_ends() {
        let looped = tasks_cgroup { parent: 7, ..tasks_cgroup::default() };
        let all = HashMap::from([(7, &looped)]);
        assert_eq!(path_of(7, &all).matches('/').count(), 64);
        assert_eq!(path_of(8, &all), "/");
    }

    #[test]
    fn many_ended_tasks_are_folded_by_name_and_none_is_lost() {
        let exit = |exec_ns| sched_exit { exec_ns, pid: 5, ..sched_exit::default() };
        let exits: Vec<_> = (0..MAX_ENDED + 10).map(|_| exit(3)).collect();
        let rows = ended(&HashMap::new(), &exits, 2);
        assert_eq!(rows.len(), MAX_ENDED + 1);
        assert_eq!(rows.iter().map(|r| r.exec_ns).sum::<u64>(), 3 * exits.len() as u64);
        assert_eq!(rows.last().unwrap().folded, 9);
    }

    #[test]
    fn the_mask_of_a_task_that_ended_is_known_only_if_it_has_not_changed() {
        let mut then = tasks_one { pid: 5, allowed_count: 2, ..tasks_one::default() };
        then.allowed[0] = 0b11;
        let before = HashMap::from([((5, 0), &then)]);
        let of = |allowed_count| {
            let exit = sched_exit { pid: 5, allowed_count, ..sched_exit::default() };
            ended(&before, &[exit], 2).remove(0).allowed
        };
        assert_eq!((of(2).as_str(), of(1).as_str()), ("0-1", ""));
    }
}
