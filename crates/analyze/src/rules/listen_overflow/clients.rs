//! Whose connects went to a full listener, and what they lost by it.

use std::collections::BTreeMap;
use std::time::Duration;

use whyslow_model::{Subject, SubjectKind, table};

use crate::Evidence;

/// What the clients of one listener lost.
#[derive(Default)]
pub(super) struct Paid<'r> {
    /// The rows that waited.
    pub clients: Vec<&'r table::Connect>,
    /// Time in which they did nothing else.
    pub blocked: Duration,
    /// Time in which they did other things, too.
    pub watched: Duration,
    /// The part of it that their waiting connects make up.
    pub watched_share: Duration,
}

fn reaches(c: &table::Connect, l: &table::Listener) -> bool {
    let split = |at: &str| at.rsplit_once(':').map(|(ip, port)| (ip.to_owned(), port.to_owned()));
    let (Some((to, port)), Some((at, listens))) = (split(&c.peer), split(&l.local)) else { return false };
    c.netns == l.netns
        && port == listens
        && (at == to || at == "[::]" || (at == "0.0.0.0" && !to.starts_with('[')))
}

/// Connects that were sent again while somebody waited.
pub(super) fn awaited(c: &table::Connect) -> u64 {
    c.retried.saturating_add(c.unanswered).saturating_sub(c.abandoned)
}

pub(super) fn paid<'r>(ev: &Evidence<'r>, l: &table::Listener, connects: &'r [table::Connect]) -> Paid<'r> {
    let to_it: Vec<_> = connects.iter().filter(|c| reaches(c, l)).collect();
    let prompt: u64 = to_it.iter().map(|c| c.prompt).sum();
    let prompt_ns: u64 = to_it.iter().map(|c| c.prompt_ns).sum();
    let usual = prompt_ns.checked_div(prompt).unwrap_or(0);
    let mut paid = Paid::default();
    for c in to_it.into_iter().filter(|c| awaited(c) > 0) {
        let most = could_wait(ev, c.pid);
        let beyond = |ns: u64| ns.saturating_sub(usual.saturating_mul(awaited(c))).min(most);
        let blocked = beyond(c.blocked_ns);
        let left = most.saturating_sub(blocked);
        paid.blocked += Duration::from_nanos(blocked);
        paid.watched += Duration::from_nanos(c.watched_ns.min(left));
        paid.watched_share += Duration::from_nanos(c.watched_share_ns.min(c.watched_ns).min(left));
        paid.clients.push(c);
    }
    paid
}

/// The longest that a task can have waited: the time that it lived and neither ran nor was ready to.
fn could_wait(ev: &Evidence<'_>, pid: u32) -> u64 {
    let window = u64::try_from(ev.window().as_nanos()).unwrap_or(u64::MAX);
    let task = ev.tasks().ok().and_then(|tasks| tasks.iter().find(|t| t.pid == pid));
    task.map_or(window, |t| t.lived_ns.min(window).saturating_sub(t.exec_ns).saturating_sub(t.run_delay_ns))
}

/// The client process that lost most speaks for all.
pub(super) fn clients(paid: &Paid<'_>) -> Subject {
    let mut by_process: BTreeMap<u32, (u64, &str)> = BTreeMap::new();
    for c in &paid.clients {
        let one = by_process.entry(c.tgid).or_insert((0, &c.comm));
        one.0 = one.0.saturating_add(c.blocked_ns).saturating_add(c.watched_share_ns);
    }
    let worst = by_process.iter().max_by_key(|(_, (ns, _))| *ns);
    let (tgid, comm) = worst.map_or((0, "a client"), |(tgid, (_, comm))| (*tgid, *comm));
    let others = by_process.len().saturating_sub(1);
    let name = if others == 0 { comm.to_owned() } else { format!("{comm} and {others} other clients") };
    Subject::new(SubjectKind::Task, tgid.to_string(), name)
}

/// The client tasks' time in the window.
pub(super) fn wall(ev: &Evidence<'_>, paid: &Paid<'_>) -> Duration {
    let mut pids: Vec<u32> = paid.clients.iter().map(|c| c.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let lived = |pid| {
        let task = ev.tasks().ok().and_then(|tasks| tasks.iter().find(|t| t.pid == pid));
        task.map_or(ev.window(), |t| Duration::from_nanos(t.lived_ns))
    };
    pids.into_iter().map(lived).sum()
}
