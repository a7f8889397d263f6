//! Names in tables.

use whyslow_model::table::{Cgroup, Group, Span, Tables};

use super::words::Words;

/// Removes the names from all tables.
#[allow(clippy::too_many_lines, reason = "one paragraph per table")]
pub fn redact(tables: &mut Tables, words: &mut Words) {
    // All tables are named here, so that a new table does not compile until it is handled.
    let Tables {
        tasks,
        cgroups,
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
        works,
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
        groups,
        users,
    } = tables;
    for task in tasks.iter_mut().flatten() {
        task.comm = words.comm(&task.comm);
        task.parent = words.comm(&task.parent);
        task.cmdline = task.cmdline.take().map(|line| words.argument(&line));
    }
    cgroups.iter_mut().flatten().for_each(|group| redact_group(group, words));
    for sample in samples.iter_mut().flatten() {
        sample.comm = words.comm(&sample.comm);
        sample.user.iter_mut().for_each(|frame| *frame = words.function(frame));
    }
    stacks
        .iter_mut()
        .flatten()
        .flat_map(|stack| &mut stack.user)
        .for_each(|frame| *frame = words.function(frame));
    spans.iter_mut().flatten().for_each(|span| redact_span(span, words));
    for request in requests.iter_mut().flatten() {
        request.peer = request.peer.take().map(|peer| words.peer(&peer));
    }
    for row in io_files.iter_mut().flatten() {
        row.comm = words.comm(&row.comm);
        row.path = words.path(&row.path);
    }
    for row in connects.iter_mut().flatten() {
        (row.comm, row.peer) = (words.comm(&row.comm), words.peer(&row.peer));
        row.server.iter_mut().for_each(|server| server.comm = words.comm(&server.comm));
    }
    for row in failed_calls.iter_mut().flatten() {
        (row.comm, row.peer) = (words.comm(&row.comm), words.peer(&row.peer));
        // Rules ask whether a path begins at the root, and whether a file system has a device: both stay visible.
        let root = if row.file.starts_with('/') { "/" } else { "" };
        row.file = format!("{root}{}", words.path(&row.file));
        if row.device != row.file_system {
            row.device = words.path(&row.device);
        }
    }
    for row in listeners.iter_mut().flatten() {
        (row.comm, row.local) = (words.comm(&row.comm), words.peer(&row.local));
    }
    for row in sockets.iter_mut().flatten() {
        row.comm = words.comm(&row.comm);
        (row.local, row.peer) = (words.peer(&row.local), words.peer(&row.peer));
        row.device = words.path(&row.device);
    }
    groups.iter_mut().flatten().for_each(|row| redact_owner(row, words));
    users.iter_mut().flatten().for_each(|user| user.name = words.owner("user", &user.name));
    programs.iter_mut().flatten().for_each(|row| row.name = words.function(&row.name));
    // Drivers name workqueues after devices, and WireGuard after interfaces.
    works.iter_mut().flatten().for_each(|row| row.workqueue.clear());
    for row in calls.iter_mut().flatten() {
        row.comm = words.comm(&row.comm);
        row.path = row.path.take().map(|path| words.path(&path));
    }
    for row in slow_calls.iter_mut().flatten() {
        row.comm = words.comm(&row.comm);
        row.path = row.path.take().map(|path| words.path(&path));
    }
    churn.iter_mut().flatten().for_each(|row| row.comm = words.comm(&row.comm));
    for row in blocked.iter_mut().flatten() {
        (row.comm, row.owner_comm) = (words.comm(&row.comm), words.comm(&row.owner_comm));
    }
    for row in spins.iter_mut().flatten() {
        // The place and the module name the program. The code itself stays: the rule judges the loop by it.
        (row.place, row.module) = (words.function(&row.place), words.path(&row.module));
    }
    for row in stalls.iter_mut().flatten().flat_map(|stall| &mut stall.seen) {
        row.comm = words.comm(&row.comm);
        row.file = row.file.take().map(|file| words.path(&file));
    }
    for row in stat_reads.iter_mut().flatten() {
        // The kernel names these files; folders are named by users: containers, units.
        (row.comm, row.folder) = (words.comm(&row.comm), words.path(&row.folder));
    }
    let comms = waits.iter_mut().flatten().map(|row| &mut row.comm);
    let comms = comms.chain(holds.iter_mut().flatten().map(|row| &mut row.comm));
    let comms = comms.chain(latency_holders.iter_mut().flatten().map(|row| &mut row.comm));
    let comms = comms.chain(cross_calls.iter_mut().flatten().map(|row| &mut row.comm));
    let comms = comms.chain(late_timers.iter_mut().flatten().map(|row| &mut row.comm));
    let comms = comms.chain(gaps.iter_mut().flatten().map(|row| &mut row.comm));
    comms.for_each(|comm| *comm = words.comm(comm));
}

fn redact_group(group: &mut Cgroup, words: &mut Words) {
    let path = words.group(&group.path);
    group.files =
        group.files.take().map(|files| match files.strip_suffix(group.path.trim_end_matches('/')) {
            Some(mount) => format!("{mount}{}", path.trim_end_matches('/')),
            None => words.path(&files),
        });
    group.name = if group.name == "/" { "/".to_owned() } else { words.part(&group.name) };
    group.path = path;
}

fn redact_owner(row: &mut Group, words: &mut Words) {
    let mut word = |kind, name: &Option<String>| name.as_ref().map(|name| words.owner(kind, name));
    let (pod, namespace) = (word("pod", &row.pod), word("namespace", &row.namespace));
    let (container, machine) = (word("container", &row.container), word("machine", &row.machine));
    let (image, user) = (word("image", &row.image), word("user", &row.user));
    // Ids are dropped, because the host can resolve them to names; descriptions, terminals and hosts are free texts, and are dropped.
    *row = Group {
        path: words.group(&row.path),
        runtime: row.runtime.take(),
        session: row.session.take(),
        pod,
        namespace,
        container,
        machine,
        image,
        user,
        ..Group::default()
    };
}

fn redact_span(span: &mut Span, words: &mut Words) {
    span.comm = words.comm(&span.comm);
    if let Some(waker) = &mut span.waker {
        waker.comm = words.comm(&waker.comm);
        if let Some(delivery) = &mut waker.delivery {
            for ends in delivery.ready.iter_mut().chain(&mut delivery.sends) {
                (ends.local, ends.peer) = (words.peer(&ends.local), words.peer(&ends.peer));
            }
        }
    }
    if let Some(target) = &mut span.target {
        target.peer = target.peer.take().map(|peer| words.peer(&peer));
        target.name = words.target(&target.kind, &target.name);
    }
    if let Some(polled) = &mut span.polled {
        polled.peer = words.peer(&polled.peer);
    }
}
