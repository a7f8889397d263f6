//! Draws a lock chain: the caller gives its kind, everything else is drawn.

use std::fmt;

use super::links::can_be_across;
use super::{Leaf, Link, Plan, Way, Wire};
use crate::{Draw, host};

/// The kinds of links of a lock chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkKind {
    /// Futexes of our own.
    Futex,
    /// Futexes with priority inheritance.
    Pi,
    /// `pthread_mutex_t`.
    Pthread,
    /// `std::sync::Mutex`.
    Std,
    /// `sync.Mutex` of Go.
    Go,
    /// Pipes.
    Pipe,
    /// Unix sockets.
    Unix,
    /// TCP connections.
    Tcp,
    /// UDP sockets.
    Udp,
    /// Connections of all sorts, and locks between them.
    Peers,
    /// Locks of files, and pages.
    File,
    /// Locks of directories, and pages.
    Directory,
    /// Locks of pipes, and pages.
    PipeLock,
    /// The lock of the address space, below others.
    AddressSpace,
    /// The lock of all cgroups, below others.
    Cgroups,
    /// All links that work within one process.
    Mixed,
}

impl LinkKind {
    /// All of them.
    pub const ALL: [LinkKind; 16] = [
        LinkKind::Futex,
        LinkKind::Pi,
        LinkKind::Pthread,
        LinkKind::Std,
        LinkKind::Go,
        LinkKind::Pipe,
        LinkKind::Unix,
        LinkKind::Tcp,
        LinkKind::Udp,
        LinkKind::Peers,
        LinkKind::File,
        LinkKind::Directory,
        LinkKind::PipeLock,
        LinkKind::AddressSpace,
        LinkKind::Cgroups,
        LinkKind::Mixed,
    ];

    /// The printed name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            LinkKind::Futex => "futex",
            LinkKind::Pi => "pi-futex",
            LinkKind::Pthread => "pthread",
            LinkKind::Std => "std",
            LinkKind::Go => "go",
            LinkKind::Pipe => "pipe",
            LinkKind::Unix => "unix",
            LinkKind::Tcp => "tcp",
            LinkKind::Udp => "udp",
            LinkKind::Peers => "peers",
            LinkKind::File => "file",
            LinkKind::Directory => "directory",
            LinkKind::PipeLock => "pipe-lock",
            LinkKind::AddressSpace => "address-space",
            LinkKind::Cgroups => "cgroups",
            LinkKind::Mixed => "mixed",
        }
    }

    /// Whether it contains a kernel lock whose owner the kernel records: `whyslow locks` must report it.
    #[must_use]
    pub fn has_kernel_lock(self) -> bool {
        matches!(
            self,
            LinkKind::File
                | LinkKind::Directory
                | LinkKind::PipeLock
                | LinkKind::AddressSpace
                | LinkKind::Cgroups
        )
    }

    /// The possible actions of its leaf.
    #[must_use]
    pub fn feet(self) -> &'static [Leaf] {
        match self {
            LinkKind::AddressSpace | LinkKind::Cgroups => &[Leaf::Link],
            LinkKind::Futex
            | LinkKind::Pi
            | LinkKind::Pthread
            | LinkKind::Pipe
            | LinkKind::Unix
            | LinkKind::Tcp
            | LinkKind::Udp
            | LinkKind::Peers => {
                &[Leaf::Sleep, Leaf::Burn, Leaf::Disk, Leaf::GracePeriod, Leaf::Quota, Leaf::Stopped]
            }
            _ => &[Leaf::Sleep, Leaf::Burn, Leaf::Disk, Leaf::GracePeriod],
        }
    }

    fn links(self, n: usize, draw: &mut Draw) -> Vec<Link> {
        const OF_ONE_PROCESS: [Link; 6] =
            [Link::Futex, Link::Pi, Link::Pthread, Link::Std, Link::Pipe, Link::Unix];
        const OF_MANY: [Link; 4] = [Link::Futex, Link::Pthread, Link::Pipe, Link::Unix];
        let all = |link| vec![link; n];
        let above = |of: &[Link], last, draw: &mut Draw| {
            let mut links: Vec<Link> = (1..n).map(|_| draw.pick(of)).collect();
            links.push(last);
            links
        };
        match self {
            LinkKind::Futex => all(Link::Futex),
            LinkKind::Pi => all(Link::Pi),
            LinkKind::Pthread => all(Link::Pthread),
            LinkKind::Std => all(Link::Std),
            LinkKind::Go => all(Link::Go),
            LinkKind::Pipe => all(Link::Pipe),
            LinkKind::Unix => all(Link::Unix),
            LinkKind::Tcp => (0..n).map(|_| network(Wire::Tcp, Wire::TcpAcross, draw)).collect(),
            LinkKind::Udp => (0..n).map(|_| network(Wire::Udp, Wire::UdpAcross, draw)).collect(),
            LinkKind::Peers => (0..n).map(|_| any_peer(draw)).collect(),
            LinkKind::File => stopped(n, draw, |draw| Some(Link::File { read: draw.one_in(2) })),
            LinkKind::Directory => stopped(n, draw, |_| Some(Link::Directory)),
            LinkKind::PipeLock => stopped(n, draw, |_| Some(Link::PipeLock)),
            LinkKind::AddressSpace => {
                let last = Link::AddressSpace { read: draw.one_in(2) };
                above(&OF_ONE_PROCESS, last, draw)
            }
            LinkKind::Cgroups => above(&OF_MANY, Link::Cgroups, draw),
            LinkKind::Mixed => stopped(n, draw, |draw| match draw.between(0, 5) {
                0 => Some(Link::File { read: draw.one_in(2) }),
                1 => Some(Link::Directory),
                2 => Some(Link::PipeLock),
                _ => None,
            }),
        }
    }
}

