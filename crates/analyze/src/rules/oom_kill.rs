//! The kernel killed a process because memory ran out.
//!
//! Signal: `oom_kill` of `/proc/vmstat` (all kills of the host), kills by cgroup from kernel memory, and the kernel's log, which
//! names the process. No time measures the loss of a process, so kills stand above all losses of time.

use whyslow_model::resource;
use whyslow_model::table::Cgroup;
use whyslow_model::{Bytes, Culprit, Finding, Missing, RuledOut, Subject, SubjectKind, command};

use super::Rule;
use crate::Evidence;
use crate::hashing::Table;
use crate::memory::limit::{SHARED_ADVICE, as_advice};
use crate::memory::uses::Uses;
use crate::parse::flat::Flat;
use crate::shell;

pub const RULE: Rule = Rule {
    id: "oom-kill",
    question: "Did the kernel kill a process because memory ran out?",
    what: "Memory ran out, in a cgroup with a limit or on the whole host. Reclaim found no page, and the kernel killed a \
           process. Its work is lost, and a restart costs its start-up again.",
    how: "The rise of oom_kill in /proc/vmstat over the window, the kill count of each memory cgroup, and the last records of the \
          kernel's log, which name the process and its cgroup. One kill is enough. No time lost is computed.",
    limits: "Kernels before 4.13: they do not count kills of the host, so only the counts of cgroups are known. Kills by \
             systemd-oomd or earlyoom: they are ordinary signals, and not seen. A log that overflowed: the process has no name.",
    sources: "mm/oom_kill.c (__oom_kill_process, dump_oom_victim); Documentation/admin-guide/cgroup-v2.rst (memory.events).",
    can_be_cause: true,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// A kill, from the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kill {
    pid: String,
    comm: String,
    /// The cgroup of the process.
    cgroup: Option<String>,
    /// The cgroup that reached its limit; `None`: the memory of the host ran out.
    limit_of: Option<String>,
    /// What filled that limit at the time of the kill.
    uses: Option<Uses>,
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
    // The log ends with the window, so its last kills are the kills that were counted in the window.
    kills.drain(..kills.len().saturating_sub(usize::try_from(total).unwrap_or(usize::MAX)));
    let groups = groups.unwrap_or_default();
    let of_groups = groups.iter().map(|(_, kills)| *kills).fold(0, u64::saturating_add);
    let mut told: Vec<Finding> = groups.iter().map(|(group, n)| of_group(ev, group, *n, &kills)).collect();
    // Cgroups that were removed have no count.
    let others = total.saturating_sub(of_groups);
    if others > 0 {
        kills.retain(|kill| !groups.iter().any(|(group, _)| kill.cgroup.as_ref() == Some(&group.path)));
        told.push(of_log(ev, others, &kills));
    }
    Ok(told)
}

/// Cgroups with kills of their own. On v2 a parent also counts the kills of its children.
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

/// The factor by which a limit is raised. `memory-limit` uses the same one.
const RAISED: u64 = 2;

/// Only the log says which limit was reached: a cgroup also counts kills of its processes when the memory of the host, or of a parent
/// cgroup, ran out.
fn of_group(ev: &Evidence<'_>, group: &Cgroup, n: u64, kills: &[Kill]) -> Finding {
    let last = kills.iter().rfind(|kill| kill.cgroup.as_ref() == Some(&group.path));
    let who =
        last.map_or_else(String::new, |kill| format!(", the last {} (pid {})", who(ev, kill), kill.pid));
    let met = last.and_then(|kill| kill.limit_of.as_deref());
    let why = match (last, met) {
        (_, Some(path)) => format!("{}{}", reached(ev, path), filled(last)),
        (Some(_), None) => "the host's memory ran out".to_owned(),
        (None, None) => "memory ran out".to_owned(),
    };
    let f = Finding::killed(RULE.id, ev.names().cgroup(group))
        .titled(format!("the kernel killed {}{who}: {why}", some(n, "of its processes")))
        .check("the killed process, and what used the memory", "dmesg | grep -i -A 40 'invoked oom-killer'");
    match met {
        Some(path) => lifted(ev, f.on(resource::memory_limit(path)), path, last),
        None => f.on(resource::MEMORY).advice(HOST_ADVICE),
    }
}

/// The cgroup at a path, if it has a memory limit.
fn limited<'r>(ev: &Evidence<'r>, path: &str) -> Option<(&'r Cgroup, u64)> {
    let all = ev.cgroups().ok()?.iter().filter(|group| group.path == path);
    all.filter_map(|group| Some((group, group.memory.as_ref()?.limit?))).next()
}

fn reached(ev: &Evidence<'_>, path: &str) -> String {
    let name = ev.names().subject(path).name;
    limited(ev, path).map_or_else(
        || format!("{name} reached its memory limit"),
        |(_, limit)| format!("{name} reached its memory limit of {}", Bytes(limit)),
    )
}

/// What filled the limit at the time of this kill.
fn filled(kill: Option<&Kill>) -> String {
    kill.and_then(|kill| kill.uses).map(|uses| uses.notable()).unwrap_or_default()
}

