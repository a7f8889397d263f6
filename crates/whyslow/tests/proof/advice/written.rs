//! The command lines in the sources of the rules: each is given by a case, or is listed here as a host would fill it in. So a rule cannot
//! give a command that was never tried.

use std::fs;
use std::path::{Path, PathBuf};

use crate::advice::given::{self, Given};

/// Checks that no case gives, by rule, as a host would fill them in.
const CHECKS: [(&str, &str); 37] = [
    ("extra-work", "auditctl -l"),
    ("extra-work", "cat /proc/7/mountinfo"),
    ("extra-work", "grep -c ' - ' /proc/7/mountinfo"),
    ("extra-work", "grep FDSize /proc/7/status"),
    ("extra-work", "grep Seccomp /proc/7/status"),
    ("extra-work", "ip6tables-legacy-save -c"),
    ("extra-work", "iptables-legacy-save -c"),
    ("extra-work", "nft list ruleset"),
    ("extra-work", "nsenter -n -t 7 ip6tables-legacy-save -c"),
    ("extra-work", "nsenter -n -t 7 iptables-legacy-save -c"),
    ("extra-work", "nsenter -n -t 7 nft list ruleset"),
    ("extra-work", "nsenter -n -t 7 ip rule show"),
    ("extra-work", "nsenter -n -t 7 ss -s"),
    ("failed-calls", "cat /proc/sys/fs/inotify/max_user_watches"),
    ("failed-calls", "cat /proc/sys/fs/inotify/max_user_instances"),
    ("failed-calls", "cat /proc/sys/net/ipv4/ip_local_port_range"),
    ("failed-calls", "grep 'open files' /proc/7/limits"),
    ("failed-calls", "grep TCP: /proc/net/sockstat"),
    ("failed-calls", "grep processes /proc/7/limits"),
    ("failed-calls", "ls -l /proc/7/fd 2>/dev/null | sort -k 11"),
    ("failed-calls", "ss -lxnp"),
    ("idle-policy", "fuser -v /dev/cpu_dma_latency"),
    ("vain-calls", "top -H -b -n 1 -p 7"),
    ("wakeup-latency", "rtla hwnoise -c 0 -d 10s"),
    ("leftover-debugging", "bpftool prog show id 7"),
    ("leftover-debugging", "cat /proc/sys/kernel/lock_stat"),
    ("leftover-debugging", "cat /sys/kernel/tracing/current_tracer"),
    ("leftover-debugging", "cat /sys/kernel/tracing/set_event"),
    ("leftover-debugging", "find /proc/[0-9]*/fd -lname 'anon_inode:bpf-stats' 2>/dev/null"),
    ("listen-overflow", "ss -ltnmp 'sport = :8080'"),
    ("memory-limit", "cat /sys/fs/cgroup/build/memory.events"),
    ("monitoring-agent", "ps -e -o ppid,pid,etimes,args --sort=etimes | head -30"),
    ("pid-limit", "cat /proc/loadavg /proc/sys/kernel/pid_max"),
    ("pid-limit", "ps -e -o nlwp,pid,comm --sort=-nlwp | head"),
    ("slow-cpu", "grep . /sys/devices/system/cpu/cpufreq/policy0/scaling_governor"),
    ("nagle", "nsenter -n -t 7 ss -tinp"),
    ("slow-receiver", "nsenter -n -t 7 ss -tuinmp"),
];

/// Sources of rules, without tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if name.ends_with(".rs") && !name.contains("tests") && !name.contains("fixture") {
            found.push(path);
        }
    }
    found
}

/// String literals of a source up to its tests, without their escapes.
fn literals(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or(source);
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = lines.collect::<Vec<_>>().join("\n").replace("'\"'", "");
    let (mut found, mut rest) = (Vec::new(), code.as_str());
    while let Some(at) = rest.find('"') {
        let (mut text, mut chars) = (String::new(), rest[at + 1..].char_indices());
        let mut end = rest.len();
        while let Some((to, c)) = chars.next() {
            match c {
                '"' => {
                    end = at + to + 2;
                    break;
                }
                '\\' => text.extend(chars.next().map(|(_, c)| c)),
                c => text.push(c),
            }
        }
        found.push(text);
        rest = &rest[end.min(rest.len())..];
    }
    found
}

