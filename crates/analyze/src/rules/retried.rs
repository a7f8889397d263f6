//! Connects whose SYN or first data had to be retransmitted, and what their clients lost.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use whyslow_model::{Subject, SubjectKind, table};

use crate::Evidence;
use crate::hashing::Table;

/// What clients lost.
pub(super) struct Paid {
    /// The victim: the client process that lost most stands for all of them.
    pub clients: Subject,
    /// Connects that were retransmitted while their client waited.
    pub retried: u64,
    /// The longest of them.
    pub worst: Option<Duration>,
    /// Time between the first try and the last.
    pub raw: Duration,
    /// The client tasks' time in the window.
    pub wall: Duration,
    /// Time in which the client tasks did nothing else.
    pub blocked: Duration,
    /// Time in which the client tasks also did other things.
    pub watched: Duration,
    /// `watched`, with each moment weighted by the share of the task's connects that were being retried.
    pub watched_share: Duration,
}

/// Connects to one port of a network namespace: in the table's order, and by address.
#[derive(Default)]
struct Port<'r> {
    all: Vec<(&'r str, &'r table::Connect)>,
    to: Table<&'r str, Vec<&'r table::Connect>>,
}

/// All connects, and the loss at each address once it was computed: a server may open one socket for each of its threads at one
/// address (SO_REUSEPORT).
pub(super) struct Connects<'r> {
    ports: Table<(u32, &'r str), Port<'r>>,
    paid: Table<(u32, &'r str), Rc<Paid>>,
}

impl<'r> Connects<'r> {
    pub fn of(connects: &'r [table::Connect]) -> Self {
        let mut all = Connects { ports: Table::default(), paid: Table::default() };
        for connect in connects {
            if let Some((to, port)) = connect.peer.rsplit_once(':') {
                let port = all.ports.entry((connect.netns, port)).or_default();
                port.all.push((to, connect));
                port.to.entry(to).or_default().push(connect);
            }
        }
        all
    }

    /// What the clients of this listener lost.
    pub fn paid(&mut self, ev: &Evidence<'r>, l: &'r table::Listener) -> Rc<Paid> {
        let key = (l.netns, l.local.as_str());
        if let Some(known) = self.paid.get(&key) {
            return known.clone();
        }
        let paid = Rc::new(paid(ev, self.reaching(l)));
        self.paid.insert(key, paid.clone());
        paid
    }

    /// The connects that went to this listener.
    pub fn reaching(&self, l: &table::Listener) -> Vec<&'r table::Connect> {
        let Some((at, port)) = l.local.rsplit_once(':') else { return Vec::new() };
        let Some(port) = self.ports.get(&(l.netns, port)) else { return Vec::new() };
        let any = |four: bool| port.all.iter().filter(move |(to, _)| !(four && to.starts_with('[')));
        match at {
            "[::]" | "0.0.0.0" => any(at == "0.0.0.0").map(|(_, connect)| *connect).collect(),
            _ => port.to.get(at).cloned().unwrap_or_default(),
        }
    }
}

/// Connects that were retransmitted while their client waited.
fn awaited(c: &table::Connect) -> u64 {
    c.retried.saturating_add(c.unanswered).saturating_sub(c.abandoned)
}

/// What the clients lost with these connects.
pub(super) fn paid(ev: &Evidence<'_>, to_it: Vec<&table::Connect>) -> Paid {
    let sum = |of: fn(&table::Connect) -> u64| to_it.iter().map(|c| of(c)).fold(0, u64::saturating_add);
    let usual = sum(|c| c.prompt_ns).checked_div(sum(|c| c.prompt)).unwrap_or(0);
    let paying: Vec<&table::Connect> = to_it.into_iter().filter(|c| awaited(c) > 0).collect();
    let raw = |c: &&table::Connect| Duration::from_nanos(c.retried_ns.saturating_add(c.unanswered_ns));
    let mut paid = Paid {
        clients: clients(ev, &paying),
        retried: paying.iter().map(|c| awaited(c)).fold(0, u64::saturating_add),
        worst: paying.iter().map(|c| c.worst_ns).max().map(Duration::from_nanos),
        raw: paying.iter().map(raw).sum(),
        wall: wall(ev, &paying),
        blocked: Duration::ZERO,
        watched: Duration::ZERO,
        watched_share: Duration::ZERO,
    };
    for c in paying {
        let most = could_wait(ev, c.pid);
        let beyond = |ns: u64| ns.saturating_sub(usual.saturating_mul(awaited(c))).min(most);
        let blocked = beyond(c.blocked_ns);
        let left = most.saturating_sub(blocked);
        paid.blocked += Duration::from_nanos(blocked);
        paid.watched += Duration::from_nanos(c.watched_ns.min(left));
        paid.watched_share += Duration::from_nanos(c.watched_share_ns.min(c.watched_ns).min(left));
    }
    paid
}

/// The longest time that a task can have waited: the time that it lived, and neither ran nor was runnable.
fn could_wait(ev: &Evidence<'_>, pid: u32) -> u64 {
    let window = u64::try_from(ev.window().as_nanos()).unwrap_or(u64::MAX);
    let task = ev.task(pid);
    task.map_or(window, |t| t.lived_ns.min(window).saturating_sub(t.exec_ns).saturating_sub(t.run_delay_ns))
}

fn clients(ev: &Evidence<'_>, paying: &[&table::Connect]) -> Subject {
    let mut by_process: BTreeMap<u32, (u64, &str)> = BTreeMap::new();
    for c in paying {
        let one = by_process.entry(c.tgid).or_insert((0, &c.comm));
        one.0 = one.0.saturating_add(c.blocked_ns).saturating_add(c.watched_share_ns);
    }
    let worst = by_process.iter().max_by_key(|(_, (ns, _))| *ns);
    let (tgid, comm) = worst.map_or((0, "a client"), |(tgid, (_, comm))| (*tgid, *comm));
    let others = by_process.len().saturating_sub(1);
    let comm = ev.process_name(tgid, comm);
    let name = match others {
        0 => comm,
        1 => format!("{comm} and 1 other client"),
        _ => format!("{comm} and {others} other clients"),
    };
    Subject::new(SubjectKind::Task, tgid.to_string(), name)
}

fn wall(ev: &Evidence<'_>, paying: &[&table::Connect]) -> Duration {
    let mut pids: Vec<u32> = paying.iter().map(|c| c.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let lived = |pid| {
        let task = ev.task(pid);
        task.map_or(ev.window(), |t| Duration::from_nanos(t.lived_ns))
    };
    pids.into_iter().map(lived).sum()
}
