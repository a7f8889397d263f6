//! A process that reads statistics files is itself the load.
//!
//! Signal: on-CPU samples inside the kernel's code that makes the files of /proc, /sys and cgroupfs, by process. A process is reported
//! by what it does, not by its name. A risk: other rules report the tasks that waited for it.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::table::Sample;
use whyslow_model::{Culprit, Finding, Missing, RuledOut, Share, Subject, SubjectKind, command, seconds};

use super::Rule;
use crate::Evidence;

pub const RULE: Rule = Rule {
    id: "monitoring-agent",
    question: "Does a process use noticeable CPU time to read statistics files?",
    what: "A monitoring agent, a script or a shell loop reads files of /proc, /sys or cgroupfs so often, or on a host with so \
           many tasks and cgroups, that making these files is a load of its own. Some reads also hold locks that other tasks \
           wait for.",
    how: "On-CPU samples whose kernel stack is inside the code that makes or lists such files, summed by process, and by name for \
          processes that come and go. Reported from 5 % of one CPU on. whyslow itself is left out: its cost is reported separately.",
    limits: "Never a cause by itself: the monitoring may be worth its price. Needs on-CPU samples (root). Samples are 5 ms apart: the \
             time of a rare reader is only an estimate. A program whose work is to read such files (top, ps, tools of this kind): \
             named, too.",
    sources: "fs/seq_file.c, fs/proc/, fs/kernfs/file.c, mm/memcontrol.c (memory_stat_show, memcg_stat_show); \
              google/cadvisor#1774 and #2259 (reads of memory.stat).",
    can_be_cause: false,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// Share of one CPU. An agent is expected to stay below 1 %; at 5 % other processes pay for it.
const NOTICEABLE: Share = Share::percent(5);

/// Functions that make, list or look up all such files.
#[rustfmt::skip] // a list of words
const READERS: &[&str] = &[
    "seq_read", "seq_read_iter", "proc_reg_read", "proc_reg_read_iter", "proc_sys_call_handler",
    "proc_sys_readdir", "proc_root_readdir", "proc_readdir", "proc_pid_readdir", "proc_task_readdir",
    "proc_readfd_common", "proc_tgid_base_readdir", "proc_pid_lookup", "proc_root_lookup", "proc_lookup",
    "proc_lookup_de", "proc_tgid_base_lookup", "proc_pident_lookup", "proc_lookupfd_common",
    "proc_pid_readlink", "proc_pid_get_link", "proc_pid_cmdline_read", "environ_read", "pagemap_read",
    "pid_revalidate", "pid_getattr", "kernfs_fop_read", "kernfs_fop_read_iter", "kernfs_seq_show",
    "kernfs_fop_readdir", "kernfs_iop_lookup", "kernfs_dop_revalidate",
];
/// Functions between a reader and the function that makes this one file.
const WRAPPERS: &[&str] = &[
    "cgroup_seqfile_show",
    "sysfs_kf_seq_show",
    "dev_attr_show",
    "kobj_attr_show",
    "proc_single_show",
    "seq_read",
    "proc_reg_read_iter",
];

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
    let mut found: Vec<Reader> =
        readers(ev)?.into_iter().filter(|reader| reader.share(ev) >= NOTICEABLE).collect();
    found.sort_by_key(|reader| std::cmp::Reverse(reader.time));
    Ok(found.iter().map(|reader| finding(ev, reader)).collect())
}

/// A process, or several processes of one name, and the time spent reading.
#[derive(Debug, Clone, Default)]
struct Reader {
    pids: Vec<u32>,
    name: String,
    time: Duration,
    by_function: BTreeMap<String, Duration>,
}

impl Reader {
    fn share(&self, ev: &Evidence<'_>) -> Share {
        Share::of(self.time.as_secs_f64(), ev.window().as_secs_f64())
    }

    fn add(&mut self, other: Reader) {
        self.pids.extend(other.pids);
        self.name = other.name;
        self.time += other.time;
        for (function, time) in other.by_function {
            *self.by_function.entry(function).or_default() += time;
        }
    }
}

