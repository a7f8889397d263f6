//! The task on this host that sent what a softirq delivered.
//!
//! A packet that stays on a host is delivered mostly within the system call that sent it, and otherwise in a task that was interrupted.
//! The current task is the sender if the socket of its system call is the peer of the socket that was waited for.

use whyslow_model::timeline::{Context, Delivery, Ends, Role, Span, Target, Waker};

/// System calls that send from a socket which is not their first argument (x86-64): close, exit, splice, exit_group,
/// io_uring_enter.
const SEND_UNSEEN: [u32; 5] = [3, 60, 231, 275, 426];

/// System calls that read from a socket: read, readv, recvfrom, recvmsg, recvmmsg.
pub(crate) const READS: [u32; 5] = [0, 19, 45, 47, 299];

/// The kernel records in ticks when a connection has sent: ticks of 10 ms where they are longest (CONFIG_HZ=100).
pub(crate) const TICK: u64 = 10_000_000;

/// The waker of this wait, if it is a task of this host: itself, or through what it sent.
pub(crate) fn task_behind(span: &Span) -> Option<&Waker> {
    let waker = span.waker.as_ref().filter(|waker| waker.pid != 0 && waker.pid != span.pid)?;
    match waker.context {
        Context::Task => Some(waker),
        Context::Softirq if has_sent(span, waker) => Some(waker),
        _ => None,
    }
}

/// The data that ended the wait came from the socket in the current task's system call.
fn has_sent(span: &Span, waker: &Waker) -> bool {
    let Some(delivery) = &waker.delivery else { return false };
    let ready = delivery.ready.as_ref();
    let Some(sends) = &delivery.sends else {
        let is_unseen = delivery.syscall.is_some_and(|call| SEND_UNSEEN.contains(&call));
        return is_unseen && ready.is_some_and(is_of_one_host);
    };
    // For a wait for room in a buffer the origin of data is not recorded; behind network address translation nothing else is right.
    other_end(span).is_some_and(|peer| peer == sends.local)
        || ready.is_some_and(|ready| are_two_ends(sends, ready))
}

/// The peer of the one socket that the task reads from, or polls.
fn other_end(span: &Span) -> Option<&str> {
    let read = span.target.as_ref().and_then(|target| target.peer.as_deref());
    read.or(span.polled.as_ref().map(|polled| &*polled.peer)).filter(|peer| !peer.is_empty())
}

/// The address that sent the data which ended the wait, if a softirq delivered it.
pub(crate) fn sender(span: &Span) -> Option<&str> {
    let waker = span.waker.as_ref().filter(|waker| waker.context == Context::Softirq)?;
    let ready = waker.delivery.as_ref()?.ready.as_ref()?;
    Some(&*ready.peer).filter(|peer| !peer.is_empty())
}

/// The end of the connection that sent what ended the wait, as far as it is known: the service, or its client. An end that has called accept(2),
/// or a UDP socket that is not connected, is the service.
fn role(span: &Span, waker: &Waker) -> Option<Role> {
    let delivery = waker.delivery.as_ref()?;
    if delivery.role.is_some() {
        return delivery.role;
    }
    let polled = span.polled.as_ref().map(|polled| polled.serves);
    let own = delivery.ready.as_ref().map(|ends| ends.serves).or(polled);
    let sends =
        delivery.sends.as_ref().filter(|_| waker.context == Context::Softirq && has_sent(span, waker));
    let others = sends.map(|ends| ends.serves);
    match (own, others) {
        (Some(true), None | Some(false)) | (None, Some(false)) => Some(Role::Asks),
        (Some(false), None | Some(true)) | (None, Some(true)) => Some(Role::Answers),
        (None, None) | (Some(true), Some(true)) | (Some(false), Some(false)) => None,
    }
}

/// A client's request ended the wait.
pub(crate) fn is_request(span: &Span, waker: &Waker) -> bool {
    role(span, waker) == Some(Role::Asks)
}

/// A service's answer ended the wait.
pub(crate) fn is_answer(span: &Span, waker: &Waker) -> bool {
    role(span, waker) == Some(Role::Answers)
}

