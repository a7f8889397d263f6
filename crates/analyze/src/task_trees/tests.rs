//! Task trees of made-up hosts: threads, sessions and groups.

use super::*;
use crate::evidence::fixture::Fixture;

fn task(pid: u32, ppid: u32, exec_ns: u64) -> Task {
    Task { pid, tgid: pid, ppid, exec_ns, comm: format!("p{pid}"), ..Task::default() }
}

fn trees(tasks: Vec<Task>, groups: Vec<Cgroup>) -> Vec<(String, Option<u32>, usize)> {
    let host = Fixture::second().with(|tables| {
        tables.tasks = Some(tasks);
        tables.cgroups = Some(groups);
    });
    let all = TaskTrees::of(&host.ev()).all;
    all.into_iter()
        .map(|tree| (tree.subject(&host.ev()).name, tree.first(&host.ev()), tree.tasks.len()))
        .collect()
}

#[test]
fn without_groups_a_tree_is_what_init_has_started_and_is_called_by_who_leads_it() {
    let tasks = vec![
        task(1, 0, 1),
        task(10, 1, 2),
        task(11, 10, 3),
        task(12, 11, 500),
        task(13, 11, 500),
        task(20, 1, 9),
    ];
    let told = trees(tasks, Vec::new());
    assert_eq!(told.len(), 3);
    assert!(
        told.contains(&("p11".into(), Some(11), 4)),
        "make, not the shell, nor one of the compilers: {told:?}"
    );
    assert!(told.contains(&("p20".into(), Some(20), 1)), "{told:?}");
}

#[test]
fn a_service_is_one_tree_where_its_controller_stops_above_it() {
    let group = |id: u64, path: &str| Cgroup { id, path: path.into(), ..Cgroup::default() };
    let groups = vec![
        group(5, "/system.slice"),
        group(6, "/system.slice/a.service"),
        group(7, "/system.slice/b.service"),
    ];
    let of = |pid, unified_cgroup| Task { cpu_cgroup: 5, unified_cgroup, ..task(pid, 1, 5) };
    let told = trees(vec![of(2, 6), of(3, 7)], groups);
    let names: BTreeSet<&str> = told.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["a.service", "b.service"]));
}

#[test]
fn ended_and_folded_tasks_join_the_tree_of_their_parent() {
    let of = |pid, ppid, autogroup| Task { autogroup, ..task(pid, ppid, 5) };
    let ended = Task { ended: true, ..of(12, 10, 0) };
    let folded = Task { tgid: 0, folded: 30, ..of(13, 10, 0) };
    let told = trees(vec![of(10, 1, 7), of(11, 10, 7), ended, folded, of(20, 1, 8)], Vec::new());
    let sizes: BTreeSet<usize> = told.iter().map(|(.., size)| *size).collect();
    assert_eq!(sizes, BTreeSet::from([4, 1]), "{told:?}");
    assert!(told.iter().all(|(_, first, _)| *first != Some(0)));
}

#[test]
fn sessions_of_one_group_are_trees_of_their_own_unless_a_program_gives_each_of_its_processes_one() {
    let group = |id: u64, path: &str| Cgroup { id, path: path.into(), ..Cgroup::default() };
    let of = |pid: u32, ppid, session, comm: &str| Task {
        session,
        cpu_cgroup: 5,
        comm: comm.into(),
        ..task(pid, ppid, 5)
    };
    let tasks = vec![
        of(10, 1, 10, "sh"),
        of(20, 10, 20, "make"),
        of(21, 20, 20, "cc1"),
        Task { tgid: 0, folded: 7, ..of(22, 20, 0, "cc1") },
        Task { ended: true, ..of(23, 20, 0, "ld") },
        of(30, 10, 30, "postgres"),
        of(31, 30, 31, "postgres"),
        of(32, 30, 32, "postgres"),
        // Elsewhere there is one session, and so no part of it.
        Task { cpu_cgroup: 6, ..of(40, 10, 10, "b") },
    ];
    let told = trees(tasks, vec![group(5, "/a"), group(6, "/b")]);
    let firsts: BTreeSet<(Option<u32>, usize)> =
        told.iter().map(|(_, first, size)| (*first, *size)).collect();
    let expected = [(Some(10), 1), (Some(20), 4), (Some(30), 3), (Some(40), 1)];
    assert_eq!(firsts, BTreeSet::from(expected), "{told:?}");
}