/// The finding with the limit as its culprit, and with the fix that raises it.
fn lifted(ev: &Evidence<'_>, f: Finding, path: &str, kill: Option<&Kill>) -> Finding {
    let known = limited(ev, path).and_then(|(group, limit)| Some((group, limit, group.files.as_ref()?)));
    let Some((group, limit, files)) = known else {
        let name = format!("memory limit of {}", ev.names().subject(path).name);
        return f.by(Culprit::new(SubjectKind::Limit, path, name)).advice(LIMIT_ADVICE);
    };
    let file =
        format!("{files}/{}", if group.id >> 56 != 0 { "memory.limit_in_bytes" } else { "memory.max" });
    let quoted = shell::quoted(&file);
    let f = f
        .by(Culprit::new(SubjectKind::Limit, &file, format!("memory limit of {}", Bytes(limit)))
            .at_file(&file));
    let raised = |f: Finding| {
        f.fix(
            format!(
                "double the limit (costs memory of the host), or give its processes less to do (undo: echo {limit} > {quoted})"
            ),
            command!("echo {} > {}", limit.saturating_mul(RAISED), file),
        )
    };
    match kill.and_then(|kill| kill.uses).is_some_and(|uses| uses.is_shared()) {
        true => as_advice(raised(f.advice(SHARED_ADVICE))),
        false => raised(f),
    }
}

/// The name of the killed process. The kernel's log names its first thread.
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
                           (memory.max; undo: write max) keeps other processes alive, at the cost of its own";

const LIMIT_ADVICE: &str = "raise that limit (costs memory of the host), or give its processes less to do";

fn of_log(ev: &Evidence<'_>, n: u64, kills: &[Kill]) -> Finding {
    let last = kills.last();
    let victim = last
        .and_then(|kill| kill.cgroup.as_deref())
        .map_or_else(Subject::host, |path| ev.names().subject(path));
    let who = last.map_or_else(String::new, |kill| named(ev, n, kill));
    let limit_of = last.and_then(|kill| kill.limit_of.as_deref());
    let why = limit_of
        .map_or_else(|| "memory ran out".to_owned(), |path| format!("{}{}", reached(ev, path), filled(last)));
    let f = Finding::killed(RULE.id, victim)
        .titled(format!("the kernel killed {}{who}: {why}", some(n, "processes")))
        .check("the killed process, and what used the memory", "dmesg | grep -i -A 40 'invoked oom-killer'");
    match limit_of {
        Some(path) => lifted(ev, f.on(resource::memory_limit(path)), path, last),
        None => f.on(resource::MEMORY).advice(HOST_ADVICE),
    }
}

/// The kills of a log, oldest first.
fn kills<'t>(log: impl Iterator<Item = &'t str>) -> Vec<Kill> {
    let (mut kills, mut task_cgroup, mut limit_of) = (Vec::new(), None, None);
    let mut stats = Stats::default();
    for text in log {
        text.split(NEW_LINE).for_each(|line| stats.read(line));
        if let Some(facts) = text.strip_prefix("oom-kill:") {
            // v5.0, ef8444ea01d7 ("mm, oom: reorganize the oom report in dump_header")
            let fact = |name: &str| facts.split(',').find_map(|f| f.strip_prefix(name)).map(unescaped);
            (task_cgroup, limit_of) = (fact("task_memcg="), fact("oom_memcg="));
        } else if let Some((pid, comm)) = killed(text) {
            let uses = std::mem::take(&mut stats).uses();
            kills.push(Kill { pid, comm, cgroup: task_cgroup.take(), limit_of: limit_of.take(), uses });
        }
    }
    kills
}

/// What the log says about a limit before the kill: "memory: usage 81920kB, limit 81920kB, failcnt 22", then memory.stat, one line in each
/// record. Up to v6.4 all of memory.stat is in one record, which is cut at its end (mm/memcontrol.c, mem_cgroup_print_oom_meminfo).
#[derive(Debug, Default)]
struct Stats {
    usage: u64,
    reading: bool,
    stat: Flat,
}

/// A line break as the log writes it.
const NEW_LINE: &str = "\\x0a";

impl Stats {
    fn read(&mut self, text: &str) {
        if let Some(usage) = text.strip_prefix("memory: usage ") {
            let kib = usage.split_once("kB").and_then(|(kib, _)| kib.parse::<u64>().ok());
            *self = Stats { usage: kib.unwrap_or(0).saturating_mul(1024), ..Stats::default() };
        } else if text.starts_with("Memory cgroup stats for ") {
            self.reading = true;
        } else if self.reading {
            let line = text.split_once(' ').and_then(|(name, value)| Some((name, value.parse().ok()?)));
            match line {
                Some((name, value)) => drop(self.stat.insert(name.to_owned(), value)),
                None => self.reading = false,
            }
        }
    }

    fn uses(self) -> Option<Uses> {
        Uses::of(&self.stat, self.usage)
    }
}

/// The log writes bytes that cannot be printed, and a backslash, as `\x1b` (kernel/printk/printk.c, msg_add_ext_text).
fn unescaped(text: &str) -> String {
    let mut bytes: Vec<u8> = Vec::with_capacity(text.len());
    let mut parts = text.split("\\x");
    bytes.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.extend(byte.map_or_else(|| b"\\x".to_vec(), |byte| vec![byte]));
        bytes.extend(part.bytes().skip(if byte.is_some() { 2 } else { 0 }));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The pid and the name in "Memory cgroup out of memory: Killed process 1234 (java) total-vm:..."; before 5.3 without the first words.
fn killed(text: &str) -> Option<(String, String)> {
    let (_, rest) = text.split_once("Killed process ")?;
    let (pid, rest) = rest.split_once(" (")?;
    // A name may contain ")". After the name there is always ") total-vm:", or ", UID" between the two.
    let comm = rest.split_once(") total-vm").or_else(|| rest.split_once(')')).map(|(comm, _)| comm)?;
    Some((pid.to_owned(), comm.to_owned()))
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let none = ev.vmstat_delta("oom_kill")? == 0;
    Ok(none.then(|| RuledOut {
        what: "the OOM killer".into(),
        evidence: "it killed no process in the window".into(),
    }))
}

#[cfg(test)]
#[path = "oom_kill_tests.rs"]
mod tests;