/// A client that was seen to ask before some of its answers asks before each of them: three, and one in three, are enough. A service that reads
/// a request quickly has done so before the request can be seen.
pub(crate) fn asks_each_time(asked: u64, answers: u64) -> bool {
    asked >= 3 && asked.saturating_mul(3) >= answers
}

/// A task that waits at a unix socket for an answer is also woken when the peer takes what the task has sent, and sleeps again: both waits use one
/// queue (unix_write_space, net/unix/af_unix.c).
pub(crate) fn is_woken_for_nothing(span: &Span) -> bool {
    let reads = span.syscall.is_some_and(|call| READS.contains(&call));
    let is_unix = span.target.as_ref().is_some_and(|target| target.kind == "socket" && target.name == "unix");
    let takes = |waker: &Waker| waker.delivery.as_ref().is_some_and(|sent| sent.role == Some(Role::Takes));
    reads && is_unix && span.asked && task_behind(span).is_some_and(takes)
}

/// The socket that the task reads from. A task that reads from one socket after the other makes a new connection for each question.
pub(crate) fn socket(span: &Span) -> Option<u64> {
    let is_socket = |target: &&Target| target.kind == "socket";
    Some(span.target.as_ref().filter(is_socket)?.ino).filter(|ino| *ino != 0)
}

/// A client that gets nearly each answer at another socket makes a new connection for each question: subscriptions bring more than one message each.
pub(crate) fn comes_each_time(sockets: u64, answers: u64) -> bool {
    sockets >= 3 && sockets.saturating_mul(2) > answers
}

/// The wait of an idle service: a request ended it.
pub(crate) fn is_asked(span: &Span) -> bool {
    task_behind(span).is_some_and(|waker| is_request(span, waker))
}

/// The client had sent its question when the wait began, and the peer is not known to be on this host and has answered: the round trip through
/// the network, as TCP has measured it.
pub(crate) fn round_trip(span: &Span) -> Option<u64> {
    let waker = span.waker.as_ref().filter(|waker| waker.context == Context::Softirq)?;
    let delivery =
        waker.delivery.as_ref().filter(|_| task_behind(span).is_none() && is_answer(span, waker))?;
    let ready = delivery.ready.as_ref().filter(|ready| !is_of_one_host(ready))?;
    ready.round_trip_ns.filter(|_| is_sent_as_it_begins(span, delivery))
}

/// The connection had sent when the wait began, to within a tick, and not long before.
fn is_sent_as_it_begins(span: &Span, delivery: &Delivery) -> bool {
    let waited = span.woken_ns.saturating_sub(span.at_ns);
    delivery.sent_before_ns.is_some_and(|before| before <= waited.saturating_add(TICK))
}

/// The task has asked, does nothing else until the answer is there, and got it at once. A later answer may be a job from an empty queue, which
/// was requested, too (BRPOP, a long poll). For a loop (poll, epoll) it is not known what else it waits for.
pub(crate) fn is_until_answer(span: &Span) -> bool {
    const AT_ONCE_NS: u64 = 1_000_000;
    let one = span.waker.as_ref().filter(|waker| is_answer(span, waker));
    let delivery = one.and_then(|waker| waker.delivery.as_ref());
    span.syscall.is_some_and(|call| READS.contains(&call))
        && span.woken_ns.saturating_sub(span.at_ns) < AT_ONCE_NS
        && delivery.is_some_and(|delivery| is_sent_as_it_begins(span, delivery))
}

/// Each end is the peer of the other, as far as both are known, and at least one is certain.
fn are_two_ends(one: &Ends, other: &Ends) -> bool {
    // Each network namespace has a loopback device of its own; a veth pair connects two namespaces.
    if is_of_one_host(one) && one.netns != other.netns {
        return false;
    }
    let pairs = [(&one.local, &other.peer), (&one.peer, &other.local)];
    let may_be = |(a, b): &(&String, &String)| a.is_empty() || b.is_empty() || is_one_address(a, b);
    let is = |(a, b): &(&String, &String)| !a.is_empty() && !b.is_empty() && is_one_address(a, b);
    pairs.iter().all(may_be) && pairs.iter().any(is)
}

/// One of them may be open on all addresses of the host ("0.0.0.0:53", "[::]:53").
fn is_one_address(a: &str, b: &str) -> bool {
    let (Some((a, a_port)), Some((b, b_port))) = (a.rsplit_once(':'), b.rsplit_once(':')) else {
        return false;
    };
    let is_any = |address: &str| matches!(address, "0.0.0.0" | "[::]");
    a_port == b_port && (a == b || is_any(a) || is_any(b))
}