/// A script that starts two others with setsid(1): if one waits for a disk behind the other, it is the other's victim.
#[test]
fn scripts_that_a_script_starts_in_sessions_of_their_own_are_trees_of_their_own() {
    let group = || vec![Cgroup { id: 5, path: "/a".into(), ..Cgroup::default() }];
    let of = |pid: u32, ppid, comm: &str, line: &str| Task {
        session: pid,
        cpu_cgroup: 5,
        comm: comm.into(),
        cmdline: Some(line.into()),
        ..task(pid, ppid, 5)
    };
    let count = |comm: &str, lines: [&str; 3]| {
        let [top, one, other] = lines;
        let tasks = vec![of(10, 1, comm, top), of(20, 10, comm, one), of(30, 10, comm, other)];
        let host = Fixture::second().with(|tables| {
            tables.tasks = Some(tasks);
            tables.cgroups = Some(group());
        });
        let all = TaskTrees::by_name(&host.ev()).all;
        let at = |place: usize| all.iter().find(|tree| tree.tasks.contains(&place)).unwrap();
        (all.len(), at(1).is_kin(at(2)))
    };
    let scripts = |program: &str| ["run", "a", "b"].map(|name| format!("{program}\u{1f}/srv/{name}"));
    let shells = scripts("bash");
    assert_eq!(count("bash", shells.each_ref().map(String::as_str)), (3, false));
    let pythons = scripts("python3");
    assert_eq!(count("python3", pythons.each_ref().map(String::as_str)), (3, false));
    assert_eq!(count("python3", ["python3\u{1f}/srv/pool"; 3]), (1, false), "one that forks");
    assert_eq!(count("postgres", ["postgres: writer", "postgres: main", "postgres: a b"]), (1, false));
}

#[test]
fn service_processes_form_one_tree_and_jobs_of_one_name_merge() {
    let group = |id: u64, path: &str| Cgroup { id, path: path.into(), ..Cgroup::default() };
    let of = |pid: u32, ppid, group| Task { session: pid, unified_cgroup: group, ..task(pid, ppid, 5) };
    let groups = || vec![group(5, "/system.slice/db.service"), group(6, "/user.slice/session-3.scope")];
    let processes = vec![of(10, 1, 5), of(11, 1, 5), of(20, 1, 6), of(21, 1, 6), of(22, 21, 6)];
    let told = trees(processes, groups());
    let sizes: Vec<usize> = told.iter().map(|(.., size)| *size).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 5);
    assert_eq!(
        told.iter().filter(|(.., size)| *size == 2).count(),
        1,
        "the processes of a database: {told:?}"
    );
    assert_eq!(told.len(), 4, "each job of a login is its own: {told:?}");
    let named = |pid: u32| Task { comm: "dd".into(), ..of(pid, 1, 6) };
    let host = Fixture::second().with(|tables| {
        tables.tasks = Some(vec![named(30), named(31), of(32, 31, 6)]);
        tables.cgroups = Some(groups());
    });
    let all = TaskTrees::by_name(&host.ev()).all;
    assert_eq!(all.len(), 2);
    let (dd, other) = if all[0].alike == 1 { (&all[0], &all[1]) } else { (&all[1], &all[0]) };
    assert_eq!((dd.alike, dd.keeps(), other.alike), (1, "keep", 0));
    assert!(dd.is_kin(other) && other.is_kin(dd) && !dd.is_kin(dd));
}

#[test]
fn copies_of_one_script_are_one_whichever_command_leads_them_and_shells_to_type_in_are_not() {
    let group = Cgroup { id: 6, path: "/jobs".into(), ..Cgroup::default() };
    let of = |pid: u32, ppid, session, comm: &str, exec_ns| Task {
        session,
        unified_cgroup: 6,
        comm: comm.into(),
        ..task(pid, ppid, exec_ns)
    };
    let shell = |pid: u32, line: &str| Task { cmdline: Some(line.into()), ..of(pid, 1, pid, "sh", 1) };
    let count = |line: &str, last: &str| {
        let tasks = vec![
            shell(10, line),
            of(11, 10, 10, "gzip", 900),
            shell(20, line),
            of(21, 20, 20, "gzip", 400),
            of(22, 20, 20, "head", 300),
            shell(30, line),
            of(31, 30, 30, last, 800),
        ];
        let host = Fixture::second().with(|tables| {
            tables.tasks = Some(tasks);
            tables.cgroups = Some(vec![group.clone()]);
        });
        TaskTrees::by_name(&host.ev()).all.len()
    };
    let script = "sh\u{1f}-c\u{1f}while :; do head -c 9 f | gzip; done";
    assert_eq!(count(script, "head"), 1);
    assert_eq!(count(script, "python3"), 2, "one script, and another's work");
    assert_eq!(count("sh", "head"), 3);
    assert_eq!(count("sh\u{1f}-i", "head"), 3);
}