/// All readers, by process. Processes below the threshold are summed up by name: a script starts a new process each time.
fn readers(ev: &Evidence<'_>) -> Result<Vec<Reader>, Missing> {
    let mut by_process: BTreeMap<u32, Reader> = BTreeMap::new();
    for sample in ev.samples()?.iter().filter(|s| s.tgid != 0 && !ev.is_own(s.pid, s.tgid)) {
        let Some(function) = made_by(&sample.kernel) else { continue };
        let time = Duration::from_nanos(sample.ns);
        let one = Reader {
            pids: Vec::new(),
            name: match ev.broods().of_child(sample.tgid) {
                Some(brood) => brood.together(),
                None => process_name(ev, sample),
            },
            time,
            by_function: BTreeMap::from([(function.to_owned(), time)]),
        };
        by_process
            .entry(sample.tgid)
            .or_insert_with(|| Reader { pids: vec![sample.tgid], ..Reader::default() })
            .add(one);
    }
    let (large, small): (Vec<Reader>, Vec<Reader>) =
        by_process.into_values().partition(|r| r.share(ev) >= NOTICEABLE);
    let mut by_name: BTreeMap<String, Reader> = BTreeMap::new();
    for reader in small {
        by_name.entry(reader.name.clone()).or_default().add(reader);
    }
    Ok(large.into_iter().chain(by_name.into_values()).collect())
}

fn process_name(ev: &Evidence<'_>, sample: &Sample) -> String {
    ev.process_name(sample.tgid, &sample.comm)
}

/// The function that makes the file, if the stack is inside a read, a listing or a lookup of such a file. Innermost frame first.
fn made_by(kernel: &[String]) -> Option<&str> {
    // The compiler and the symboliser add suffixes: "show_stat.isra.0", "seq_read+0x1f", "do [ext4]".
    let plain = |frame: &'_ str| frame.find(['.', '+', ' ']).unwrap_or(frame.len());
    let name = |at: usize| kernel.get(at).and_then(|frame| frame.get(..plain(frame)));
    let reader = (0..kernel.len()).find(|at| name(*at).is_some_and(|n| READERS.contains(&n)))?;
    let inner = (0..reader).rev().filter_map(name).find(|n| !WRAPPERS.contains(n));
    inner.or_else(|| name(reader))
}

