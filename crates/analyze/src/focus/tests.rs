//! Findings of a subject, and what a selector means.

use super::*;
use whyslow_model::{Culprit, Missing};

const S: u64 = 1_000_000_000;

fn cgroup(id: u64, parent: u64, path: &str) -> table::Cgroup {
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    let files = Some(format!("/sys/fs/cgroup/cpu{path}"));
    table::Cgroup { id, parent, name, path: path.to_owned(), files, ..Default::default() }
}

fn task(pid: u32, tgid: u32, cpu_cgroup: u64) -> table::Task {
    let times = table::Task { exec_ns: 2 * S, run_delay_ns: 5 * S, sleep_ns: 2 * S, ..Default::default() };
    table::Task { pid, tgid, cpu_cgroup, comm: format!("t{pid}"), lived_ns: 10 * S, ..times }
}

/// Process 7 (threads 7, 8) in /a/web.service, process 9 in /b.
fn host() -> Recording {
    let mut rec = Recording::default();
    rec.meta.window_ns = 10 * S;
    rec.tables.cgroups =
        Some(vec![cgroup(1, 0, "/"), cgroup(2, 1, "/a"), cgroup(3, 2, "/a/web.service"), cgroup(4, 1, "/b")]);
    rec.tables.tasks = Some(vec![task(8, 7, 3), task(7, 7, 3), task(9, 9, 4)]);
    rec
}

fn document(rec: &Recording) -> Document {
    let lost = |kind, id: &str, s| Finding::cause("r", Subject::new(kind, id, id), Duration::from_secs(s));
    let mut doc = crate::examine(rec);
    doc.findings = vec![
        lost(SubjectKind::Cgroup, "/b", 9),
        lost(SubjectKind::Cgroup, "/a", 5),
        lost(SubjectKind::Task, "8", 3),
        Finding::risk("x", Subject::host()),
    ];
    doc
}

fn order(doc: &Document) -> Vec<&str> {
    doc.findings.iter().map(|f| f.victim.id.as_str()).collect()
}

#[test]
fn findings_of_the_subject_its_tasks_the_cgroups_above_and_the_host_are_told() {
    let rec = host();
    for on in [
        Focus::Pid(7),
        Focus::Unit("web".into()),
        Focus::Unit("web.service".into()),
        Focus::Cgroup("a/web.service/".into()),
        Focus::Cgroup("/sys/fs/cgroup/cpu/a/web.service".into()),
        Focus::Cgroup("/a".into()),
    ] {
        let mut doc = document(&rec);
        focus(&rec, &mut doc, &on).unwrap();
        assert_eq!(order(&doc), ["/a", "8", "host"], "{on:?}");
        assert!(doc.account.notes[0].contains("One finding about others"), "{:?}", doc.account.notes);
    }
}

#[test]
fn a_plain_sentence_says_where_its_time_went() {
    let rec = host();
    let mut doc = document(&rec);
    focus(&rec, &mut doc, &Focus::Pid(7)).unwrap();
    let note = &doc.account.notes[0];
    let want = "t7 (pid 7) (2 tasks, 20.0 s of their time): running 20 %, ready but not running 50 %, \
                asleep 20 %, unexplained 10 %.";
    assert!(note.starts_with(want), "{note}");
}

#[test]
fn a_thread_can_be_asked_about_alone() {
    let rec = host();
    let mut doc = document(&rec);
    focus(&rec, &mut doc, &Focus::Pid(8)).unwrap();
    assert!(doc.account.notes[0].starts_with("t8 (pid 8) (1 task, 10.0 s"), "{:?}", doc.account.notes);
}

#[test]
fn unknown_subject_is_a_cannot_find_error() {
    let rec = host();
    for on in [Focus::Pid(99), Focus::Cgroup("/c".into()), Focus::Unit("c".into())] {
        let error = focus(&rec, &mut document(&rec), &on).unwrap_err();
        assert!(error.to_string().starts_with("cannot find"), "{error}");
    }
}

#[test]
fn says_so_when_the_tasks_were_not_recorded() {
    let mut rec = host();
    rec.tables.tasks = None;
    rec.missing.push(Missing::not_recorded("task list").into());
    let mut doc = document(&rec);
    focus(&rec, &mut doc, &Focus::Unit("web".into())).unwrap();
    assert_eq!(order(&doc), ["/a", "host"]);
    assert!(doc.account.notes[0].contains("cannot be said: task list was not recorded"));
}

#[test]
fn a_cgroup_that_is_its_own_parent_ends() {
    let mut rec = host();
    rec.tables.cgroups = Some(vec![cgroup(3, 3, "/a"), cgroup(4, 5, "/b"), cgroup(5, 4, "/c")]);
    let mut doc = document(&rec);
    focus(&rec, &mut doc, &Focus::Cgroup("/a".into())).unwrap();
    assert_eq!(order(&doc), ["/a", "8", "host"]);
    let mut doc = document(&rec);
    focus(&rec, &mut doc, &Focus::Pid(9)).unwrap();
    assert_eq!(order(&doc)[0], "/b");
}

