//! A cgroup or the host has hardly room for another task.
//!
//! Signal: `pids.current` against `pids.max`, refusals in `pids.events`; tasks of the host against `kernel.threads-max` and
//! `kernel.pid_max`. A risk: a fork that fails costs an error, not time.

use std::collections::BTreeMap;

use whyslow_model::{Culprit, Finding, Missing, RuledOut, Share, Subject, SubjectKind, command};

use super::Rule;
use crate::Evidence;
use crate::parse::single::{self, Limit};
use crate::shell;

pub const RULE: Rule = Rule {
    id: "pid-limit",
    question: "Is a cgroup or the host near its PID limit?",
    what: "A limit on the number of tasks (pids.max of a cgroup, kernel.pid_max, kernel.threads-max) is nearly reached. The next \
           fork or thread fails with \"Resource temporarily unavailable\", and programs retry, stall or die.",
    how: "pids.current against pids.max of each cgroup, the rise of max in pids.events, and the tasks in /proc/loadavg against \
          the host's limits. Reported from 90 % on, or with any refusal in the window.",
    limits: "Never a cause. RLIMIT_NPROC (per user): not read. A limit of a parent cgroup: it counts for the children, and is \
             reported for the parent.",
    sources: "kernel/cgroup/pids.c; kernel/fork.c (max_threads); kernel/pid.c; Documentation/admin-guide/cgroup-v2.rst.",
    can_be_cause: false,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// Thread pools and compile jobs start tens of tasks at once: with less than a tenth left, the next one may fail.
const NEAR: Share = Share::percent(90);

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let in_groups = of_cgroups(ev);
    match of_host(ev) {
        Ok(on_host) => Ok(on_host.into_iter().chain(in_groups).collect()),
        Err(why) if in_groups.is_empty() => Err(why),
        Err(_) => Ok(in_groups),
    }
}

fn of_host(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let tasks = ev.load()?.tasks;
    let limits = ["kernel/pid_max", "kernel/threads-max"].map(|name| (name, ev.sysctl(name)));
    if let [(_, Err(why)), (_, Err(_))] = &limits {
        return Err(why.clone());
    }
    let known = limits.into_iter().filter_map(|(name, limit)| Some((name, u64::try_from(limit.ok()?).ok()?)));
    Ok(known
        .filter(|(_, limit)| is_near(tasks, *limit))
        .map(|(name, limit)| host_finding(name, tasks, limit))
        .collect())
}

fn is_near(now: u64, limit: u64) -> bool {
    limit > 0 && Share::of(now as f64, limit as f64) >= NEAR
}

fn host_finding(name: &str, tasks: u64, limit: u64) -> Finding {
    let file = format!("/proc/sys/{name}");
    Finding::risk(RULE.id, Subject::host())
        .titled(format!("{tasks} tasks run on this host, its limit {} is {limit}", name.replace('/', ".")))
        .by(Culprit::new(SubjectKind::Limit, &file, name.replace('/', ".")).at_file(&file))
        .check("tasks (behind the slash) and the limit", command!("cat /proc/loadavg {}", file))
        .check("the processes with most threads", "ps -e -o nlwp,pid,comm --sort=-nlwp | head")
        .fix(
            format!(
                "double the limit; find out which program starts so many tasks (undo: echo {limit} > {file})"
            ),
            command!("echo {} > {}", limit.saturating_mul(2), file),
        )
}

fn of_cgroups(ev: &Evidence<'_>) -> Vec<Finding> {
    let limits = ev.files_like("sys/fs/cgroup/", "/pids.max");
    let current: BTreeMap<String, u64> = ev
        .files_like("sys/fs/cgroup/", "/pids.current")
        .into_iter()
        .filter_map(|f| Some((f.name.clone(), ev.file(&f.name, single::integer).ok()?.try_into().ok()?)))
        .collect();
    let near = limits.iter().filter_map(|frame| {
        let folder = frame.name.strip_suffix("/pids.max")?;
        let Limit::At(limit) = ev.file(&frame.name, single::limit).ok()? else { return None };
        let now = *current.get(&format!("{folder}/pids.current"))?;
        let refused = ev.flat_delta(&format!("{folder}/pids.events"), "max").unwrap_or(0);
        (refused > 0 || is_near(now, limit)).then(|| cgroup_finding(ev, folder, now, limit, refused))
    });
    near.collect()
}

