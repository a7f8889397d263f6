//! Whatever names tasks, groups, files, peers and functions of a recording have: no control character reaches the page, JSON and SVG stay
//! valid, and stacks keep their frames.

use std::path::Path;

use whyslow::store;
use whyslow_analyze::{examine, stacks::flame};
use whyslow_faults::draw::Draw;
use whyslow_model::Recording;
use whyslow_model::table::{
    Cgroup, Connect, Group, Listener, Program, Request, Server, SlowCall, Socket, Stall, StallSeen, StatRead,
    Tables, Task, User,
};
use whyslow_report::safe::is_unsafe;
use whyslow_report::{Style, json, text};

const NAMES: usize = 200;

/// Sequences that terminals, formats, folded stacks and XML interpret.
const PARTS: [&str; 20] = [
    "\x1b[2J",
    "\x1b]0;x\x07",
    "\n",
    "\r",
    "\t",
    "\u{202e}",
    "\u{2066}",
    "\u{9b}31m",
    "\u{fffd}",
    "%s%n%x",
    "{}",
    ";",
    " ",
    "<script>",
    "]]>",
    "&amp;",
    "\"'",
    "\\x1b",
    "\u{0}",
    "\u{ffff}",
];

fn hostile(draw: &mut Draw) -> String {
    if draw.one_in(NAMES as u64 / 4) {
        return PARTS[1].repeat(10_240 / PARTS[1].len());
    }
    let invalid = String::from_utf8_lossy(b"\xff\xfe\xc0\x80").into_owned();
    let mut name = if draw.one_in(5) { invalid } else { String::new() };
    for _ in 0..draw.pick(&[1, 2, 5, 12]) {
        name.push_str(draw.pick(&PARTS));
        name.push_str(draw.pick(&["a", "/srv", "x.service", ""]));
    }
    name
}

/// Replaces every name of the tables, of the head and of what is missing, and the kernel's names of frames and devices.
fn renamed(mut rec: Recording, name: &mut impl FnMut() -> String) -> Recording {
    rec.meta.host = name();
    if let Some(watched) = &mut rec.meta.watched {
        watched.subject = name();
        watched
            .command
            .iter_mut()
            .flat_map(|command| &mut command.argv)
            .for_each(|argument| *argument = name());
    }
    let tables = &mut rec.tables;
    told(tables);
    crate::every_name::each(tables, true, &mut |one| *one = name());
    let paths: Vec<String> = tables.cgroups.iter().flatten().map(|group| group.path.clone()).collect();
    tables.groups.iter_mut().flatten().zip(paths).for_each(|(group, path)| group.path = path);
    for row in tables.samples.iter_mut().flatten() {
        row.kernel.iter_mut().for_each(|frame| *frame = name());
    }
    tables.io_files.iter_mut().flatten().for_each(|row| row.device = name());
    rec
}

