//! The kernel killed a process for its memory.
//!
//! Signal: `oom_kill` of `/proc/vmstat` (all kills of the host), kills by cgroup from kernel memory, and the kernel's log for
//! who it was. A risk: what the dead process would have done is not time lost.

use whyslow_model::table::Cgroup;
use whyslow_model::{Bytes, Culprit, Finding, Missing, RuledOut, Subject, SubjectKind, command};

use super::Rule;
use crate::Evidence;
use crate::hashing::Table;
use crate::shell;

pub const RULE: Rule = Rule {
    id: "oom-kill",
    question: "Did the kernel kill a process because memory ran out?",
    what: "Memory ran out, in a cgroup with a limit or on the whole host, reclaim found nothing, and the kernel killed a \
           process. Its work is lost, and whoever restarts it pays again.",
    how: "oom_kill in /proc/vmstat over the window, the count of each memory cgroup, and the kernel's log, whose last records \
          name the process and its cgroup.",
    limits: "Kernels before 4.13 do not count kills: then only cgroups tell. Kills by systemd-oomd or earlyoom are \
             ordinary signals and not seen. If the log overflowed, the process has no name.",
    sources: "mm/oom_kill.c (__oom_kill_process, dump_oom_victim); Documentation/admin-guide/cgroup-v2.rst (memory.events).",
    can_be_cause: false,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// A kill as the log tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kill {
    pid: String,
    comm: String,
    /// Of the process.
    cgroup: Option<String>,
    /// Whose limit was reached; `None`: the host's memory was out.
    limit_of: Option<String>,
}

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let counted = ev.vmstat_delta("oom_kill");
    let groups = groups(ev);
    let total = match (&counted, &groups) {
        (Ok(kills), _) => *kills,
        (Err(_), Ok(groups)) => groups.iter().map(|(_, kills)| *kills).fold(0, u64::saturating_add),
        (Err(why), Err(_)) => return Err(why.clone()),
    };
    if total == 0 {
        return Ok(Vec::new());
    }
    let log = ev.kernel_log().unwrap_or_default();
    let mut kills = kills(log.iter().map(|record| record.text.as_str()));
    // The log ends with the window, so its last kills are those that were counted in the window.
    kills.drain(..kills.len().saturating_sub(usize::try_from(total).unwrap_or(usize::MAX)));
    let groups = groups.unwrap_or_default();
    if groups.is_empty() {
        return Ok(vec![of_log(ev, total, &kills)]);
    }
    Ok(groups.into_iter().map(|(group, n)| of_group(ev, group, n, &kills)).collect())
}

/// Cgroups with kills of their own: on v2 a parent counts those of its children, too.
fn groups<'r>(ev: &Evidence<'r>) -> Result<Vec<(&'r Cgroup, u64)>, Missing> {
    let all = ev.cgroups()?;
    let kills = |group: &Cgroup| group.memory.as_ref().map_or(0, |memory| memory.oom_kills);
    let mut by_parent: Table<u64, u64> = Table::default();
    for child in all.iter().filter(|child| child.parent != child.id) {
        let sum = by_parent.entry(child.parent).or_default();
        *sum = sum.saturating_add(kills(child));
    }
    let below = |group: &Cgroup| by_parent.get(&group.id).copied().unwrap_or(0);
    let v1 = |group: &Cgroup| group.id >> 56 != 0;
    let own = |group| if v1(group) { kills(group) } else { kills(group).saturating_sub(below(group)) };
    Ok(all.iter().map(|group| (group, own(group))).filter(|(_, own)| *own > 0).collect())
}

/// One limit is raised by so much, whichever rule says so (`memory-limit`).
const RAISED: u64 = 2;

