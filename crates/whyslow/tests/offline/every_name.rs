//! Every name that the tables of a recording can hold: a new table or field of a timeline does not compile before it is added here.

use whyslow_model::table::*;
use whyslow_model::timeline::{Delivery, Ends, Polled, Target, Waker};

/// Call `see` with each name. `fills`: also with names that are absent.
pub fn each(tables: &mut Tables, fills: bool, see: &mut dyn FnMut(&mut String)) {
    let Tables {
        tasks,
        cgroups,
        groups,
        users,
        samples,
        waits,
        cpus: _,
        memory: _,
        disk: _,
        io_files,
        connects,
        listeners,
        programs,
        spans,
        requests,
        stacks,
        runs: _,
        holds,
        locks: _,
        calls,
        slow_calls,
        works: _,
        failed_calls,
        latency_holders,
        polls: _,
        sockets,
        speeds: _,
        cross_calls,
        late_timers,
        gaps,
        irq_latencies: _,
        stalls,
        stat_reads,
        churn,
        populations: _,
        blocked,
        pings: _,
        spins,
    } = tables;
    let rows = &mut Names { fills, see };
    tasks.iter_mut().flatten().for_each(|row| {
        [&mut row.comm, &mut row.parent].into_iter().for_each(|name| rows.one(name));
        rows.maybe(&mut row.cmdline);
    });
    cgroups.iter_mut().flatten().for_each(|row| rows.cgroup(row));
    groups.iter_mut().flatten().for_each(|row| rows.group(row));
    users.iter_mut().flatten().for_each(|User { uid: _, name }| rows.one(name));
    samples.iter_mut().flatten().for_each(|row| {
        rows.one(&mut row.comm);
        row.user.iter_mut().for_each(|frame| rows.one(frame));
    });
    stacks.iter_mut().flatten().for_each(|Stack { id: _, kernel: _, user }| {
        user.iter_mut().for_each(|frame| rows.one(frame));
    });
    waits.iter_mut().flatten().for_each(|row| rows.one(&mut row.comm));
    io_files
        .iter_mut()
        .flatten()
        .for_each(|row| [&mut row.comm, &mut row.path].into_iter().for_each(|name| rows.one(name)));
    connects.iter_mut().flatten().for_each(|row| {
        [&mut row.comm, &mut row.peer].into_iter().for_each(|name| rows.one(name));
        row.server.iter_mut().for_each(|server| rows.one(&mut server.comm));
    });
    listeners
        .iter_mut()
        .flatten()
        .for_each(|row| [&mut row.comm, &mut row.local].into_iter().for_each(|name| rows.one(name)));
    sockets.iter_mut().flatten().for_each(|row| {
        let names = [&mut row.comm, &mut row.local, &mut row.peer, &mut row.device];
        names.into_iter().for_each(|name| rows.one(name));
    });
    programs.iter_mut().flatten().for_each(|row| rows.one(&mut row.name));
    spans.iter_mut().flatten().for_each(|row| rows.span(row));
    requests
        .iter_mut()
        .flatten()
        .for_each(|Request { tgid: _, peer, connecting: _, other_end: _ }| rows.maybe(peer));
    holds
        .iter_mut()
        .flatten()
        .for_each(|Hold { lock: _, at_ns: _, pid: _, tgid: _, comm, seen: _, reader: _ }| rows.one(comm));
    calls.iter_mut().flatten().for_each(|row| rows.call(row));
    slow_calls.iter_mut().flatten().for_each(|row| rows.slow_call(row));
    failed_calls.iter_mut().flatten().for_each(|row| {
        let names = [&mut row.comm, &mut row.peer, &mut row.file, &mut row.device];
        names.into_iter().for_each(|name| rows.one(name));
    });
    latency_holders.iter_mut().flatten().for_each(|row| rows.one(&mut row.comm));
    cross_calls.iter_mut().flatten().for_each(|row| rows.one(&mut row.comm));
    late_timers.iter_mut().flatten().for_each(|row| rows.one(&mut row.comm));
    gaps.iter_mut().flatten().for_each(|row| rows.one(&mut row.comm));
    churn.iter_mut().flatten().for_each(|row| rows.one(&mut row.comm));
    blocked
        .iter_mut()
        .flatten()
        .for_each(|row| [&mut row.comm, &mut row.owner_comm].into_iter().for_each(|name| rows.one(name)));
    stat_reads.iter_mut().flatten().for_each(|row| {
        rows.one(&mut row.comm);
        rows.one(&mut row.folder);
    });
    stalls.iter_mut().flatten().flat_map(|stall| &mut stall.seen).for_each(|row| {
        rows.one(&mut row.comm);
        rows.maybe(&mut row.file);
    });
    spins
        .iter_mut()
        .flatten()
        .for_each(|row| [&mut row.place, &mut row.module].into_iter().for_each(|name| rows.one(name)));
}

struct Names<'n> {
    fills: bool,
    see: &'n mut dyn FnMut(&mut String),
}