/// Shells that ran in the window have command lines, and their copies that waited have none.
#[test]
fn a_copy_whose_words_are_not_known_is_one_by_its_name_in_the_kernel() {
    let group = Cgroup { id: 6, path: "/jobs".into(), ..Cgroup::default() };
    let count = |words: [Option<&str>; 3]| {
        let shell = |(pid, words): (u32, Option<&str>)| Task {
            session: pid,
            unified_cgroup: 6,
            comm: "sh".into(),
            cmdline: words.map(|words| format!("sh\u{1f}{words}")),
            ..task(pid, 1, 500)
        };
        let host = Fixture::second().with(|tables| {
            tables.tasks = Some([10, 20, 30].into_iter().zip(words).map(shell).collect());
            tables.cgroups = Some(vec![group.clone()]);
        });
        TaskTrees::by_name(&host.ev()).all.len()
    };
    let script = "-c\u{1f}while :; do head -c 9 f | gzip; done";
    assert_eq!(count([Some(script); 3]), 1);
    assert_eq!(count([Some(script), None, Some(script)]), 1);
    assert_eq!(count([Some(script), None, None]), 1);
    let of_two = count([Some("/srv/backup.sh"), None, Some("/srv/check.sh")]);
    assert_eq!(of_two, 3, "which script it is a copy of is not known");
}

/// The shell at a terminal has started both, and sleeps: it is no copy of the shell that runs a script.
#[test]
fn a_shell_that_sleeps_is_no_copy_of_a_script_that_it_has_started() {
    let of = |pid: u32, ppid, comm: &str, exec_ns, line: Option<&str>| Task {
        session: pid,
        unified_cgroup: 6,
        comm: comm.into(),
        cmdline: line.map(str::to_owned),
        ..task(pid, ppid, exec_ns)
    };
    let writes = "bash\u{1f}-c\u{1f}while :; do dd; done";
    let host = Fixture::second().with(|tables| {
        let tasks =
            [of(10, 1, "bash", 0, None), of(20, 10, "bash", 500, Some(writes)), of(30, 10, "db", 9, None)];
        tables.tasks = Some(tasks.to_vec());
        tables.cgroups = Some(vec![Cgroup { id: 6, path: "/jobs".into(), ..Cgroup::default() }]);
    });
    let all = TaskTrees::by_name(&host.ev()).all;
    let at = |place: usize| all.iter().find(|tree| tree.tasks.contains(&place)).unwrap();
    assert_eq!(all.len(), 3);
    assert!(!at(1).is_kin(at(2)) && at(0).is_kin(at(2)));
}

/// A manager of cgroups has created those below its own.
#[test]
fn a_group_and_one_below_it_are_kin() {
    let group = |id: u64, path: &str| Cgroup { id, path: path.into(), ..Cgroup::default() };
    let of = |pid: u32, group| Task { unified_cgroup: group, ..task(pid, 1, 5) };
    let host = Fixture::second().with(|tables| {
        tables.tasks = Some(vec![of(10, 5), of(11, 6), of(12, 7), of(13, 8)]);
        let container = format!("/judge/docker-{}.scope", "0123456789abcdef".repeat(4));
        let groups =
            [group(5, "/judge"), group(6, "/judge/box/3"), group(7, "/judges"), group(8, &container)];
        tables.cgroups = Some(groups.to_vec());
    });
    let all = TaskTrees::of(&host.ev()).all;
    let at = |place: usize| all.iter().find(|tree| tree.tasks.contains(&place)).unwrap();
    assert!(at(0).is_kin(at(1)) && at(1).is_kin(at(0)));
    assert!(!at(0).is_kin(at(2)) && !at(1).is_kin(at(2)) && !at(0).is_kin(at(0)));
    assert!(!at(0).is_kin(at(3)) && !at(3).is_kin(at(0)), "a container is independent");
}

#[test]
fn a_group_in_which_nobody_knows_whose_most_was_is_one() {
    let of = |pid: u32, ppid, session| Task { session, unified_cgroup: 6, ..task(pid, ppid, 5) };
    let group = Cgroup { id: 6, path: "/jobs".into(), ..Cgroup::default() };
    let lost = Task { tgid: 0, folded: 9, exec_ns: 20_000_000, ..of(40, 0, 0) };
    let told = trees(vec![of(20, 1, 20), of(21, 1, 21), lost], vec![group]);
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn a_container_is_one_tree_whatever_groups_it_has_within_and_a_loop_of_parents_ends() {
    let id = "0123456789abcdef".repeat(4);
    let group = |id: u64, path: String| Cgroup { id, path, ..Cgroup::default() };
    let groups = vec![
        group(5, format!("/docker/{id}/a")),
        group(6, format!("/docker/{id}/b/c")),
        group(7, "/x".into()),
    ];
    let of = |pid, cpu_cgroup| Task { cpu_cgroup, ..task(pid, 1, 5) };
    let told = trees(vec![of(2, 5), of(3, 6), of(4, 7), task(30, 31, 1), task(31, 30, 1)], groups);
    let sizes: BTreeSet<usize> = told.iter().map(|(.., size)| *size).collect();
    assert!(
        told.iter().any(|(name, _, size)| name.contains("docker 0123456789ab") && *size == 2),
        "{told:?}"
    );
    assert_eq!(sizes, BTreeSet::from([1, 2]), "{told:?}");
}