#[test]
fn its_children_are_covered_and_are_who_pays_or_makes_others_pay() {
    let mut rec = host();
    rec.tables.tasks.as_mut().unwrap()[2].ppid = 7;
    let told = |finding: Finding| {
        let mut doc = document(&rec);
        doc.findings = vec![finding];
        focus(&rec, &mut doc, &Focus::Pid(7)).unwrap();
        doc.findings.iter().any(|finding| finding.kind == Kind::Cause)
    };
    let lost =
        |id: &str| Finding::cause("r", Subject::new(SubjectKind::Task, id, id), Duration::from_secs(1));
    assert!(told(lost("9")), "a child");
    assert!(!told(lost("12")), "another process");
    assert!(told(Finding { paid_by: vec![9], ..lost("12") }), "one of several");
    assert!(told(lost("12").by(Culprit::new(SubjectKind::Task, "9", "t9"))), "it makes others pay");
    assert!(!told(lost("12").by(Culprit::new(SubjectKind::Task, "13", "t13"))));
}

#[test]
fn processes_are_meant_by_their_name() {
    let rec = host();
    let mut doc = document(&rec);
    focus(&rec, &mut doc, &Focus::Name("t9".into())).unwrap();
    assert_eq!(order(&doc), ["/b", "host"]);
    assert_eq!(doc.about.unwrap().name, "t9");
    let nobody = focus(&rec, &mut document(&rec), &Focus::Name("t8".into())).unwrap_err();
    assert!(nobody.to_string().contains("named t8"), "a thread is no process: {nobody}");
    assert_eq!(shortened("a-name-of-twenty-b"), "a-name-of-twent");
    assert_eq!(shortened("fifteen-bytes-\u{e9}"), "fifteen-bytes-");
}

/// How the subject spent its time, and the note where no rule explains it.
#[test]
fn an_idle_one_is_said_to_be_idle_and_one_that_is_held_without_a_reason_is_said_to_be() {
    let told = |of: fn(&mut table::Task)| {
        let mut rec = host();
        rec.tables.tasks.iter_mut().flatten().for_each(of);
        let mut doc = document(&rec);
        doc.findings.clear();
        focus(&rec, &mut doc, &Focus::Pid(7)).unwrap();
        let kinds: Vec<Kind> = doc.findings.iter().map(|finding| finding.kind).collect();
        (doc.about.unwrap().idle, kinds)
    };
    assert_eq!(
        told(|task| (task.sleep_ns, task.run_delay_ns, task.exec_ns) = (10 * S, 0, 0)),
        (true, vec![])
    );
    assert_eq!(
        told(|task| (task.sleep_ns, task.run_delay_ns) = (8 * S, 0)),
        (false, vec![]),
        "it works now and then"
    );
    let held = told(|task| (task.blocked_ns, task.run_delay_ns, task.sleep_ns) = (6 * S, 0, 2 * S));
    assert_eq!(held, (false, vec![Kind::CannotTell]));
}

#[test]
fn impossible_counters_are_not_a_panic() {
    let mut rec = host();
    for t in rec.tables.tasks.iter_mut().flatten() {
        (t.exec_ns, t.run_delay_ns, t.lived_ns) = (u64::MAX, u64::MAX, u64::MAX);
    }
    focus(&rec, &mut document(&rec), &Focus::Pid(7)).unwrap();
}

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const UID: &str = "11111111-2222-3333-4444-555555555555";

fn text(words: &str) -> Option<String> {
    Some(words.to_owned())
}

/// Pods shop/web-0 (task 21) and test/web-0 (task 22), each with a container nginx; unit web.service twice; alice has task 9.
fn cluster() -> Recording {
    let mut rec = host();
    let mut groups = Vec::new();
    let cgroups = rec.tables.cgroups.as_mut().unwrap();
    for (at, namespace) in [(0, "shop"), (1, "test")] {
        let uid = UID.replace('1', if at == 0 { "1" } else { "9" });
        let id = ID.replace("0123", if at == 0 { "0123" } else { "0456" });
        let pod = format!("/kubepods/pod{uid}");
        let path = format!("{pod}/{id}");
        cgroups.push(cgroup(20 + at, 1, &pod));
        cgroups.push(cgroup(30 + at, 20 + at, &path));
        groups.push(table::Group {
            path,
            container_id: Some(id),
            container: text("nginx"),
            pod: text("web-0"),
            namespace: text(namespace),
            pod_uid: Some(uid),
            ..Default::default()
        });
    }
    let tasks = rec.tables.tasks.as_mut().unwrap();
    tasks.extend([task(21, 21, 30), task(22, 22, 31)]);
    tasks.iter_mut().for_each(|task| task.uid = Some(if task.pid == 9 { 1000 } else { 0 }));
    rec.tables.groups = Some(groups);
    rec.tables.users = Some(vec![table::User { uid: 1000, name: "alice".into() }]);
    rec
}