impl Names<'_> {
    fn one(&mut self, name: &mut String) {
        (self.see)(name);
    }

    fn maybe(&mut self, name: &mut Option<String>) {
        if self.fills {
            name.get_or_insert_default();
        }
        name.iter_mut().for_each(|name| self.one(name));
    }

    fn cgroup(&mut self, row: &mut Cgroup) {
        self.one(&mut row.name);
        self.maybe(&mut row.files);
        let mut path = row.path.trim_start_matches('/').to_owned();
        self.one(&mut path);
        row.path = format!("/{path}");
    }

    fn group(&mut self, row: &mut Group) {
        let Group {
            path,
            runtime: _,
            container_id,
            container,
            image,
            pod,
            namespace,
            pod_uid,
            description,
            user,
            session: _,
            tty,
            remote_host,
            machine,
        } = row;
        self.one(path);
        [container_id, container, image, pod, namespace].into_iter().for_each(|name| self.maybe(name));
        [pod_uid, description, user, tty, remote_host, machine].into_iter().for_each(|name| self.maybe(name));
    }

    #[rustfmt::skip]
    fn span(&mut self, row: &mut Span) {
        let Span {
            pid: _, tgid: _, comm, from_ns: _, at_ns: _, woken_ns: _, to_ns: _, mixed: _, state: _, open: _, ended: _, cpu: _,
            waker, stack: _, sampled_wait_ns: _, work: _, syscall: _, args: _, target, polled, device: _, io_file: _, lock: _,
            holder: _, refused: _, asked: _, held_back: _, throttled_ns: _, other_end: _,
        } = row;
        self.one(comm);
        if let Some(Waker { pid: _, tgid: _, comm, context: _, work: _, stack: _, delivery }) = waker {
            self.one(comm);
            if let Some(delivery) = delivery {
                let Delivery { ready, sends, syscall: _, sent_before_ns: _, role: _ } = &mut **delivery;
                for Ends { local, peer, round_trip_ns: _, serves: _, unread: _, netns: _ } in ready.iter_mut().chain(sends) {
                    [local, peer].into_iter().for_each(|name| self.one(name));
                }
            }
        }
        if let Some(Target { fd: _, kind, name, ino: _, dev: _, peer }) = target {
            // For a socket this is its address family.
            if kind != "socket" {
                self.one(name);
            }
            self.maybe(peer);
        }
        if let Some(polled) = polled {
            let Polled { peer, connecting: _, serves: _ } = &mut **polled;
            self.one(peer);
        }
    }

    #[rustfmt::skip]
    fn call(&mut self, row: &mut Call) {
        let Call { tgid: _, comm, syscall: _, path, count: _, errors: _, total_ns: _, worst_ns: _, split: _ } = row;
        self.one(comm);
        self.maybe(path);
    }

    #[rustfmt::skip]
    fn slow_call(&mut self, row: &mut SlowCall) {
        let SlowCall { pid: _, tgid: _, comm, at_ns: _, ns: _, open: _, syscall: _, path, split: _, stack: _ } = row;
        self.one(comm);
        self.maybe(path);
    }
}

/// A row of each table, with every name that a row can hold.
#[allow(dead_code, reason = "hostile names come into recordings")]
pub fn a_row_of_each() -> Tables {
    let ends = Ends { local: "1.2.3.4:5".into(), ..Ends::default() };
    let delivery = Delivery { ready: Some(ends.clone()), sends: Some(ends), ..Delivery::default() };
    let waker = Waker { delivery: Some(Box::new(delivery)), ..Waker::default() };
    let target = |kind: &str| Some(Target { kind: kind.into(), dev: "0:25".into(), ..Target::default() });
    let span = |kind: &str| Span {
        waker: Some(waker.clone()),
        target: target(kind),
        polled: Some(Box::default()),
        ..Span::default()
    };
    let frames = vec![String::new()];
    Tables {
        tasks: Some(vec![Task::default()]),
        cgroups: Some(vec![Cgroup::default()]),
        groups: Some(vec![Group::default()]),
        users: Some(vec![User::default()]),
        samples: Some(vec![Sample { user: frames.clone(), ..Sample::default() }]),
        waits: Some(vec![Wait::default()]),
        cpus: Some(vec![Cpu::default()]),
        memory: Some(vec![Memory::default()]),
        disk: Some(vec![Disk::default()]),
        io_files: Some(vec![IoFile::default()]),
        connects: Some(vec![Connect { server: Some(Server::default()), ..Connect::default() }]),
        listeners: Some(vec![Listener::default()]),
        programs: Some(vec![Program::default()]),
        spans: Some(["file", "dir", "pipe", "anon", "chr", "blk", ""].map(span).into()),
        requests: Some(vec![Request::default()]),
        stacks: Some(vec![Stack { user: frames, ..Stack::default() }]),
        runs: Some(vec![Run::default()]),
        holds: Some(vec![Hold::default()]),
        locks: Some(vec![Lock::default()]),
        calls: Some(vec![Call::default()]),
        slow_calls: Some(vec![SlowCall::default()]),
        works: Some(vec![Work::default()]),
        failed_calls: Some(vec![FailedCall::default()]),
        latency_holders: Some(vec![LatencyHolder::default()]),
        polls: Some(vec![Poll::default()]),
        sockets: Some(vec![Socket::default()]),
        speeds: Some(vec![Speed::default()]),
        cross_calls: Some(vec![CrossCall::default()]),
        late_timers: Some(vec![LateTimer::default()]),
        gaps: Some(vec![Gap::default()]),
        irq_latencies: Some(vec![IrqLatency::default()]),
        stalls: Some(vec![Stall {
            seen: vec![StallSeen::default()],
            kind: "long-poll".into(),
            ..Stall::default()
        }]),
        stat_reads: Some(vec![StatRead {
            fs: "cgroup2".into(),
            file: "memory.stat".into(),
            ..StatRead::default()
        }]),
        blocked: Some(vec![Blocked { samples: 1, ..Blocked::default() }]),
        churn: Some(vec![Churn { what: "cgroups made".into(), ..Churn::default() }]),
        populations: Some(vec![Population { what: "cgroups".into(), ..Population::default() }]),
        pings: Some(vec![Ping { answer: "reply".into(), error: Some("EPERM".into()), ..Ping::default() }]),
        spins: Some(vec![Spin::default()]),
    }
}