fn of_group(ev: &Evidence<'_>, group: &Cgroup, n: u64, kills: &[Kill]) -> Finding {
    let mut own = kills.iter().filter(|kill| kill.cgroup.as_ref() == Some(&group.path));
    let who = own
        .next_back()
        .map_or_else(String::new, |kill| format!(", the last {} (pid {})", who(ev, kill), kill.pid));
    let limit = group.memory.as_ref().and_then(|memory| memory.limit);
    let why = limit.map_or_else(|| "memory ran out".to_owned(), |l| format!("its limit is {}", Bytes(l)));
    let f = Finding::risk(RULE.id, ev.names().cgroup(group))
        .titled(format!("the kernel killed {}{who}: {why}", some(n, "of its processes")))
        .check("who was killed, and what used the memory", "dmesg | grep -i -A 40 'invoked oom-killer'");
    let (Some(limit), Some(files)) = (limit, &group.files) else { return f.advice(HOST_ADVICE) };
    let file =
        format!("{files}/{}", if group.id >> 56 != 0 { "memory.limit_in_bytes" } else { "memory.max" });
    let quoted = shell::quoted(&file);
    f.by(Culprit::new(SubjectKind::Limit, &file, format!("memory limit of {}", Bytes(limit))).at_file(&file))
        .fix(
            format!("give it twice as much, or less to do (undo: echo {limit} > {quoted})"),
            command!("echo {} > {}", limit.saturating_mul(RAISED), file),
        )
}

/// The kernel names its first thread.
fn who(ev: &Evidence<'_>, kill: &Kill) -> String {
    kill.pid.parse().map_or_else(|_| kill.comm.clone(), |pid| ev.called(pid, &kill.comm))
}

/// ", java (pid 1234)"
fn named(ev: &Evidence<'_>, n: u64, kill: &Kill) -> String {
    let last = if n > 1 { "the last " } else { "" };
    format!(", {last}{} (pid {})", who(ev, kill), kill.pid)
}

/// "one of its processes", "3 processes".
fn some(n: u64, what: &str) -> String {
    match (n, what) {
        (1, "processes") => "a process".to_owned(),
        (1, what) => format!("one {what}"),
        (n, what) => format!("{n} {what}"),
    }
}

const HOST_ADVICE: &str = "give the host more memory or swap, or its processes less to do; a limit on the largest cgroup \
                           (memory.max; undo: write max) keeps the others alive";

fn of_log(ev: &Evidence<'_>, n: u64, kills: &[Kill]) -> Finding {
    let last = kills.last();
    let victim = last
        .and_then(|kill| kill.cgroup.as_deref())
        .map_or_else(Subject::host, |path| ev.names().subject(path));
    let who = last.map_or_else(String::new, |kill| named(ev, n, kill));
    let limit_of = last.and_then(|kill| kill.limit_of.as_deref());
    let why = limit_of.map_or_else(
        || "memory ran out".to_owned(),
        |path| format!("{} reached its memory limit", ev.names().subject(path).name),
    );
    let f = Finding::risk(RULE.id, victim)
        .titled(format!("the kernel killed {}{who}: {why}", some(n, "processes")))
        .check("who was killed, and what used the memory", "dmesg | grep -i -A 40 'invoked oom-killer'")
        .advice(HOST_ADVICE);
    match limit_of {
        Some(path) => f.by(Culprit::new(
            SubjectKind::Limit,
            path,
            format!("memory limit of {}", ev.names().subject(path).name),
        )),
        None => f,
    }
}

/// The kills of a log, oldest first.
fn kills<'t>(log: impl Iterator<Item = &'t str>) -> Vec<Kill> {
    let (mut kills, mut task_cgroup, mut limit_of) = (Vec::new(), None, None);
    for text in log {
        if let Some(facts) = text.strip_prefix("oom-kill:") {
            // v5.0, ef8444ea01d7 ("mm, oom: reorganize the oom report in dump_header")
            let fact = |name: &str| facts.split(',').find_map(|f| f.strip_prefix(name)).map(str::to_owned);
            (task_cgroup, limit_of) = (fact("task_memcg="), fact("oom_memcg="));
        } else if let Some((pid, comm)) = killed(text) {
            kills.push(Kill { pid, comm, cgroup: task_cgroup.take(), limit_of: limit_of.take() });
        }
    }
    kills
}

/// "Memory cgroup out of memory: Killed process 1234 (java) total-vm:..."; before 5.3 without the first words.
fn killed(text: &str) -> Option<(String, String)> {
    let (_, rest) = text.split_once("Killed process ")?;
    let (pid, rest) = rest.split_once(" (")?;
    // A name may hold ")": what follows it is always ") total-vm:" (or, in between, ", UID").
    let comm = rest.split_once(") total-vm").or_else(|| rest.split_once(')')).map(|(comm, _)| comm)?;
    Some((pid.to_owned(), comm.to_owned()))
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let none = ev.vmstat_delta("oom_kill")? == 0;
    Ok(none.then(|| RuledOut {
        what: "the OOM killer".into(),
        evidence: "it killed nobody in the window".into(),
    }))
}