/// Both ends have one address, or addresses of the loopback device.
fn is_of_one_host(ends: &Ends) -> bool {
    let address = |end: &str| end.rsplit_once(':').map(|(address, _)| address.to_owned());
    let (Some(local), Some(peer)) = (address(&ends.local), address(&ends.peer)) else { return false };
    let is_loopback = |address: &str| address.starts_with("127.") || address == "[::1]";
    local == peer || is_loopback(&local) && is_loopback(&peer)
}

#[cfg(test)]
mod tests {
    use whyslow_model::timeline::{Delivery, Polled};

    use super::*;

    /// An end with a low port is a service's.
    fn ends(local: &str, peer: &str) -> Option<Ends> {
        let port = |end: &str| end.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        let serves = port(local).is_some_and(|port| port < 32_768);
        Some(Ends { local: local.to_owned(), peer: peer.to_owned(), serves, ..Ends::default() })
    }

    fn wait(peer: Option<&str>, ready: Option<Ends>, sends: Option<Ends>, call: u32) -> Span {
        let delivery = Some(Box::new(Delivery { ready, sends, syscall: Some(call), ..Delivery::default() }));
        let waker = Waker { pid: 7, context: Context::Softirq, delivery, ..Waker::default() };
        let target = peer.map(|peer| Target { peer: Some(peer.to_owned()), ..Target::default() });
        Span { pid: 3, waker: Some(waker), target, ..Span::default() }
    }

    #[test]
    fn task_at_the_peer_socket_is_the_sender() {
        let (client, server) = ("127.0.0.1:40000", "127.0.0.1:80");
        let sends = ends(server, client);
        assert!(task_behind(&wait(Some(server), None, sends.clone(), 44)).is_some(), "a blocking read");
        assert!(task_behind(&wait(None, ends(client, server), sends.clone(), 44)).is_some(), "an epoll");
        assert!(task_behind(&wait(None, None, sends.clone(), 44)).is_none(), "the socket is not known");
        assert!(task_behind(&wait(Some("10.0.0.9:80"), None, sends, 44)).is_none(), "another connection");
        let other = ends(client, "127.0.0.1:81");
        assert!(task_behind(&wait(None, other, ends(server, client), 44)).is_none(), "another socket");
    }

    /// Before Linux 6.3.
    #[test]
    fn the_socket_that_is_looked_at_has_an_other_end() {
        let (client, server) = ("127.0.0.1:40000", "127.0.0.1:80");
        let looks_at = |peer: &str| {
            let polled = Some(Box::new(Polled { peer: peer.to_owned(), ..Polled::default() }));
            Span { polled, ..wait(None, None, ends(server, client), 44) }
        };
        assert!(task_behind(&looks_at(server)).is_some_and(|task| is_answer(&looks_at(server), task)));
        assert!(task_behind(&looks_at("127.0.0.1:81")).is_none());
    }

    #[test]
    fn an_unconnected_socket_has_one_end() {
        let asked = ends("0.0.0.0:53", "");
        assert!(task_behind(&wait(None, asked.clone(), ends("0.0.0.0:4000", "127.0.0.1:53"), 44)).is_some());
        assert!(task_behind(&wait(None, asked.clone(), ends("0.0.0.0:4000", "127.0.0.1:54"), 44)).is_none());
        assert!(task_behind(&wait(None, asked, ends("0.0.0.0:4000", ""), 44)).is_none(), "no end is certain");
    }

    #[test]
    fn a_ring_sends_within_a_host_only() {
        let ring = |ready| wait(None, ready, None, 426);
        assert!(task_behind(&ring(ends("127.0.0.1:1", "127.0.0.1:2"))).is_some());
        assert!(task_behind(&ring(ends("10.0.0.1:1", "10.0.0.2:2"))).is_none());
        assert!(task_behind(&ring(None)).is_none());
        assert!(
            task_behind(&wait(None, ends("127.0.0.1:1", "127.0.0.1:2"), None, 232)).is_none(),
            "epoll_wait"
        );
    }
}
