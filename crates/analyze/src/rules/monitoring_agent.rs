//! A process that reads statistics files is itself the load.
//!
//! Signal: on-CPU samples inside the kernel's code that makes the files of /proc, /sys and cgroupfs, by process; and the samples that are of one
//! read: its length. A process is reported by what it does, not by its name. A risk: other rules report the tasks that waited for it.

use std::time::Duration;

use whyslow_model::{
    Culprit, Finding, Missing, Probe, RuledOut, Share, Subject, SubjectKind, command, seconds,
};

use self::readers::{Reader, all, worth_naming};
use super::Rule;
use crate::Evidence;
use crate::stat_reads::stolen;

mod readers;

pub const RULE: Rule = Rule {
    id: "monitoring-agent",
    question: "Does a process use noticeable CPU time to read statistics files, in all or in single reads?",
    what: "A monitoring agent, a script or a shell loop reads files of /proc, /sys or cgroupfs so often, or on a host with so \
           many tasks and cgroups, that making these files is a load of its own. Some reads also hold locks that other tasks \
           wait for. A single read of a file that the kernel makes from much (memory.stat, smaps_rollup) can keep its CPU for tens of \
           milliseconds: packets and tasks of that CPU wait meanwhile, unless the kernel may be preempted there.",
    how: "On-CPU samples whose kernel stack is inside the code that makes or lists such files, summed by process, and by name for \
          processes that come and go. Samples in a read call of a task whose count of read calls is the same are of one read: this shows \
          which files, and how long single reads had a CPU. Reported from 5 % of one CPU on, or if three reads of files of one name or more took \
          10 ms or more each. whyslow itself is left out: its cost is reported separately.",
    limits: "Never a cause by itself: the monitoring may be worth its price. Needs on-CPU samples (root). Samples are 5 ms apart: the \
             time of a rare reader is only an estimate, and a long read is known to one such time. With interrupts off samples come late: that time \
             counts as the reader's, unless a hypervisor took as much. One read is one call: a file that is read in many calls (smaps, maps) is told by its \
             time in all. How long a reader waits in a read is not told here. A program whose work is to read such files (top, ps, tools of this kind): \
             named, too.",
    sources: "fs/seq_file.c, fs/proc/, fs/kernfs/file.c, mm/memcontrol.c (memory_stat_show, memcg_stat_show); \
              fs/read_write.c (inc_syscr); google/cadvisor#1774 and #2259 (reads of memory.stat).",
    can_be_cause: false,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// Share of one CPU. An agent is expected to stay below 1 %; at 5 % other processes pay for it.
const NOTICEABLE: Share = Share::percent(5);

/// A user notices a pause of this length.
const NOTICED: Duration = Duration::from_millis(50);

/// Known agents, and the settings that make them cheaper.
const KNOWN: &[(&str, &str)] = &[
    ("cadvisor", "--housekeeping_interval, --disable_metrics, --disable_root_cgroup_stats"),
    (
        "kubelet",
        "housekeeping-interval, and --runtime-cgroups statistics from the runtime (PodAndContainerStatsFromCRI)",
    ),
    ("node_exporter", "--no-collector.<name> for unused metrics, a longer scrape_interval"),
    ("telegraf", "a longer interval for inputs.procstat and inputs.cgroup"),
    ("agent", "a longer min_collection_interval of its process and container checks"),
    ("netdata", "a longer update every, apps.plugin and cgroups.plugin off"),
    ("zabbix_agentd", "longer intervals of proc.* items"),
    ("collectd", "a longer Interval for the processes plugin"),
];

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let found = worth_naming(ev)?;
    if found.is_empty()
        && let Some(doubt) = all(ev)?.iter().find_map(|one| Some(stolen(one.doubtful()?, &one.name)))
    {
        return Err(doubt);
    }
    Ok(found.iter().map(|reader| finding(ev, reader)).collect())
}

