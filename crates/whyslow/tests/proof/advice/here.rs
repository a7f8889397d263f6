//! Checks that need no fault: the checks of the cases, with things of this host instead of theirs, and the output that each must print.

use std::path::Path;

use whyslow_faults::FaultKind;
use whyslow_faults::rounds::say;

use crate::advice::fault::pasted;
use crate::advice::given::Given;
use crate::advice::harmless::packages;
use crate::advice::line::commands;
use crate::advice::stand::Stand;
use crate::advice::written::lines;

/// A check, found by its rule and by the start of its line.
struct Row {
    rule: &'static str,
    begins: &'static str,
    /// Files that some hosts lack.
    needs: &'static str,
    /// Words that it must print; "{busy}" and "{me}" stand for names of this test.
    says: &'static [&'static str],
}

const fn row(rule: &'static str, begins: &'static str, says: &'static [&'static str]) -> Row {
    Row { rule, begins, needs: "/proc", says }
}

const fn with(row: Row, needs: &'static str) -> Row {
    Row { needs, ..row }
}

const IDLE: &str = "/sys/devices/system/cpu/cpu1/cpuidle/state0";
const TRACING: &str = "/sys/kernel/tracing/current_tracer";
/// A file of kernels that have the tracers of rtla.
const OSNOISE: &str = "/sys/kernel/tracing/osnoise";

/// On a healthy host the check may print nothing.
const NOTHING: &[&str] = &[];

