//! The one-screen account of a window: where the host's CPU time and the tasks' wait time went, and which subjects paid.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::table::Task;
use whyslow_model::wait::TaskState;
use whyslow_model::{Account, CgroupShare, Share, StateShare};

use crate::{Evidence, cpu::hidden};

/// How many cgroups are listed.
const MOST_CGROUPS: usize = 8;
/// A difference between whyslow's tracer and the kernel that is larger than this is reported.
const MISMATCH: Share = Share::percent(5);

/// The account of a window. What was not recorded is left out, and listed as missing elsewhere.
#[must_use]
pub fn of(ev: &Evidence<'_>) -> Account {
    let tasks = ev.tasks().ok();
    // If waits were not observed, their sum is not 0.
    let waits_seen = tasks.filter(|_| ev.waits_were_seen().is_ok());
    let sum = |tasks: &[Task], field: fn(&Task) -> u64| {
        Duration::from_nanos(tasks.iter().map(field).fold(0, u64::saturating_add))
    };
    let wall = ev.window().checked_mul(ev.recording().meta.cpus).unwrap_or(Duration::MAX);
    let by_state = cpu_states(ev);
    let known: Duration = by_state.iter().map(|s| s.time).sum();
    let unexplained = (!by_state.is_empty()).then(|| wall.saturating_sub(known));
    let waits: [(TaskState, fn(&Task) -> u64); 3] = [
        (TaskState::Runnable, |t| t.runnable_ns),
        (TaskState::IoWait, |t| t.io_ns),
        (TaskState::Uninterruptible, |t| t.blocked_ns),
    ];
    let waited: Vec<StateShare> = waits_seen
        .into_iter()
        .flat_map(|tasks| waits.map(|(state, field)| share("wait", state.word(), sum(tasks, field))))
        .collect();
    Account {
        wall,
        cpu: tasks.map(|tasks| sum(tasks, |t| t.exec_ns)),
        off_cpu: waits_seen.map(|_| waited.iter().map(|wait| wait.time).sum()),
        unexplained,
        by_state: by_state.into_iter().chain(waited).collect(),
        by_cgroup: by_cgroup(ev),
        notes: ev.broods().notes().collect(),
        doubts: hidden::note(ev).into_iter().chain(mismatch(tasks.unwrap_or_default())).collect(),
    }
}

fn share(of: &str, state: &str, time: Duration) -> StateShare {
    StateShare { of: of.into(), state: state.into(), time }
}

fn cpu_states(ev: &Evidence<'_>) -> Vec<StateShare> {
    let Ok(cpu) = ev.cpu_time() else { return Vec::new() };
    let states = [
        ("user", cpu.user),
        ("nice", cpu.nice),
        ("system", cpu.system),
        ("hardirq", cpu.irq),
        ("softirq", cpu.softirq),
        ("steal", cpu.steal),
        ("iowait", cpu.iowait),
        ("idle", cpu.idle),
    ];
    states.into_iter().map(|(state, time)| share("cpu", state, time)).collect()
}

fn by_cgroup(ev: &Evidence<'_>) -> Vec<CgroupShare> {
    let (Ok(tasks), Ok(cgroups)) = (ev.tasks(), ev.cgroups()) else { return Vec::new() };
    let path_of: BTreeMap<u64, &whyslow_model::table::Cgroup> = cgroups.iter().map(|c| (c.id, c)).collect();
    let waited = ev.waits_were_seen().is_ok().then_some(Duration::ZERO);
    let mut rows: BTreeMap<u64, CgroupShare> = BTreeMap::new();
    for task in tasks {
        let home = [task.unified_cgroup, task.cpu_cgroup, task.memory_cgroup, task.io_cgroup];
        let named = home.iter().find(|id| path_of.get(id).is_some_and(|c| c.path != "/"));
        let id = named.copied().unwrap_or(task.cpu_cgroup);
        let row = rows.entry(id).or_insert_with(|| {
            let (id, name) = path_of.get(&id).map_or_else(
                || (format!("cgroup {id}"), "a cgroup that is gone".to_owned()),
                |c| (c.path.clone(), ev.names().cgroup(c).name),
            );
            CgroupShare { id, name, tasks: 0, cpu: Duration::ZERO, runnable: waited, uninterruptible: waited }
        });
        row.tasks = row.tasks.saturating_add(1).saturating_add(task.folded);
        row.cpu += Duration::from_nanos(task.exec_ns);
        let add = |sum: &mut Option<Duration>, ns| *sum = sum.map(|sum| sum + Duration::from_nanos(ns));
        add(&mut row.runnable, task.runnable_ns);
        add(&mut row.uninterruptible, task.io_ns.saturating_add(task.blocked_ns));
    }
    let mut rows: Vec<CgroupShare> = rows.into_values().collect();
    let waited =
        |row: &CgroupShare| row.runnable.unwrap_or_default() + row.uninterruptible.unwrap_or_default();
    rows.sort_by_key(|row| std::cmp::Reverse(row.cpu + waited(row)));
    rows.truncate(MOST_CGROUPS);
    rows
}