fn cgroup_finding(ev: &Evidence<'_>, folder: &str, now: u64, limit: u64, refused: u64) -> Finding {
    // "sys/fs/cgroup/pids/web" on v1, "sys/fs/cgroup/web" on v2; hybrids have "unified" there.
    let below = folder.strip_prefix("sys/fs/cgroup").unwrap_or(folder);
    let path =
        ["/pids", "/unified"].iter().find_map(|v| below.strip_prefix(v).filter(|p| p.starts_with('/')));
    let file = format!("/{folder}/pids.max");
    let quoted = shell::quoted(&file);
    let refusals =
        if refused > 0 { format!("; forks refused in the window: {refused}") } else { String::new() };
    Finding::risk(RULE.id, ev.names().subject(path.unwrap_or(below)))
        .titled(format!("it has {now} tasks of at most {limit}{refusals}"))
        .by(Culprit::new(SubjectKind::Limit, &file, format!("limit of {limit} tasks")).at_file(&file))
        .check(
            "tasks, their limit, and refusals",
            command!("cd {} && cat pids.current pids.max pids.events", format!("/{folder}")),
        )
        .fix(
            format!("double the limit; find out which program starts so many tasks (undo: echo {limit} > {quoted})"),
            command!("echo {} > {}", limit.saturating_mul(2), file),
        )
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let tasks = ev.load()?.tasks;
    let evidence = format!("the host has {tasks} tasks, and no limit on tasks is near");
    Ok(check(ev)?.is_empty().then_some(RuledOut { what: "a limit on tasks".into(), evidence }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::fixture::Fixture;

    fn host(tasks: u64) -> Fixture {
        Fixture::second()
            .end("proc/loadavg", &format!("0.1 0.1 0.1 1/{tasks} 999\n"))
            .end("proc/sys/kernel/pid_max", "32768\n")
            .end("proc/sys/kernel/threads-max", "190000\n")
    }

    fn group(host: Fixture, folder: &str, now: u64, refused: u64) -> Fixture {
        host.end(&format!("{folder}/pids.current"), &format!("{now}\n"))
            .end(&format!("{folder}/pids.max"), "100\n")
            .start(&format!("{folder}/pids.events"), "max 3\n")
            .end(&format!("{folder}/pids.events"), &format!("max {}\n", 3 + refused))
    }

    #[test]
    fn fires_when_the_host_is_nearly_full() {
        let found = check(&host(30_000).ev()).unwrap();
        assert_eq!(found[0].title, "30000 tasks run on this host, its limit kernel.pid_max is 32768");
        assert!(found[0].fixes[0].text.contains("undo: echo 32768"));
    }

    #[test]
    fn fires_for_a_cgroup_on_both_versions() {
        let found = check(&group(host(100), "sys/fs/cgroup/pids/web", 95, 0).ev()).unwrap();
        assert_eq!(
            (found[0].victim.id.as_str(), found[0].title.as_str()),
            ("/web", "it has 95 tasks of at most 100")
        );
        let found = check(&group(host(100), "sys/fs/cgroup/system.slice/a b.service", 50, 4).ev()).unwrap();
        assert_eq!(found[0].victim.name, "a b.service");
        assert!(found[0].title.ends_with("forks refused in the window: 4"));
        assert_eq!(
            found[0].fixes[0].command.as_deref(),
            Some("echo 200 > '/sys/fs/cgroup/system.slice/a b.service/pids.max'")
        );
    }

    #[test]
    fn is_quiet_when_there_is_room() {
        let host = group(host(100), "sys/fs/cgroup/web", 50, 0).end("sys/fs/cgroup/b/pids.max", "max\n");
        assert_eq!(check(&host.ev()), Ok(vec![]));
        assert!(rules_out(&host.ev()).unwrap().is_some());
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        assert_eq!(check(&Fixture::second().ev()).unwrap_err().to_string(), "proc/loadavg was not recorded");
        let torn = Fixture::second()
            .end("proc/loadavg", "0.1 0.1 0.1 1/30000 999\n")
            .end("proc/sys/kernel/pid_max", "\n");
        assert!(check(&torn.ev()).is_err());
    }
}
