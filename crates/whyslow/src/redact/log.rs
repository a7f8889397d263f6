//! Names in the kernel log: drivers, and processes that may write to it, write any text. Only the records that rules read stay.

use super::words::Words;

/// Beginnings of the kernel's records about its own clocks, which contain no names.
const CLOCKS: [&str; 3] = ["clocksource", "TSC", "tsc:"];

/// Keeps the records about clocks and about OOM kills, without names.
pub fn redact(text: &str, words: &mut Words) -> String {
    text.lines().filter_map(|line| record(line, words)).collect()
}

fn record(line: &str, words: &mut Words) -> Option<String> {
    let (head, text) = line.split_once(';')?;
    // The facility stands above the three lowest bits of the priority: facility 0 is the kernel's, and no process can write with it
    // (devkmsg_write).
    let priority: u32 = head.split(',').next()?.trim().parse().ok()?;
    if priority > 7 {
        return None;
    }
    let text = if let Some(facts) = text.strip_prefix("oom-kill:") {
        format!("oom-kill:{}", facts.split(',').map(|one| fact(one, words)).collect::<Vec<_>>().join(","))
    } else if let Some((before, rest)) = text.split_once("Killed process ") {
        let (pid, rest) = rest.split_once(" (")?;
        let (comm, rest) = rest.split_once(") total-vm")?;
        let before = if before.starts_with("Memory cgroup") {
            "Memory cgroup out of memory: "
        } else {
            "Out of memory: "
        };
        format!("{before}Killed process {pid} ({}) total-vm{rest}", words.comm(comm))
    } else if CLOCKS.iter().any(|begin| text.starts_with(begin)) {
        text.to_owned()
    } else {
        return None;
    };
    Some(format!("{head};{text}\n"))
}

fn fact(fact: &str, words: &mut Words) -> String {
    match fact.split_once('=') {
        Some((key @ ("oom_memcg" | "task_memcg" | "cpuset"), path)) => format!("{key}={}", words.group(path)),
        Some(("task", comm)) => format!("task={}", words.comm(comm)),
        Some((key @ ("constraint" | "nodemask" | "mems_allowed" | "pid" | "uid"), value)) => {
            format!("{key}={value}")
        }
        _ if fact == "global_oom" => fact.to_owned(),
        // The rest of a name that contains a comma.
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use whyslow_model::Recording;

    #[test]
    fn oom_kill_records_keep_their_facts_and_lose_names() {
        let mut words = Words::of(&Recording::default(), BTreeSet::new());
        let text = "6,9,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/a/b,task_memcg=/a/b,task=java,pid=7,uid=0\n\
                    3,9,2,-;Memory cgroup out of memory: Killed process 7 (java) total-vm:9kB, UID:0\n\
                    12,9,3,-;secret\n6,9,4,-;usb: secret\n5,9,5,-;tsc: Marking TSC unstable\n  secret\n";
        let expected = "6,9,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/g1/g2,task_memcg=/g1/g2,task=task-a,pid=7,uid=0\n\
                        3,9,2,-;Memory cgroup out of memory: Killed process 7 (task-a) total-vm:9kB, UID:0\n\
                        5,9,5,-;tsc: Marking TSC unstable\n";
        assert_eq!(redact(text, &mut words), expected);
    }
}
