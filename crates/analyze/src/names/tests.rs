//! Names from paths alone, and from what owners report; processes together.

use super::*;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn named(path: &str) -> (String, Option<String>, Option<String>) {
    let subject = Names::default().subject(path);
    assert_eq!(subject.id, path, "the id stays the path");
    (subject.name, subject.unit, subject.container)
}

fn unit(path: &str, want: &str) {
    assert_eq!(named(path), (want.to_owned(), Some(want.to_owned()), None), "{path}");
}

fn container(path: &str, want: &str) {
    assert_eq!(named(path), (want.to_owned(), None, Some(want.to_owned())), "{path}");
}

#[test]
fn units_of_the_system_and_of_users() {
    unit("/system.slice/nginx.service", "nginx.service");
    unit("/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service");
    unit("/user.slice/user-1000.slice/session-5.scope", "session-5.scope");
    unit(
        "/user.slice/user-1000.slice/user@1000.service/app.slice/app-firefox.service",
        "app-firefox.service",
    );
    unit("/user.slice/user-1000.slice", "user-1000.slice");
    unit(r"/system.slice/dev-disk-by\x2dlabel-SWAP.swap", "dev-disk-by-label-SWAP.swap");
    assert_eq!(named("/system.slice/ssh.service/inner").0, "ssh.service/inner");
}

#[test]
fn containers_of_every_engine() {
    container(&format!("/system.slice/docker-{ID}.scope"), "docker 0123456789ab");
    container(&format!("/docker/{ID}"), "docker 0123456789ab");
    container(&format!("/machine.slice/libpod-{ID}.scope"), "podman 0123456789ab");
    container(&format!("/system.slice/crio-{ID}.scope"), "cri-o 0123456789ab");
    container(r"/machine.slice/machine-qemu\x2d1\x2dweb.scope", "machine qemu-1-web");
    container("/lxc/web1", "lxc web1");
    container("/lxc.payload.web1", "lxc web1");
    container(&format!("/ecs/3c1f/{ID}"), "0123456789ab");
    assert_eq!(named(&format!("/docker/{ID}/init")).0, "docker 0123456789ab/init");
    let nested = format!("/system.slice/docker-{ID}.scope/system.slice/nginx.service");
    assert_eq!(named(&nested).0, "nginx.service in docker 0123456789ab");
    assert_eq!(named(&nested).1.as_deref(), Some("nginx.service"), "a container that runs systemd");
}

#[test]
fn pods_of_both_drivers() {
    let uid = "11111111_2222_3333_4444_555555555555";
    let pod = "11111111-2222-3333-4444-555555555555";
    let systemd = format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice");
    container(&systemd, &format!("pod {pod}"));
    let full = format!("pod {pod}, container containerd 0123456789ab");
    container(&format!("{systemd}/cri-containerd-{ID}.scope"), &full);
    let cgroupfs = format!("/kubepods/burstable/pod{pod}/{ID}");
    container(&cgroupfs, &format!("pod {pod}, container 0123456789ab"));
}

#[test]
fn other_paths_are_their_own_names() {
    for path in ["/web", "/jobs/a b", "/podcast", "/docker/not-an-id", "/a\nb\x1b[31m"] {
        assert_eq!(named(path), (path.to_owned(), None, None));
    }
    assert_eq!(named("/").0, "the root cgroup");
}

fn task(pid: u32, tgid: u32, comm: &str) -> Task {
    Task { pid, tgid, comm: comm.into(), ..Task::default() }
}

/// One thread of 19 is a process of its own; the others are a pool, which has nearly all.
#[test]
fn processes_are_named_by_their_shares() {
    let mut tasks = vec![task(5, 5, "vilamogu79")];
    tasks.extend((0..18).map(|n| task(7 + n, 7, if n == 0 { "pool" } else { "worker" })));
    let of = |part: fn(usize) -> u64| processes(&tasks, (0..tasks.len()).map(|at| (at, part(at)))).unwrap();
    let all = of(|_| 10);
    assert_eq!((all.id.as_str(), all.name.as_str()), ("7", "pool (95 %) and vilamogu79 (5 %)"));
    assert_eq!(processes(&tasks, [(3, 1), (2, 1)]).unwrap().name, "pool", "one process needs no share");
    assert_eq!(of(|at| if at == 0 { 90 } else { 1 }).id, "5");
    assert_eq!(processes(&tasks, [(99, 1)]), None);
}