/// Whether a text is a line to be pasted, not a sentence: "find out who" also begins like a command.
fn is_line(text: &str) -> bool {
    const OF_LINES: [&str; 8] = ["/proc", "/sys", "/dev", " -", " | ", "{}", "cat ", "whyslow "];
    crate::advice::harmless::is_command(text)
        && text.contains(' ')
        && OF_LINES.iter().any(|part| text.contains(part))
        && !["undo", ", ", "; it "].iter().any(|part| text.contains(part))
}

/// Whether a line fits this format.
fn is_made_of(line: &str, format: &str) -> bool {
    let mut rest = line;
    let format = format.replace("{{", "\u{1}").replace("}}", "\u{2}");
    let parts: Vec<String> =
        format.split("{}").map(|part| part.replace('\u{1}', "{").replace('\u{2}', "}")).collect();
    for (n, part) in parts.iter().enumerate() {
        match rest.find(part.as_str()) {
            Some(at) if n > 0 || at == 0 => rest = &rest[at + part.len()..],
            _ => return false,
        }
    }
    rest.is_empty() || format.ends_with("{}")
}

/// The same for fixes.
const FIXES: [(&str, &str); 8] = [
    ("clocksource", "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("leftover-debugging", "echo 0 > /sys/kernel/tracing/events/enable"),
    ("leftover-debugging", "echo function > /sys/kernel/tracing/current_tracer"),
    ("leftover-debugging", "echo nop > /sys/kernel/tracing/current_tracer"),
    ("leftover-debugging", "sysctl -w kernel.bpf_stats_enabled=0"),
    ("leftover-debugging", "sysctl -w kernel.lock_stat=0"),
    ("leftover-debugging", "sysctl -w kernel.prove_locking=0"),
    ("leftover-debugging", "sysctl -w kernel.stack_tracer_enabled=0"),
];

/// The lines of the cases and the lines of this file: checks, and fixes with their undo commands.
pub fn lines() -> (Vec<Given>, Vec<Given>) {
    let of = |(rule, line): &(&str, &str)| Given {
        case: "no case".to_owned(),
        rule: (*rule).to_owned(),
        text: String::new(),
        line: (*line).to_owned(),
    };
    let mut all = given::all();
    all.checks.extend(CHECKS.iter().map(of));
    all.fixes.append(&mut all.undos);
    all.fixes.extend(FIXES.iter().map(of));
    (all.checks, all.fixes)
}

#[test]
fn every_line_in_a_rule_is_known() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../analyze/src/rules");
    let (checks, fixes) = lines();
    let known: Vec<String> = checks.into_iter().chain(fixes).map(|given| given.line).collect();
    let (mut unknown, mut seen) = (Vec::new(), 0);
    for path in sources(&folder) {
        let all = literals(&fs::read_to_string(&path).unwrap());
        for text in all.iter().filter(|text| is_line(text)) {
            seen += 1;
            if !known.iter().any(|line| is_made_of(line, text)) {
                unknown.push(format!("{}: {text}", path.file_name().unwrap().display()));
            }
        }
    }
    assert!(seen > 60 && unknown.is_empty(), "{seen} seen: {unknown:#?}");
}

#[test]
fn lines_are_read_from_a_source() {
    let source = "// \"cat /x\"\nf(\"a\\\"b\", 'c', \"cat /proc/{}/x\");\n#[cfg(test)]\nmod tests {\n\"d\"";
    assert_eq!(literals(source), ["a\"b", "cat /proc/{}/x"]);
    assert!(is_line("cat /proc/{}/x") && !is_line("find out who uses it") && !is_line("kill -9 1"));
    assert!(is_made_of("cat /proc/7/io; x", "cat /proc/{}/io; x") && is_made_of("a {b} c", "a {{b}} {}"));
    assert!(!is_made_of("cat /proc/7/iostat", "cat /proc/{}/io") && !is_made_of("a", "b"));
}
