use proptest::prelude::*;
use whyslow_model::table::Disk;

use super::*;

fn process(pid: u32, comm: &str, cmdline: &str) -> Task {
    Task { pid, tgid: pid, comm: comm.into(), cmdline: Some(cmdline.into()), ..Task::default() }
}

fn name(comm: &str, cmdline: &str) -> String {
    of_row(&process(7, comm, cmdline))
}

#[test]
fn interpreters_are_called_by_their_scripts() {
    for (comm, line, want) in [
        ("python3", "python3 /srv/report.py --day 3", "python3 /srv/report.py"),
        ("report.py", "/usr/bin/python3.12 -W ignore -u /srv/report.py", "python3.12 /srv/report.py"),
        ("python3", "/usr/bin/python3 -Bm http.server 80", "python3 -m http.server"),
        ("python3", "python3 -c import time; time.sleep(1)", "python3 -c"),
        ("sh", "/bin/sh /usr/local/bin/agent", "sh /usr/local/bin/agent"),
        ("agent", "/bin/sh /usr/local/bin/agent", "sh /usr/local/bin/agent"),
        ("bash", "bash -e -o pipefail ./build all", "bash ./build"),
        ("sh", "sh -ec exec sleep 3", "sh -c"),
        ("bash", "-bash", "bash"),
        ("bash", "bash -s", "bash"),
        ("bash", "bash -s -- -y", "bash"),
        ("sh", "sh -es a b", "sh"),
        ("sh", "sh -s -c run", "sh -c"),
        ("make", "make -s a", "make"),
        ("perl", "perl -w -I /usr/lib/x -Mstrict /opt/poll.pl", "perl /opt/poll.pl"),
        ("perl", "perl -ne print", "perl -e"),
        ("ruby", "ruby -rbundler/setup -I lib bin/app", "ruby bin/app"),
        ("MainThread", "node --require ./x.js --max-old-space-size=99 /srv/app.js", "node /srv/app.js"),
        ("php", "php -d memory_limit=1 -f /srv/cron.php", "php /srv/cron.php"),
        ("java", "java -Xmx1g -cp a.jar:b.jar -Dx=y com.x.Main z", "java com.x.Main"),
        ("java", "/usr/lib/jvm/bin/java @opts -jar /opt/app.jar", "java -jar /opt/app.jar"),
        ("python3", "python3 -- /srv/-x", "python3 /srv/-x"),
        // A name that was set later counts, a part of a path does not.
        ("celeryd", "python3 /srv/celery worker", "celeryd"),
        ("java", "java -cp ...", "java"),
        ("systemd", "/sbin/init splash", "systemd"),
        ("nginx", "nginx -g daemon off;", "nginx"),
    ] {
        assert_eq!(name(comm, line), want, "{line}");
    }
}

#[test]
fn servers_are_called_as_they_call_themselves() {
    for (comm, line) in [
        ("postgres", "postgres: app shop 10.0.0.7(41200) UPDATE waiting"),
        ("nginx", "nginx: worker process"),
        ("celery", "[celeryd: celery@host:MainProcess] -active-"),
        ("ruby", "puma 6.4.2 (tcp://0.0.0.0:9292) [shop]"),
    ] {
        assert_eq!(name(comm, line), line);
    }
    assert_eq!(name("x", &format!("x: {}", "y".repeat(300))).len(), 72);
}