fn peer(wire: Wire, draw: &mut Draw) -> Link {
    const WAYS: [Way; 6] = [Way::Read, Way::Poll, Way::Epoll, Way::Select, Way::Looks, Way::Ring];
    // Before v6.3 (40e0b0908142) the kernel does not tell at which socket a packet arrived; for a ring nothing else tells it.
    let is_network = matches!(wire, Wire::Tcp | Wire::Udp | Wire::TcpAcross | Wire::UdpAcross);
    let is_told = wire != Wire::Queue && (!is_network || host::kernel() >= (6, 3));
    let ways = if is_told { &WAYS } else { &WAYS[..5] };
    Link::Peer { wire, by: draw.pick(ways) }
}

/// One in three connects two network namespaces, if the host supports them.
fn network(here: Wire, across: Wire, draw: &mut Draw) -> Link {
    let is_across = draw.one_in(3) && can_be_across();
    peer(if is_across { across } else { here }, draw)
}

/// One in four is a lock.
fn any_peer(draw: &mut Draw) -> Link {
    const LOCKS: [Link; 2] = [Link::Futex, Link::Pthread];
    const WIRES: [Wire; 7] =
        [Wire::Pipe, Wire::Stream, Wire::Datagram, Wire::Tcp, Wire::Udp, Wire::Event, Wire::Queue];
    if draw.one_in(4) {
        return draw.pick(&LOCKS);
    }
    match draw.pick(&WIRES) {
        Wire::Tcp => network(Wire::Tcp, Wire::TcpAcross, draw),
        Wire::Udp => network(Wire::Udp, Wire::UdpAcross, draw),
        other => peer(other, draw),
    }
}

/// `n` links: links from `draw_one`, each with a page below it, and other links where `draw_one` gives none or there is no room for two. At
/// least one link is a lock: on a whole host a chain begins where a thread waits for a lock.
fn stopped(n: usize, draw: &mut Draw, draw_one: impl Fn(&mut Draw) -> Option<Link>) -> Vec<Link> {
    const LOCKS: [Link; 2] = [Link::Futex, Link::Std];
    const OTHERS: [Link; 4] = [Link::Futex, Link::Std, Link::Pipe, Link::Unix];
    let (mut links, mut odd) = (Vec::new(), n % 2 == 1);
    while links.len() < n {
        let room = n - links.len();
        // The single link comes anywhere, at the latest when there is room for one link only.
        let one = if room == 1 || (odd && draw.one_in(room as u64)) { None } else { draw_one(draw) };
        match one {
            Some(link) => links.extend([link, Link::Page]),
            None => {
                odd = !odd;
                links.push(draw.pick(&OTHERS));
            }
        }
    }
    if links.iter().all(|link| link.is_sent()) {
        links[0] = draw.pick(&LOCKS);
    }
    links
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The request for a lock chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    pub kind: LinkKind,
    /// Action of its leaf; `None`: drawn.
    pub leaf: Option<Leaf>,
    /// No thread waits long.
    pub healthy: bool,
    /// Busy processes take most of the CPUs: each step takes longer.
    pub in_a_crowd: bool,
    /// Approximate total time of its rounds.
    pub lasts_ms: u64,
}

/// A thread usually wakes up and begins to wait in less time than this.
const STEP_US: u64 = 1_000;
const STEP_IN_CROWD_US: u64 = 4_000;
/// From the end of a round to the start of the next.
const REST_US: u64 = 25_000;