#[test]
fn of_many_processes_the_largest_are_named_and_the_others_counted() {
    let tasks: Vec<Task> = (1..=7).map(|n| task(n, n, &format!("p{n}"))).collect();
    let parts = |n: usize| processes(&tasks, (0..n).map(|at| (at, at as u64 + 1))).unwrap().name;
    assert_eq!(parts(3), "p3 (50 %), p2 (33 %) and p1 (17 %)");
    assert_eq!(parts(4), "p4 (40 %), p3 (30 %), p2 (20 %) and 1 other process");
    assert!(parts(7).ends_with("and 4 other processes"), "{}", parts(7));
    let nothing = processes(&tasks, [(0, 0), (1, 0)]).unwrap();
    assert_eq!((nothing.id.as_str(), nothing.name.as_str()), ("1", "p1 and p2"));
    // The leader has ended: its busiest thread's name is all there is.
    assert_eq!(processes(&[task(9, 8, "a"), task(10, 8, "b")], [(0, 1), (1, 2)]).unwrap().name, "b");
}

/// What a report calls `path`, where these groups have names.
fn called(groups: &[Group], path: &str) -> Subject {
    let mut rec = Recording::default();
    rec.tables.groups = Some(groups.to_vec());
    let subject = Names::of(&rec).subject(path);
    assert_eq!(subject.id, path, "the id stays the path");
    subject
}

fn text(words: &str) -> Option<String> {
    Some(words.to_owned())
}

#[test]
fn owner_given_names_come_before_names_from_paths() {
    let uid = "11111111-2222-3333-4444-555555555555";
    let pod = format!("/kubepods/burstable/pod{uid}");
    let path = format!("{pod}/{ID}");
    let container = Group {
        path: path.clone(),
        container_id: text(ID),
        container: text("nginx"),
        image: text("nginx:1.27"),
        pod: text("web-0"),
        namespace: text("shop"),
        pod_uid: text(uid),
        ..Group::default()
    };
    let groups = [container];
    let subject = called(&groups, &path);
    assert_eq!(subject.name, "pod shop/web-0, container nginx");
    assert_eq!((subject.pod, subject.image), (text("shop/web-0"), text("nginx:1.27")));
    // Neither the pod itself nor a group that is created below it later has a row.
    assert_eq!(called(&groups, &pod).name, "pod shop/web-0");
    assert_eq!(called(&groups, &format!("{path}/init")).name, "pod shop/web-0, container nginx/init");
    let elsewhere = format!("/system.slice/docker-{ID}.scope");
    assert_eq!(called(&groups, &elsewhere).name, "pod shop/web-0, container nginx");
    let other = path.replace("0123", "3210");
    assert_eq!(
        called(&groups, &other).name,
        format!("pod {uid}, container 3210456789ab"),
        "another's name is none"
    );
}

#[test]
fn sessions_users_machines_and_units_by_their_files() {
    let slice = "/user.slice/user-1000.slice";
    let (session, app) =
        (format!("{slice}/session-5.scope"), format!("{slice}/user@1000.service/app.slice/x.service"));
    let user = |path: &str| Group { path: path.into(), user: text("alice"), ..Group::default() };
    let mut login =
        Group { session: text("5"), tty: text("pts/0"), remote_host: text("10.0.0.7"), ..user(&session) };
    assert_eq!(called(&[login.clone()], &session).name, "session 5 of alice on pts/0");
    assert_eq!(called(&[login.clone()], &session).unit, text("session-5.scope"));
    login.tty = None;
    assert_eq!(called(&[login], &session).name, "session 5 of alice from 10.0.0.7");
    assert_eq!(called(&[user(slice)], slice).name, "user alice");
    assert_eq!(called(&[user(&app)], &app).name, "x.service of alice");
    let described =
        |path: &str| Group { path: path.into(), description: text("A web server"), ..Group::default() };
    let web = called(&[described("/system.slice/web.service")], "/system.slice/web.service");
    assert_eq!((web.name.as_str(), web.description.as_deref()), ("web.service", Some("A web server")));
    let path = r"/machine.slice/machine-qemu\x2d1\x2dweb.scope";
    let machine = Group { path: path.into(), machine: text("web"), ..Group::default() };
    assert_eq!(called(&[machine], path).name, "machine web");
}

#[test]
fn a_monitor_is_not_its_container() {
    let path = format!("/machine.slice/libpod-conmon-{ID}.scope");
    let named =
        Group { path: path.clone(), container_id: text(ID), container: text("db"), ..Group::default() };
    assert_eq!(called(&[named], &path).name, "monitor of container db");
    assert_eq!(called(&[], &path).name, "podman monitor 0123456789ab");
}

#[test]
fn of_a_group_that_nobody_has_named_the_first_command_is_told() {
    let mut rec = Recording::default();
    rec.tables.cgroups = Some(vec![Cgroup { id: 3, path: "/jobs/17".into(), ..Cgroup::default() }]);
    rec.tables.tasks = Some(vec![Task { begun_ns: 1, unified_cgroup: 3, ..task(4711, 4711, "make") }]);
    assert_eq!(Names::of(&rec).subject("/jobs/17").name, "the cgroup of make (pid 4711): /jobs/17");
    assert_eq!(Names::of(&rec).subject("/jobs/18").name, "/jobs/18");
}