#[test]
fn threads_have_their_names_behind_those_of_their_processes() {
    let thread = |pid, comm: &str| Task { pid, tgid: 7, comm: comm.into(), ..Task::default() };
    let tasks = [
        process(7, "java", "java com.x.Main"),
        thread(8, "GC Thread#0"),
        thread(9, "java"),
        process(20, "postgres", "postgres: a 10.0.0.7 idle"),
        process(30, "a", "/bin/a"),
    ];
    let names = ProcessNames::of(&tasks);
    let called = |pid, comm: &str| names.called(pid, comm).map(|called| (called.name, called.key));
    let both = |name: &str, key: &str| Some((name.to_owned(), key.to_owned()));
    assert_eq!(called(7, "java"), both("java com.x.Main", "java com.x.Main"));
    assert_eq!(
        called(8, "GC Thread#0"),
        both("java com.x.Main (GC Thread#0)", "java com.x.Main (GC Thread#*)")
    );
    assert_eq!(called(9, "java"), both("java com.x.Main", "java com.x.Main"));
    assert_eq!(called(7, "sh"), None, "it had not called execve yet");
    assert_eq!(called(20, "postgres").unwrap().1, "postgres: a *.*.*.* idle");
    assert_eq!((called(30, "a"), called(99, "x"), names.process(30)), (None, None, None));
}

#[test]
fn of_two_processes_with_one_number_neither_is_named() {
    let tasks = [process(7, "sh", "sh /a"), process(7, "sh", "sh /b")];
    assert_eq!(ProcessNames::of(&tasks).called(7, "sh"), None);
    let folded = [Task { folded: 3, ..process(7, "sh", "sh /a") }];
    assert_eq!(ProcessNames::of(&folded).process(7), None);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(comm in "\\PC{0,16}", line in "((python3|java|node|perl|sh|-m|-c|-jar|--|-|\\+o|postgres:|\\PC{0,8}) ){0,8}") {
        let own = own_name::of(&process(7, &comm, &line));
        prop_assert!(own.is_none_or(|own| !own.name.is_empty() && own.name.chars().count() < 200));
    }
}

#[test]
fn a_blank_in_an_argument_is_no_end_of_it() {
    for (comm, line, want) in [
        ("sh", "/bin/sh\u{1f}/opt/My App/run.sh\u{1f}a b", "sh /opt/My App/run.sh"),
        ("python3", "/opt/My Tools/python3\u{1f}-u\u{1f}/srv/a b.py", "python3 /srv/a b.py"),
        ("sh", "sh\u{1f}-c\u{1f}exec sleep 3", "sh -c"),
        ("foo", "foo:\u{1f}bar baz", "foo: bar baz"),
    ] {
        assert_eq!(name(comm, line), want);
    }
}

#[test]
fn busy_process_is_not_named_idle() {
    let title = "postgres: app shop 10.0.0.7(41200) idle in transaction";
    let of = |exec_ns| of_row(&Task { exec_ns, lived_ns: 10, ..process(7, "postgres", title) });
    assert_eq!((of(6).as_str(), of(5).as_str()), ("postgres: app shop 10.0.0.7(41200)", title));
    let celery = Task { exec_ns: 9, lived_ns: 10, ..process(7, "celery", "[celeryd: w@host] -idle-") };
    assert_eq!(of_row(&celery), "[celeryd: w@host]");
    assert_eq!(name("nginx", "nginx:"), "nginx");
}

#[test]
fn a_worker_that_writes_out_is_called_by_its_device() {
    let disk = Disk { dev: "254:0".into(), device: "vda".into(), ..Disk::default() };
    let tables = Tables { disk: Some(vec![disk]), ..Tables::default() };
    let names = ProcessNames::in_tables(&tables);
    assert_eq!(names.shown(7, "kworker/u8:3+flush-254:0"), "flush of vda");
    assert_eq!(names.shown(7, "kworker/u8:3-flush-0:45"), "flush of 0:45");
    for plain in ["kworker/u8:3", "flush-254:0", "kworker/u8:3+flush-x", "kworker/u8:3+fl"] {
        assert_eq!(names.shown(7, plain), plain);
    }
}

#[test]
fn traced_pids_get_the_names_of_their_processes() {
    let tasks = [process(7, "python3", "python3\u{1f}/srv/a b.py"), process(9, "nginx", "nginx\u{1f}-g")];
    assert_eq!(subject(&tasks, "7"), "python3 /srv/a b.py (pid 7)");
    assert_eq!(subject(&tasks, "9, 8"), "nginx (pid 9), 8");
    assert_eq!(subject(&tasks, "nginx.service"), "nginx.service");
}