fn mismatch(tasks: &[Task]) -> Option<String> {
    if tasks.iter().all(|task| task.unseen) {
        return None; // there was no tracer
    }
    let pairs: [(&str, fn(&Task) -> u64, fn(&Task) -> u64); 2] = [
        ("CPU time", |t| t.exec_ns, |t| t.traced_ns),
        ("time ready and not running", |t| t.run_delay_ns, |t| t.runnable_ns),
    ];
    let differs = |(what, kernel, traced): &(&str, fn(&Task) -> u64, fn(&Task) -> u64)| {
        let total: u64 = tasks.iter().map(kernel).fold(0, u64::saturating_add);
        let off: u64 = tasks.iter().map(|t| kernel(t).abs_diff(traced(t))).fold(0, u64::saturating_add);
        let share = Share::of(off as f64, total as f64);
        (share > MISMATCH && off > 100_000_000).then(|| {
            format!("Our tracer and the kernel differ on {what} by {share}: splits are that uncertain.")
        })
    };
    let said: Vec<String> = pairs.iter().filter_map(differs).collect();
    (!said.is_empty()).then(|| said.join(" "))
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::{Cgroup, Tables};
    use whyslow_model::{Meta, Missing, Probe, Recording};

    use super::*;

    fn host(tasks: Vec<Task>) -> Recording {
        let web = Cgroup { id: 7, path: "/web".into(), ..Cgroup::default() };
        Recording {
            meta: Meta { window_ns: 1_000_000_000, cpus: 2, ..Meta::default() },
            tables: Tables { tasks: Some(tasks), cgroups: Some(vec![web]), ..Tables::default() },
            ..Recording::default()
        }
    }

    #[test]
    fn cpu_time_is_summed_by_cgroup_and_waits_for_the_host() {
        let task = Task {
            cpu_cgroup: 7,
            exec_ns: 100,
            traced_ns: 100,
            runnable_ns: 30,
            io_ns: 5,
            ..Task::default()
        };
        let rec = host(vec![task.clone(), task]);
        let account = of(&Evidence::of(&rec));
        assert_eq!(account.wall, Duration::from_secs(2));
        let ns = |ns| Some(Duration::from_nanos(ns));
        assert_eq!((account.cpu, account.off_cpu, account.unexplained), (ns(200), ns(70), None));
        let web = &account.by_cgroup[0];
        assert_eq!((web.id.as_str(), web.tasks, web.cpu.as_nanos()), ("/web", 2, 200));
    }

    #[test]
    fn a_mismatch_with_the_kernel_is_said() {
        let off = Task { exec_ns: 1_000_000_000, traced_ns: 500_000_000, ..Task::default() };
        let account = of(&Evidence::of(&host(vec![off])));
        assert!(account.doubts[0].contains("differ on CPU time by 50 %"), "{:?}", account.doubts);
        let untraced = Task { exec_ns: 1_000_000_000, unseen: true, ..Task::default() };
        let account = of(&Evidence::of(&host(vec![untraced])));
        assert!(account.doubts.is_empty(), "there was no tracer: {:?}", account.doubts);
    }

    #[test]
    fn nothing_recorded_is_no_account_and_no_panic() {
        let account = of(&Evidence::of(&Recording::default()));
        assert!(account.by_cgroup.is_empty() && account.notes.is_empty() && account.doubts.is_empty());
        assert_eq!((account.cpu, account.off_cpu, account.unexplained), (None, None, None));
    }

    #[test]
    fn waits_that_could_not_be_seen_are_unknown_and_not_zero() {
        let mut rec = host(vec![Task { cpu_cgroup: 7, exec_ns: 100, unseen: true, ..Task::default() }]);
        rec.missing = vec![Missing::broken(Probe::OffCpuStacks.word(), "the verifier refused it").into()];
        let account = of(&Evidence::of(&rec));
        assert_eq!((account.cpu, account.off_cpu), (Some(Duration::from_nanos(100)), None));
        assert!(account.by_state.iter().all(|state| state.of != "wait"), "{:?}", account.by_state);
        assert_eq!((account.by_cgroup[0].runnable, account.by_cgroup[0].uninterruptible), (None, None));
    }
}