fn finding(ev: &Evidence<'_>, reader: &Reader) -> Finding {
    let Reader { name, time, .. } = reader;
    let function =
        reader.by_function.iter().max_by_key(|(_, time)| **time).map_or("", |(name, _)| name.as_str());
    let pid = reader.pids.first().copied().unwrap_or(0);
    let (id, who) = match reader.pids.len() {
        1 => (pid.to_string(), format!("{name} (pid {pid})")),
        n => (name.clone(), format!("{name} ({n} processes)")),
    };
    let mut f = Finding::risk(RULE.id, Subject::host())
        .titled(format!(
            "{who} spent {} of CPU time reading statistics files, most in {function}",
            seconds(*time)
        ))
        .by(Culprit::new(SubjectKind::Task, id, name).in_function(function));
    f.cpu = Some(*time);
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
    let share = reader.share(ev);
    let known = KNOWN.iter().find(|(known, _)| name.rsplit(['/', ' ']).next() == Some(known));
    match known {
        Some((_, how)) => f.advice(format!(
            "it uses {share} of a CPU; let it read less often, or fewer files: {how} (undo: the old value)"
        )),
        None => f.advice(format!(
            "it uses {share} of a CPU; let it read less often, or fewer files (undo: the old interval)"
        )),
    }
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let time: Duration = readers(ev)?.iter().map(|reader| reader.time).sum();
    let evidence =
        format!("reading statistics files took {} of CPU time, all processes together", seconds(time));
    Ok(check(ev)?.is_empty().then_some(RuledOut { what: "monitoring".into(), evidence }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::fixture::Fixture;

    const MEMORY_STAT: &[&str] = &[
        "memcg_page_state.isra.0",
        "memcg_stat_show",
        "cgroup_seqfile_show",
        "kernfs_seq_show",
        "seq_read_iter",
        "vfs_read",
    ];

    fn sample(tgid: u32, comm: &str, ms: u64, kernel: &[&str]) -> Sample {
        let kernel = kernel.iter().map(|&frame| frame.to_owned()).collect();
        Sample {
            pid: tgid,
            tgid,
            comm: comm.into(),
            count: 1,
            ns: ms * 1_000_000,
            kernel,
            ..Sample::default()
        }
    }

    fn host(samples: Vec<Sample>) -> Fixture {
        Fixture::second().with(|t| t.samples = Some(samples))
    }

    #[test]
    fn fires_on_whoever_reads_much_whatever_its_name() {
        let found = check(
            &host(vec![sample(7, "my-thing", 80, MEMORY_STAT), sample(7, "my-thing", 500, &["do_fault"])])
                .ev(),
        )
        .unwrap();
        assert_eq!(
            found[0].title,
            "my-thing (pid 7) spent 80 ms of CPU time reading statistics files, most in memcg_stat_show"
        );
        assert_eq!((found[0].lost, found[0].cpu), (None, Some(Duration::from_millis(80))));
        let culprit = found[0].culprit.as_ref().unwrap();
        assert_eq!((culprit.id.as_str(), culprit.function.as_deref()), ("7", Some("memcg_stat_show")));
    }

    #[test]
    fn knows_how_to_calm_known_agents() {
        let found = check(&host(vec![sample(9, "cadvisor", 200, MEMORY_STAT)]).ev()).unwrap();
        assert!(found[0].fixes[0].text.contains("--housekeeping_interval"));
    }

    #[test]
    fn processes_that_come_and_go_are_counted_together() {
        let many = (100..140).map(|pid| sample(pid, "ps", 2, &["pid_revalidate", "lookup_fast"])).collect();
        let found = check(&host(many).ev()).unwrap();
        assert!(found[0].title.starts_with("ps (40 processes) spent 80 ms"), "{}", found[0].title);
    }

    #[test]
    fn is_quiet_about_the_known_name_that_reads_little() {
        let host =
            host(vec![sample(9, "cadvisor", 20, MEMORY_STAT), sample(9, "cadvisor", 900, &["tcp_sendmsg"])]);
        assert_eq!(check(&host.ev()), Ok(vec![]));
        assert!(rules_out(&host.ev()).unwrap().unwrap().evidence.contains("20 ms"));
    }

    #[test]
    fn is_quiet_about_itself_and_about_writers() {
        let mut host = host(vec![
            sample(5, "whyslow", 300, MEMORY_STAT),
            sample(6, "runc", 300, &["cgroup_attach_task", "kernfs_fop_write_iter"]),
        ]);
        host.0.meta.own_pids = vec![5];
        assert_eq!(check(&host.ev()), Ok(vec![]));
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        assert_eq!(
            check(&Fixture::second().ev()).unwrap_err().to_string(),
            "on-CPU samples was not recorded"
        );
    }

    #[test]
    fn the_function_is_the_one_that_makes_the_file() {
        let made = |frames: &[&str]| {
            made_by(&frames.iter().map(|&f| f.to_owned()).collect::<Vec<_>>()).map(str::to_owned)
        };
        assert_eq!(made(MEMORY_STAT).as_deref(), Some("memcg_stat_show"));
        assert_eq!(made(&["show_stat", "seq_read_iter", "proc_reg_read_iter"]).as_deref(), Some("show_stat"));
        assert_eq!(made(&["show_stat+0x1f", "seq_read_iter+0x2/0x90"]).as_deref(), Some("show_stat"));
        assert_eq!(made(&["seq_read_iter"]).as_deref(), Some("seq_read_iter"));
        assert_eq!(made(&["do_idle"]), None);
        assert_eq!(made(&[]), None);
    }
}