impl Ask {
    /// The plan of the lock chain's program, without its place on this host.
    #[must_use]
    pub fn draw(self, draw: &mut Draw) -> Plan {
        let leaf = self.leaf.unwrap_or_else(|| draw.pick(self.kind.feet()));
        // With fewer threads there is no room for a lock of the kernel and its page.
        let fewest = if self.kind.has_kernel_lock() && leaf != Leaf::Link { 3 } else { 2 };
        let n = draw.between(fewest, 8) as usize;
        let links = self.kind.links(n - 1, draw);
        let can_be_apart = links.iter().all(|link| link.is_shared());
        let must_be_apart = matches!(leaf, Leaf::Quota | Leaf::Stopped) || links.contains(&Link::Cgroups);
        let apart = can_be_apart && (must_be_apart || draw.one_in(2));
        let step_us = if self.in_a_crowd { STEP_IN_CROWD_US } else { STEP_US };
        let longest = self.longest_us(leaf, &links, draw);
        let every_us = longest * 13 / 10 + n as u64 * step_us + REST_US;
        let count = (self.lasts_ms * 1000 / every_us).clamp(3, 150);
        Plan {
            positions: shuffled(n, draw),
            names: (0..n).map(|_| format!("{}-{}", draw.word(3), draw.word(5))).collect(),
            links,
            leaf,
            rounds: (0..count).map(|_| draw.between(longest * 6 / 10, longest)).collect(),
            every_us,
            step_us,
            // A stopped process stops all its threads.
            rests: if draw.one_in(2) && leaf != Leaf::Stopped { draw.between(1, 4) } else { 0 },
            rest_name: format!("rest-{}", draw.word(5)),
            healthy: self.healthy,
            apart,
            dir: std::path::PathBuf::new(),
            leaf_joins: Vec::new(),
            homes: Vec::new(),
        }
    }

    fn longest_us(self, leaf: Leaf, links: &[Link], draw: &mut Draw) -> u64 {
        let least = if self.in_a_crowd { 150 } else { 50 };
        let (low, high) = match (leaf, links.last()) {
            (Leaf::Sleep | Leaf::Burn | Leaf::Stopped, _) => (least, 400),
            (Leaf::Disk | Leaf::Quota, _) => (150, 400),
            // The kernel decides how long; the waiters record the time.
            (Leaf::GracePeriod, _) | (Leaf::Link, Some(Link::Cgroups)) => (40, 60),
            // Gigabytes of addresses: the limit is the memory of the page tables.
            (Leaf::Link, Some(Link::AddressSpace { read: true })) => (50, 70),
            (Leaf::Link, _) => (80, 250),
        };
        draw.between(low, high) * 1000
    }
}

fn shuffled(n: usize, draw: &mut Draw) -> Vec<usize> {
    let mut left: Vec<usize> = (0..n).collect();
    (0..n).map(|_| left.swap_remove(draw.between(0, left.len() as u64 - 1) as usize)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_lock_stands_on_a_page_or_on_the_leaf() {
        for seed in 0..2_000 {
            let mut draw = Draw::with(seed);
            let kind = draw.pick(&LinkKind::ALL);
            let ask = Ask { kind, leaf: None, healthy: false, in_a_crowd: draw.one_in(2), lasts_ms: 3_000 };
            let plan = ask.draw(&mut draw);
            assert!((2..=8).contains(&plan.len()) && plan.links.len() + 1 == plan.len(), "{plan:?}");
            for (index, link) in plan.links.iter().enumerate().filter(|(_, link)| link.is_of_kernel()) {
                let on_page = plan.links.get(index + 1) == Some(&Link::Page);
                let on_leaf = index + 1 == plan.links.len() && plan.leaf == Leaf::Link;
                assert!(on_page || on_leaf, "{link:?}: {plan:?}");
            }
            assert!(!plan.apart || plan.links.iter().all(|link| link.is_shared()), "{plan:?}");
            let is_lock = |link: &Link| !link.is_sent() && *link != Link::Page;
            assert!(kind != LinkKind::Mixed || plan.links.iter().any(is_lock), "{plan:?}");
            assert!(!kind.has_kernel_lock() || plan.links.iter().any(|link| link.is_of_kernel()), "{plan:?}");
            let mut positions = plan.positions.clone();
            positions.sort_unstable();
            assert!(positions.into_iter().eq(0..plan.len()));
            assert!(plan.names.iter().all(|name| name.len() <= 15));
        }
    }
}