/// Rows for the tables that none of our recordings has, so that they are reported: a name that is never printed proves nothing.
fn told(tables: &mut Tables) {
    let first = |task: &&Task| task.pid == task.tgid && !task.kthread;
    let tgid = tables.tasks.iter().flatten().find(first).map_or(1, |task| task.tgid);
    let group = |group: &Cgroup| Group { path: group.path.clone(), ..Group::default() };
    tables.groups = Some(tables.cgroups.iter().flatten().map(group).collect());
    let uids = tables.tasks.iter().flatten().filter_map(|task| task.uid);
    tables.users = Some(uids.map(|uid| User { uid, ..User::default() }).collect());
    let second = 1_000_000_000;
    let calls = SlowCall { pid: tgid, tgid, ns: 2 * second, ..SlowCall::default() };
    tables.slow_calls = Some(vec![calls; 3]);
    let listener = Listener { tgid, queue: 129, limit: 128, overflows: 50, ..Listener::default() };
    tables.listeners = Some(vec![listener]);
    let connect = Connect {
        pid: tgid,
        tgid,
        count: 50,
        done: 50,
        retried: 40,
        retried_ns: 40 * second,
        refused: 20,
        naps: 19,
        slept_ns: second,
        server: Some(Server { tgid, closed: 1, ended: 1, ..Server::default() }),
        ..Connect::default()
    };
    tables.connects = Some(vec![Connect { worst_ns: second, blocked_ns: second, ..connect }]);
    let socket =
        Socket { tgid, tcp: true, looks: 50, full: 50, closed: 50, held_ns: 2 * second, ..Socket::default() };
    let queued = Socket { queued: 50, qdisc: "tbf".into(), ..socket.clone() };
    tables.sockets = Some(vec![Socket { used_bytes: 1 << 20, room_bytes: 1 << 20, ..socket }, queued]);
    let program = Program { run_ns: 2 * second, runs: 1000, kind: "xdp".into(), ..Program::default() };
    tables.programs = Some(vec![program]);
    tables.requests = Some(vec![Request { tgid, ..Request::default() }]);
    let ran = StallSeen { pid: tgid, tgid, count: 9, at_ns: second, ..StallSeen::default() };
    let stall = Stall { ns: second, at_ns: second, kind: "softirq-deferred".into(), ..Stall::default() };
    tables.stalls = Some(vec![Stall { seen: vec![ran; 2], ..stall }]);
    let read = StatRead { tgid, pid: tgid, reads: 9, ns: second, long_reads: 9, ..StatRead::default() };
    tables.stat_reads = Some(vec![StatRead { long_ns: second, worst_ns: second, ..read }]);
}

/// Well-formed as far as names can break it: no raw control character, each "<" begins a tag that ends, each "&" begins an entity.
fn is_xml(svg: &str) -> bool {
    let script = |svg: &str| svg.split("<script").count();
    let bad = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
    let text = svg
        .split("<![CDATA[")
        .enumerate()
        .map(|(at, part)| if at == 0 { part } else { part.split_once("]]>").map_or("", |(_, rest)| rest) });
    let text: String = text.collect();
    let entities = ["amp;", "lt;", "gt;", "quot;", "apos;", "#"];
    let is_entity = |rest: &str| entities.iter().any(|entity| rest.starts_with(entity));
    !svg.chars().any(|c| bad(c) || matches!(c, '\u{fffe}' | '\u{ffff}'))
        && script(svg) <= 2
        && text.split('&').skip(1).all(is_entity)
        && text.matches('<').count() <= text.matches('>').count()
}

#[test]
fn two_hundred_hostile_names_break_nothing() {
    let mut draw = Draw::of_run("hostile names", 0);
    let names: Vec<String> = (0..NAMES).map(|_| hostile(&mut draw)).collect();
    let mut next = names.iter().cycle().cloned();
    let mut name = || next.next().unwrap_or_default();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions");
    let mut looked = 0;
    for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if file.extension().is_none_or(|end| end != "why") {
            continue;
        }
        looked += 1;
        let plain = store::open(&file).unwrap();
        let rec = renamed(plain.clone(), &mut name);
        let document = examine(&rec);
        for verbose in [false, true] {
            let page = text(&document, &Style { verbose, ..Style::default() });
            assert!(page.chars().all(|c| c == '\n' || !is_unsafe(c)), "{}", file.display());
        }
        let printed = json(&document);
        assert!(printed.chars().all(|c| c == '\n' || !is_unsafe(c)));
        serde_json::from_str::<serde_json::Value>(&printed).unwrap();
        let picture = flame::picture(&rec);
        let deepest =
            |rec: &Recording| flame::fold(rec).iter().map(|(line, _)| line.matches(';').count()).max();
        assert_eq!(deepest(&rec), deepest(&plain), "frames of {}", file.display());
        if !picture.lines.is_empty() {
            let svg = whyslow_report::flame(&picture.title, &picture.subtitle, &picture.lines).unwrap();
            assert!(is_xml(&svg), "{}", file.display());
        }
    }
    assert!(looked > 2);
}