const ROWS: &[Row] = &[
    with(row("idle-policy", "fuser", &["{pid}"]), "/dev/cpu_dma_latency"),
    with(row("wakeup-latency", "rtla hwnoise", &["CPU"]), OSNOISE),
    row("leftover-debugging", "bpftool prog show", &["name"]),
    with(row("leftover-debugging", "cat /proc/sys", &["\n"]), "/proc/sys/kernel/lock_stat"),
    with(row("leftover-debugging", "cat /sys/kernel/tracing/current", &["nop"]), TRACING),
    with(row("leftover-debugging", "cat /sys/kernel/tracing/set_event", NOTHING), TRACING),
    row("leftover-debugging", "find /proc", NOTHING),
    row("monitoring-agent", "ps -e", &["ELAPSED", "{busy}"]),
    row("pid-limit", "cat /proc/loadavg", &["/", "\n"]),
    row("pid-limit", "ps -e", &["NLWP"]),
    with(row("slow-cpu", "grep .", &["\n"]), "/sys/devices/system/cpu/cpufreq/policy0"),
    row("traced", "grep TracerPid", &["TracerPid:"]),
    row("nagle", "nsenter", &["users:"]),
    row("memory-limit", "grep -w tmpfs", &["tmpfs "]),
    row("send-queue", "nsenter", NOTHING),
    row("service-away", "dmesg | grep", NOTHING),
    row("service-away", "nsenter", &["Recv-Q"]),
    row("slow-receiver", "nsenter", &["skmem:", "users:"]),
    row("cache-taken", "grep drop_pagecache", &["drop_pagecache "]),
    row("cache-taken", "grep workingset_refault_file", &["workingset_refault_file "]),
    row("clocksource", "cd /sys/devices/system/clock", &["current_clocksource:", "available_clocksource:"]),
    row("clocksource", "dmesg | grep", &["clocksource"]),
    with(
        row("conntrack", "sysctl", &["nf_conntrack_count", "nf_conntrack_max", "insert_failed"]),
        "/proc/net/stat/nf_conntrack",
    ),
    row("dirty-throttling", "grep -E 'Dirty", &["Dirty:", "nr_dirty_threshold", "write_bytes:"]),
    row("disk-latency", "iostat", &["r_await", "w_await"]),
    row("disk-queue", "iostat", &["r_await", "aqu-sz"]),
    row("disk-queue", "pidstat", &["kB_rd/s"]),
    row("extra-work", "auditctl -l", &["\n"]),
    row("extra-work", "cat /proc/", &[" - proc "]),
    row("extra-work", "grep -c ' - '", &["\n"]),
    row("extra-work", "grep FDSize", &["FDSize:"]),
    row("extra-work", "grep Seccomp", &["Seccomp:"]),
    // A table that was never created has no output.
    row("extra-work", "ip", NOTHING),
    row("extra-work", "nft", NOTHING),
    row("extra-work", "nsenter", NOTHING),
    row("failed-calls", "cat /proc/sys/fs/inotify", &["\n"]),
    row("failed-calls", "cat /proc/sys/net/ipv4", &["\t"]),
    row("failed-calls", "df -l", &["Avail", "IFree"]),
    row("failed-calls", "grep 'open files'", &["Max open files"]),
    row("failed-calls", "grep TCP:", &["tw "]),
    row("failed-calls", "grep processes", &["Max processes"]),
    row("failed-calls", "ls -l /proc/", &["-> "]),
    row("failed-calls", "ss -lxnp", &["Recv-Q"]),
    row("file-handles", "cat /proc/sys/fs/file-nr", &["\t"]),
    row("file-handles", "for p in", &["{me}"]),
    row("full-cpus", "top -b", &["{busy}"]),
    row("full-thread", "top -H", &["{busy}"]),
    row("held-up", "grep -E", &["State:"]),
    row("held-up", "ps -eLo", &["{waiting}"]),
    row("held-up", "whyslow chains", &["{waiting}"]),
    row("idle-policy", "cat /proc/cmdline", &["="]),
    with(row("idle-policy", "cat /sys/devices/system/cpu/cpuidle", &["\n"]), IDLE),
    with(row("idle-policy", "grep . /sys/devices/system/cpu/cpu*", &["disable:"]), IDLE),
    with(row("idle-policy", "grep . /sys/devices/system/cpu/cpu0", &["latency:"]), IDLE),
    row("irq-imbalance", "cat /proc/interrupts", &["CPU0", "LOC:"]),
    row("irq-imbalance", "mpstat", &["%irq", "%soft"]),
    row("irqs-off", "cat /proc/", &["kernel_clone"]),
    with(row("irqs-off", "rtla timerlat", &["IRQ"]), OSNOISE),
    with(row("wakeup-latency", "grep . /sys/devices", &["latency:", "usage:", "disable:"]), IDLE),
    row("leftover-debugging", "cat /proc/cmdline", &["="]),
    row("load-average", "ps -eLo", &["{waiting}"]),
    row("load-average", "whyslow chains", &["{waiting}"]),
    row("lock-wait", "ps -eLo", &["{waiting}"]),
    row("lock-wait", "whyslow chains", &["{waiting}"]),
    row("monitoring-agent", "timeout 5 strace", &["/proc/stat"]),
    row("oom-kill", "dmesg | grep", &["invoked oom-killer"]),
    row("packet-stalls", "cat /proc/", &["kernel_clone"]),
    row("packet-stalls", "whyslow net", &["packet"]),
    row("ipc-namespaces", "whyslow work", &["Work items"]),
    row("grace-periods", "whyslow work", &["Work items"]),
    row("grace-periods", "whyslow jobs", &["jobs"]),
    row("pid-limit", "cd /sys", &["512", "max 0"]),
    row("reclaim", "grep -E", &["allocstall_", "pgscan_direct ", "pgsteal_direct "]),
    row("request-queue", "top -H", &["{busy}"]),
    row("request-queue", "whyslow chains", &["{waiting}"]),
    row("retransmits", "ss -tin", &["rto:"]),
    row("slow-cpu", "whyslow cpu", &["What each CPU delivers"]),
    row(
        "slow-receiver",
        "nstat",
        &["TcpExtPruneCalled", "TcpExtTCPRcvCollapsed", "TcpExtTCPToZeroWindowAdv", "UdpRcvbufErrors"],
    ),
    row("softnet-drops", "cat /proc/net/softnet_stat", &["00000000 "]),
    row("spin", "perf record", &["{busy}"]),
    row("spin", "top -H", &["{busy}"]),
    row("unanswered-connects", "nsenter", NOTHING),
    with(
        row("unanswered-connects", "sysctl", &["nf_conntrack_count", "nf_conntrack_max", "insert_failed"]),
        "/proc/net/stat/nf_conntrack",
    ),
    row("vain-calls", "grep 'open files'", &["Max open files"]),
    row("vain-calls", "top -H", &["{busy}"]),
    row("steal", "vmstat", &[" st"]),
    row("dying-cgroups", "cat /sys/fs/cgroup/cgroup.stat", &["memory\t"]),
    row("dying-cgroups", "grep -e Percpu", &["Percpu:", "SUnreclaim:"]),
];