#[cfg(test)]
mod tests {
    use whyslow_model::Kind;
    use whyslow_model::table::CgroupMemory;

    use super::*;
    use crate::evidence::fixture::Fixture;

    const LOG: &str = "6,1,1,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/old,task=sh,pid=7,uid=0\n\
        3,2,2,-;Out of memory: Killed process 7 (sh) total-vm:10kB, anon-rss:1kB\n\
        6,3,3,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/web,task_memcg=/web/app,task=java,pid=1234,uid=0\n\
        3,4,4,-;Memory cgroup out of memory: Killed process 1234 (java) total-vm:900kB, anon-rss:500kB, file-rss:0kB\n";

    fn host(kills: u64) -> Fixture {
        Fixture::second()
            .start("proc/vmstat", "oom_kill 3\n")
            .end("proc/vmstat", &format!("oom_kill {}\n", 3 + kills))
    }

    fn group(id: u64, parent: u64, path: &str, oom_kills: u64) -> Cgroup {
        let memory = CgroupMemory { limit: Some(512 << 20), oom_kills, ..CgroupMemory::default() };
        let files = Some(format!("/sys/fs/cgroup{path}"));
        Cgroup { id, parent, path: path.into(), files, memory: Some(memory), ..Cgroup::default() }
    }

    #[test]
    fn fires_and_the_log_names_the_victim_of_the_window() {
        let found = check(&host(1).end("dev/kmsg", LOG).ev()).unwrap();
        assert_eq!((found[0].kind, found[0].lost), (Kind::Risk, None));
        assert_eq!(found[0].victim.id, "/web/app");
        assert_eq!(
            found[0].title,
            "the kernel killed a process, java (pid 1234): /web reached its memory limit"
        );
    }

    #[test]
    fn the_cgroup_that_had_the_kill_is_the_victim_not_its_parent() {
        let groups = vec![group(1, 0, "/web", 2), group(2, 1, "/web/app", 2), group(3, 0, "/calm", 0)];
        let host = host(2).end("dev/kmsg", LOG).with(|t| t.cgroups = Some(groups));
        let found = check(&host.ev()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].title,
            "the kernel killed 2 of its processes, the last java (pid 1234): its limit is 512 MiB"
        );
        assert_eq!(
            found[0].fixes[0].command.as_deref(),
            Some("echo 1073741824 > /sys/fs/cgroup/web/app/memory.max")
        );
        assert!(found[0].fixes[0].text.contains("undo: echo 536870912"));
    }

    #[test]
    fn a_kill_without_a_log_has_no_name() {
        let found = check(&host(2).ev()).unwrap();
        assert_eq!(found[0].title, "the kernel killed 2 processes: memory ran out");
        assert_eq!(found[0].victim, Subject::host());
    }

    #[test]
    fn is_quiet_about_kills_of_yesterday() {
        let host = host(0).end("dev/kmsg", LOG);
        assert_eq!(check(&host.ev()), Ok(vec![]));
        assert!(rules_out(&host.ev()).unwrap().is_some());
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        assert_eq!(check(&Fixture::second().ev()).unwrap_err().to_string(), "proc/vmstat was not recorded");
        let before_4_13 =
            Fixture::second().start("proc/vmstat", "pswpin 0\n").end("proc/vmstat", "pswpin 0\n");
        assert!(check(&before_4_13.ev()).is_err());
        let groups = before_4_13.with(|t| t.cgroups = Some(vec![group(1, 0, "/web", 1)]));
        assert_eq!(check(&groups.ev()).unwrap().len(), 1, "its cgroups tell");
    }

    #[test]
    fn logs_of_older_kernels_and_odd_names_are_read() {
        let old = [
            "Memory cgroup out of memory: Kill process 12 (x) score 1000 or sacrifice child",
            "Killed process 12 (a (b) c) total-vm:1kB",
        ];
        let found = kills(old.into_iter());
        assert_eq!(found, [Kill { pid: "12".into(), comm: "a (b) c".into(), cgroup: None, limit_of: None }]);
        assert_eq!(kills(["Killed process 12", "Killed process 1 (", "oom-kill:"].into_iter()), []);
    }
}
