//! Listening sockets whose accept queue was full.

use whyslow_model::{Culprit, Finding, SubjectKind, command, table};

use crate::hashing::Table;
use crate::{Evidence, Netns};

/// Listeners whose queue was full.
pub(super) fn full<'r>(ev: &Evidence<'r>, listeners: &'r [table::Listener]) -> Vec<&'r table::Listener> {
    let nets = ev.netns().unwrap_or_default();
    let nets: Table<&str, &Netns> = nets.iter().rev().map(|net| (net.inode.as_str(), net)).collect();
    listeners.iter().filter(|listener| overflowed(&nets, listener)).collect()
}

/// A drop is an overflow, unless the namespace's own counter shows no overflow.
fn overflowed(nets: &Table<&str, &Netns>, l: &table::Listener) -> bool {
    let of_it = nets.get(l.netns.to_string().as_str());
    let none = of_it.and_then(|net| net.rise("TcpExt", "ListenOverflows")) == Some(0);
    l.queue > l.limit || (l.overflows > 0 && !none)
}

pub(super) fn server(l: &table::Listener) -> String {
    if l.comm.is_empty() { l.local.clone() } else { format!("{} ({})", l.comm, l.local) }
}

pub(super) fn culprit(l: &table::Listener) -> Culprit {
    match l.tgid {
        0 => Culprit::new(SubjectKind::Socket, l.local.clone(), l.local.clone()),
        tgid => Culprit::new(SubjectKind::Task, tgid.to_string(), l.comm.clone()).at_file(l.local.clone()),
    }
}

pub(super) fn with_advice(found: Finding, l: &table::Listener) -> Finding {
    let port = l.local.rsplit_once(':').map_or("", |(_, port)| port);
    let port = format!("sport = :{port}");
    let look = match l.tgid {
        0 => command!("ss -ltnmp {}", port),
        tgid => command!("nsenter -n -t {} ss -ltnmp {}", tgid, port),
    };
    found
        .check("Recv-Q (queued) against Send-Q (limit), and drops (d...)", look)
        .advice("accept faster: more accepting threads or processes (costs memory), or no slow work between two accepts")
        .advice(format!(
            "raise the backlog in listen() (now {}): the smaller of it and net.core.somaxconn counts. It takes effect when the server \
             listens anew, and clients then wait longer in the queue; undo: the old value",
            l.limit
        ))
}