fn row_of(check: &Given) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.rule == check.rule && check.line.starts_with(row.begins))
}

fn is_made(check: &Given) -> bool {
    FaultKind::ALL.iter().any(|kind| kind.rule() == check.rule)
}

/// Why this host cannot run it.
fn lacks(row: &Row, line: &str) -> Option<String> {
    let is_there = |name: &str| pasted(&format!("command -v {name}")).is_ok();
    let used = commands(line).unwrap_or_default();
    let missing = used.iter().filter_map(|simple| simple.words.first()).find(|name| !is_there(name));
    let missing = missing.map(|name| format!("{name} (Debian has it in {})", packages(line).join(" ")));
    let absent = (!Path::new(row.needs).exists()).then(|| row.needs.to_owned());
    // No process is killed to test the kernel's message about it. The ring buffer of the kernel's log loses its oldest lines: on a host
    // that logs much the messages of the boot are gone.
    let log = pasted("dmesg").unwrap_or_default();
    let not_logged = line.starts_with("dmesg") && !row.says.iter().all(|word| log.contains(word));
    let no_program =
        line.starts_with("bpftool") && pasted("bpftool prog show").is_ok_and(|all| all.is_empty());
    let absent = absent.or(no_program.then(|| "BPF program".to_owned()));
    missing.or(absent).or(not_logged.then(|| format!("line of {:?} in the log of its kernel", row.says)))
}

#[test]
fn every_check_is_run_by_a_live_test() {
    let (checks, _) = lines();
    let none: Vec<&Given> =
        checks.iter().filter(|check| !is_made(check) && row_of(check).is_none()).collect();
    assert!(none.is_empty(), "what do these show? {none:#?}");
    let idle: Vec<&str> = ROWS
        .iter()
        .filter(|row| !checks.iter().any(|check| row_of(check).is_some_and(|of| std::ptr::eq(of, *row))))
        .map(|row| row.begins)
        .collect();
    assert!(idle.is_empty(), "no case gives {idle:?}");
}

#[test]
fn root_each_check_shows_on_this_host_what_it_says() {
    if !whyslow_faults::host::is_root() {
        return say("not run: checks on this host need root");
    }
    let stand = Stand::set().unwrap();
    let mut to_run: Vec<(&Row, String)> = Vec::new();
    for check in lines().0.iter().filter(|check| !is_made(check)) {
        let (row, line) = (row_of(check).unwrap(), stand.in_place_of(&check.line));
        if !to_run.iter().any(|(of, other)| (of.rule, other) == (row.rule, &line)) {
            to_run.push((row, line));
        }
    }
    let (mut wrong, mut ran) = (Vec::new(), 0);
    for (row, line) in &to_run {
        if let Some(what) = lacks(row, line) {
            say(&format!("not run: check of {}: this host has no {what}: {line}", row.rule));
            continue;
        }
        ran += 1;
        match pasted(line) {
            Err(why) => wrong.push(format!("{}: {why}", row.rule)),
            Ok(said) => {
                let says = row.says.iter().map(|word| stand.named(word));
                wrong.extend(
                    says.filter(|word| !said.contains(word.as_str()))
                        .map(|word| format!("{}: {line}: no {word:?} in {said}", row.rule)),
                );
            }
        }
    }
    say(&format!("checks on this host: {ran} of {} ran", to_run.len()));
    assert!(ran >= 20 && wrong.is_empty(), "{ran} ran: {}", wrong.join("\n"));
}
