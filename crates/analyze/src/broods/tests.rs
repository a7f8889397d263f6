use whyslow_model::table::{Cgroup, Tables};
use whyslow_model::{Meta, Recording};

use super::*;

fn agent() -> Task {
    Task {
        pid: 7,
        tgid: 7,
        comm: "agent".into(),
        cmdline: Some("/bin/sh /usr/local/bin/agent".into()),
        unified_cgroup: 3,
        lived_ns: 10_000_000_000,
        ..Task::default()
    }
}

fn child(pid: u32, creator: u32, comm: &str) -> Task {
    let (lived_ns, exec_ns) = (8_000_000, 5_000_000);
    Task {
        pid,
        tgid: pid,
        ppid: 1,
        creator,
        comm: comm.into(),
        born: true,
        ended: true,
        lived_ns,
        exec_ns,
        ..Task::default()
    }
}

fn host(tasks: Vec<Task>) -> Recording {
    let group = Cgroup { id: 3, path: "/system.slice/agent.service".into(), ..Cgroup::default() };
    Recording {
        meta: Meta { window_ns: 10_000_000_000, cpus: 2, ..Meta::default() },
        tables: Tables { tasks: Some(tasks), cgroups: Some(vec![group]), ..Tables::default() },
        ..Recording::default()
    }
}

fn notes(tasks: Vec<Task>) -> Vec<String> {
    Broods::of(&Evidence::of(&host(tasks))).notes().collect()
}

/// sh starts one shell for each check, and that shell starts two commands.
#[test]
fn the_agent_is_named_and_not_what_it_starts() {
    let mut tasks = vec![agent()];
    for n in 0..100 {
        let at = 100 + 3 * n;
        tasks.extend([child(at, 7, "agent"), child(at + 1, at, "ls"), child(at + 2, at, "ps")]);
    }
    let want =
        "sh /usr/local/bin/agent (pid 7, agent.service): 30 children a second (ls, ps), 8 ms each, 0.15 CPU.";
    assert_eq!(notes(tasks.clone()), [want]);
    let rec = host(tasks);
    let broods = Broods::of(&Evidence::of(&rec));
    assert_eq!(broods.of_child(101).unwrap().together(), "children of sh /usr/local/bin/agent (ls, ps)");
    assert_eq!(broods.of_child(7), None);
}

#[test]
fn a_few_children_and_long_lived_ones_are_nobodys_habit() {
    let few = (0..30).map(|n| child(100 + n, 7, "ls"));
    assert_eq!(notes([agent()].into_iter().chain(few).collect()), [""; 0]);
    let cheap = (0..90).map(|n| Task { exec_ns: 1_000, ..child(100 + n, 7, "ls") });
    assert_eq!(notes([agent()].into_iter().chain(cheap).collect()), [""; 0]);
    let long = (0..300).map(|n| Task { lived_ns: 5_000_000_000, ..child(100 + n, 7, "gzip") });
    assert_eq!(notes([agent()].into_iter().chain(long).collect()), [""; 0]);
}

#[test]
fn folded_children_and_those_of_an_unknown_parent_count_too() {
    let folded =
        Task { folded: 999, tgid: 0, ppid: 7, creator: 0, lived_ns: 8_000_000_000, ..child(100, 0, "ls") };
    assert!(notes(vec![agent(), folded.clone()])[0].contains("100 children a second (ls)"));
    let gone = Task { ppid: 99, parent: "cron".into(), ..folded };
    assert_eq!(notes(vec![gone.clone()]), ["cron: 100 children a second (ls), 8 ms each, 0.00 CPU."]);
    let orphans = Task { ppid: 1, parent: "systemd".into(), ..gone };
    assert_eq!(notes(vec![orphans]), [""; 0], "the parent of these children is not known");
}

#[test]
fn parents_in_a_circle_end() {
    let tasks = (0..300).map(|n| child(100 + n, 100 + (n + 1) % 300, "x")).collect();
    assert_eq!(notes(tasks), [""; 0]);
    let garbage = Task { lived_ns: u64::MAX, exec_ns: u64::MAX, folded: u64::MAX, ..child(5, 7, "x") };
    drop(notes(vec![agent(), garbage.clone(), garbage]));
}

/// Two agents that had one pid, one after the other, and a child whose pid was reused.
#[test]
fn reused_pid_does_not_merge_two_processes() {
    let first = Task { begun_ns: 10, ended: true, lived_ns: 4_000_000_000, ..agent() };
    let other = Task { comm: "other".into(), cmdline: Some("/bin/sh /opt/other".into()), ..agent() };
    let second = Task { begun_ns: 5_000, ..other };
    let begun = |begun_ns, task: Task| Task { begun_ns, ..task };
    let mut tasks = vec![first, second];
    tasks.extend((0..100).map(|n| begun(100 + u64::from(n), child(100 + n, 7, "ls"))));
    tasks.extend((0..200).map(|n| begun(6_000 + u64::from(n), child(300 + n, 7, "ps"))));
    tasks.push(Task { lived_ns: 9_000_000_000, ended: false, ..begun(9_000, child(100, 1, "sshd")) });
    let rec = host(tasks);
    let broods = Broods::of(&Evidence::of(&rec));
    let told: Vec<String> = broods.notes().collect();
    let second = "sh /opt/other (pid 7, agent.service): 20 children a second (ps), 8 ms each, 0.10 CPU.";
    let first =
        "sh /usr/local/bin/agent (pid 7, agent.service): 10 children a second (ls), 8 ms each, 0.05 CPU.";
    assert_eq!(told, [second, first]);
    let [child, stranger] =
        [(100, 100), (100, 9_000)].map(|(pid, begun_ns)| Task { pid, begun_ns, ..agent() });
    assert!(broods.of_task(&child).is_some_and(|brood| brood.name == "sh /usr/local/bin/agent"));
    assert_eq!(broods.of_task(&stranger), None);
    assert_eq!(broods.of_child(100), None, "the pid alone does not say which process is meant");
    assert!(broods.of_child(101).is_some());
}