fn note(rec: &Recording, on: &Focus) -> Result<String, String> {
    let mut doc = document(rec);
    focus(rec, &mut doc, on).map_err(|why| why.to_string())?;
    Ok(doc.account.notes[0].split(", 10.0 s").next().unwrap().to_owned())
}

#[test]
fn each_selector_finds_who_is_meant_alone() {
    let rec = cluster();
    let pod = Ok("pod shop/web-0 (1 task".to_owned());
    for name in ["shop/web-0", UID, "1111"] {
        assert_eq!(note(&rec, &Focus::Pod(name.into())), pod, "{name}");
    }
    for name in [ID, "0123", &ID[..12]] {
        let container = Ok("pod shop/web-0, container nginx (1 task".to_owned());
        assert_eq!(note(&rec, &Focus::Container(name.into())), container, "{name}");
    }
    for name in ["alice", "1000"] {
        assert_eq!(note(&rec, &Focus::User(name.into())), Ok("user alice (1 task".to_owned()), "{name}");
    }
    assert!(note(&rec, &Focus::User("0".into())).unwrap().starts_with("user 0 (4 tasks"));
}

#[test]
fn a_name_of_nobody_or_several_lists_who_there_is() {
    let mut rec = cluster();
    rec.tables.cgroups.as_mut().unwrap().push(cgroup(50, 1, "/b/web.service"));
    let both = "shop/web-0 (11111111), test/web-0 (99999999)";
    let say = |on: Focus| note(&rec, &on).unwrap_err();
    let way_out = "one alone is named by its namespace (`shop/web-0`) or its uid";
    assert_eq!(
        say(Focus::Pod("web-0".into())),
        format!("cannot tell which pod web-0 is meant: {both}; {way_out}")
    );
    for nobody in ["web-1", "11", "shop", ""] {
        let words = format!("cannot find pod {nobody} in the window; there are {both}");
        assert_eq!(say(Focus::Pod(nobody.into())), words);
    }
    let nginx = say(Focus::Container("nginx".into()));
    assert!(
        nginx.contains("nginx in pod shop/web-0 (0123456789ab), nginx in pod test/web-0 (0456456789ab)"),
        "{nginx}"
    );
    assert!(
        say(Focus::Container("db".into()))
            .starts_with("cannot find container db in the window; there are nginx")
    );
    let unit = say(Focus::Unit("web".into()));
    assert!(unit.contains("/a/web.service, /b/web.service; one alone is named by `--cgroup`"), "{unit}");
    assert!(say(Focus::Unit("db".into())).ends_with("there are /a/web.service, /b/web.service"));
    assert!(say(Focus::User("bob".into())).ends_with("there are 0, alice (1000)"));
    let none = note(&host(), &Focus::Pod("x".into())).unwrap_err();
    assert_eq!(none, "cannot find pod x in the window; none was seen");
}

#[test]
fn of_many_the_first_ten_are_listed_those_alike_before() {
    let mut rec = host();
    let units = (0..40).map(|at| cgroup(100 + at, 1, &format!("/system.slice/u{at}.service")));
    rec.tables.cgroups.as_mut().unwrap().extend(units);
    let said = note(&rec, &Focus::Unit("u7.ser".into())).unwrap_err();
    assert!(said.contains("there are /system.slice/u7.service, /a/web.service, "), "{said}");
    assert!(said.ends_with(" and 31 more"), "{said}");
}

#[test]
fn one_unit_in_two_hierarchies_is_one() {
    let mut rec = host();
    rec.tables.cgroups.as_mut().unwrap().push(cgroup(1 << 56 | 3, 0, "/a/web.service"));
    assert!(note(&rec, &Focus::Unit("web".into())).is_ok());
}

/// Its CPU time and its wait for a CPU are read one after the other.
#[test]
fn the_parts_of_its_time_are_no_more_than_all_of_it() {
    let mut rec = host();
    for task in rec.tables.tasks.iter_mut().flatten() {
        (task.exec_ns, task.run_delay_ns, task.sleep_ns) = (3 * S, 73 * S / 10, 0);
    }
    let mut doc = document(&rec);
    focus(&rec, &mut doc, &Focus::Pid(9)).unwrap();
    let told = &doc.account.notes[0];
    assert!(
        told.contains("(1 task, 10.0 s of their time): running 29 %, ready but not running 71 %."),
        "{told}"
    );
}