fn finding(ev: &Evidence<'_>, reader: &Reader) -> Finding {
    let name = &reader.name;
    let pid = reader.pids.first().copied().unwrap_or(0);
    let (id, who) = match reader.pids.len() {
        1 => (pid.to_string(), format!("{name} (pid {pid})")),
        n => (name.clone(), format!("{name} ({n} processes)")),
    };
    let place = reader.function().map_or_else(String::new, |function| format!(", most in {function}"));
    let culprit = Culprit::new(SubjectKind::Task, id, name);
    let mut f = Finding::risk(RULE.id, Subject::host())
        .titled(format!(
            "{who} spent {} of CPU time reading statistics files{place}{}",
            seconds(reader.time()),
            files(reader)
        ))
        .by(match reader.function() {
            Some(function) => culprit.in_function(function),
            None => culprit,
        });
    f.cpu = Some(reader.time());
    f = if reader.pids.len() == 1 {
        f.check(
            "which files, how often, how long (calls, seconds, file)",
            command!(
                "timeout 5 strace -f -y -T -e trace=read,pread64,getdents64 -p {} 2>&1 | awk -F'[<>]' '4 < NF {{ n[$2]++; s[$2] += $(NF-1) }} END {{ for (f in n) print n[f], s[f], f }}' | sort -rn | head -20",
                pid
            ),
        )
    } else {
        f.check(
            "the parent that starts these processes",
            "ps -e -o ppid,pid,etimes,args --sort=etimes | head -30",
        )
    };
    apart(less_often(f, reader, reader.share(ev)), reader)
}

/// Which files; behind a title.
fn files(reader: &Reader) -> String {
    if let Some((file, cost)) = reader.slowest() {
        let (each, worst) = (seconds(cost.each()), seconds(cost.worst));
        return format!("; {} reads of {file} took {each} each, the longest {worst}", cost.long_reads);
    }
    match reader.dearest().filter(|(_, cost)| cost.time > Duration::ZERO) {
        Some((file, cost)) => format!("; reads of {file} took {} of it", seconds(cost.time)),
        None => String::new(),
    }
}

fn less_often(f: Finding, reader: &Reader, share: Share) -> Finding {
    let known = KNOWN.iter().find(|(known, _)| reader.name.rsplit(['/', ' ']).next() == Some(known));
    match known {
        Some((_, how)) => f.advice(format!(
            "it uses {share} of a CPU; let it read less often, or fewer files: {how} (undo: the old value)"
        )),
        None => f.advice(format!(
            "it uses {share} of a CPU; let it read less often, or fewer files (undo: the old interval)"
        )),
    }
}

/// Of long reads: their CPU.
fn apart(f: Finding, reader: &Reader) -> Finding {
    let Some((_, cost)) = reader.slowest() else { return f };
    let (name, worst) = (&reader.name, seconds(cost.worst));
    let seen = if cost.worst >= NOTICED { ", which a user notices" } else { "" };
    f.advice(format!(
        "one read keeps its CPU for up to {worst}{seen}: where the kernel is not fully preemptible, packets and tasks of that CPU wait as long; \
         keep {name} off the CPUs that take packets (taskset; undo: the mask as it was)"
    ))
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let readers = all(ev)?;
    let time = readers.iter().fold(Duration::ZERO, |sum, reader| sum.saturating_add(reader.time()));
    let is_whole = ev.whole(Probe::StatReads).is_ok();
    let costs = || readers.iter().filter(|_| is_whole).flat_map(|reader| reader.by_file.values());
    // The worst time is an upper bound: a read whose worst is 10 ms may have taken less, and then it is not among the long ones.
    let longest = costs().filter(|cost| cost.long_reads > 0).map(|cost| cost.worst).max();
    let longest = match longest {
        Some(longest) => format!("; the longest read took {}", seconds(longest)),
        None if costs().next().is_some() => "; no read was seen to take 10 ms or more".to_owned(),
        None => String::new(),
    };
    let evidence = format!(
        "reading statistics files took {} of CPU time, all processes together{longest}",
        seconds(time)
    );
    Ok(check(ev)?.is_empty().then_some(RuledOut { what: "monitoring".into(), evidence }))
}

#[cfg(test)]
#[path = "monitoring_agent_tests.rs"]
mod tests;
