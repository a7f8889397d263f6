//! Waits at a file descriptor: pipes, sockets, epoll and poll.

use whyslow_model::timeline::{Span, State};

use whyslow_model::syscall::SLEEPS;
use whyslow_model::wait::{Detail, Operation, PeerAct, Reason, WaitTarget};

use super::senders::{is_request, sender};
use super::{Class, WaitContext, WaitKind, storage, time};
use crate::stacks::symbol;

pub(super) fn pipe_read(_: &WaitContext<'_>) -> WaitKind {
    WaitKind::target(WaitTarget::PipeData, Class::Idle)
}

pub(super) fn unix_read(wait: &WaitContext<'_>) -> WaitKind {
    if is_accept(wait) {
        return socket_accept(wait);
    }
    WaitKind::target(WaitTarget::UnixData, Class::Idle)
}

/// accept and accept4, by call: in the kernel, accept on a unix socket receives a packet.
fn is_accept(wait: &WaitContext<'_>) -> bool {
    matches!(wait.call, Some(43 | 288)) || wait.passes(&["unix_accept", "do_accept", "__sys_accept4"])
}

pub(super) fn socket_accept(_: &WaitContext<'_>) -> WaitKind {
    WaitKind::target(WaitTarget::Connection, Class::Idle)
}

pub(super) fn socket_read(wait: &WaitContext<'_>) -> WaitKind {
    if is_accept(wait) {
        return socket_accept(wait);
    }
    if wait.passes(&["netlink_recvmsg"]) {
        return WaitKind::target(WaitTarget::NetlinkMessages, Class::Idle);
    }
    if wait.passes(&["unix_dgram_recvmsg", "__unix_dgram_recvmsg", "unix_stream_read_generic"]) {
        return unix_read(wait);
    }
    match peer(wait) {
        Some(peer) => WaitKind::new(
            Reason::Socket,
            Detail::Peer { address: Some(peer), act: PeerAct::Send },
            Class::Peer,
        ),
        // No particular peer: any sender may end this wait.
        None => WaitKind::target(WaitTarget::SocketData, Class::Idle),
    }
}

pub(super) fn socket_write(wait: &WaitContext<'_>) -> WaitKind {
    const CONNECT: &[&str] =
        &["inet_wait_for_connect", "__inet_stream_connect", "inet_stream_connect", "vsock_connect"];
    let act = if wait.passes(CONNECT) || wait.call == Some(42) {
        PeerAct::Accept
    } else if wait.passes(&["sk_stream_wait_close", "tcp_close"]) {
        PeerAct::TakeAtClose
    } else {
        PeerAct::Take
    };
    WaitKind::new(Reason::Socket, Detail::Peer { address: peer(wait), act }, Class::Peer)
}

fn peer(wait: &WaitContext<'_>) -> Option<String> {
    wait.span.target.as_ref()?.peer.clone().filter(|peer| !peer.is_empty())
}

/// epoll_wait(fd, events, n, ms), and epoll_pwait alike; epoll_pwait2 has a pointer as fourth argument.
pub(super) fn epoll(wait: &WaitContext<'_>) -> WaitKind {
    let has_timeout = match wait.call {
        Some(441) => wait.arg(3) != 0,
        // The argument is an int: the kernel reads only the low half.
        _ => (wait.arg(3) as u32 as i32) > 0,
    };
    if has_timeout && wait.ended_by_timer() {
        return in_vain(wait, WaitTarget::EpollEvents, WaitTarget::EpollTimeout);
    }
    events(wait, WaitTarget::EpollEvents)
}

/// poll(fds, n, ms), ppoll(fds, n, timespec): select's timeout is its fifth argument, which is not recorded.
pub(super) fn poll(wait: &WaitContext<'_>) -> WaitKind {
    let (files, has_timeout) = match wait.call {
        Some(7) => (wait.arg(1), (wait.arg(2) as u32 as i32) > 0),
        Some(271) => (wait.arg(1), wait.arg(2) != 0),
        // select(n, read, write, except, timeout).
        Some(23 | 270) => (wait.arg(0), true),
        _ => (1, true),
    };
    if files == 0 && has_timeout {
        return time::own_sleep();
    }
    if has_timeout && wait.ended_by_timer() {
        return in_vain(wait, WaitTarget::PollEvents, WaitTarget::PollTimeout);
    }
    events(wait, WaitTarget::PollEvents)
}

/// Of many descriptors the one of a service that answered is reported; clients of a service have countless ports.
fn events(wait: &WaitContext<'_>, events: WaitTarget) -> WaitKind {
    let request = || wait.span.waker.as_ref().is_some_and(|waker| is_request(wait.span, waker));
    let sent = sender(wait.span).filter(|_| !request());
    let sent = sent.map(|peer| Detail::Peer { address: Some(peer.to_owned()), act: PeerAct::Send });
    let detail = sent.or_else(|| looked_at(wait)).unwrap_or_else(|| events.into());
    WaitKind::new(events.reason(), detail, Class::Idle)
}

/// A timed wait that no event ended, with the peer if the answer can come from one socket only. A service does not wait for answers of its
/// clients.
fn in_vain(wait: &WaitContext<'_>, events: WaitTarget, timer: WaitTarget) -> WaitKind {
    let serves = wait.span.polled.as_ref().is_some_and(|polled| polled.serves);
    match looked_at(wait).filter(|_| !serves) {
        Some(detail) => WaitKind::new(events.reason(), detail, Class::Peer),
        None => time::timeout(timer),
    }
}

fn looked_at(wait: &WaitContext<'_>) -> Option<Detail> {
    let polled = wait.span.polled.as_ref().filter(|polled| !polled.peer.is_empty())?;
    let act = if polled.connecting { PeerAct::Accept } else { PeerAct::Send };
    Some(Detail::Peer { address: Some(polled.peer.clone()), act })
}

/// A ring may hold any kind of request: the task or interrupt that completes one shows whether it was for a disk.
pub(super) fn io_uring(wait: &WaitContext<'_>) -> WaitKind {
    const BLOCK: &[&str] =
        &["bio_endio", "blk_mq_end_request", "blk_update_request", "blkdev_bio_end_io_async"];
    let waker = wait.span.waker.as_ref().and_then(|waker| waker.stack);
    if wait.stacks.kernel(waker).iter().any(|frame| BLOCK.contains(&symbol(frame))) {
        return storage::io(wait, Operation::IoUring);
    }
    WaitKind::target(WaitTarget::Completions, Class::Idle)
}

/// With the name of the file, if it is known.
pub(super) fn file_lock(wait: &WaitContext<'_>) -> WaitKind {
    lock_on_file(wait.span, false)
}

fn lock_on_file(span: &Span, retried: bool) -> WaitKind {
    let target = span.target.as_ref().filter(|target| !target.name.is_empty());
    let file = target.map(|target| target.name.clone());
    WaitKind::new(Reason::FileLock, Detail::FileLock { file, retried }, Class::Lock)
}

/// A task that needs a lock tries again soon; a task that checks once a minute whether the lock is free has other work, or stands by.
const SOON_NS: u64 = 2_000_000_000;

/// A task's own sleep right after a lock on a file was refused, for at least the second time: it lasts until the next try.
pub(crate) fn retried(span: &Span, kind: WaitKind) -> WaitKind {
    let is_soon = span.woken_ns.saturating_sub(span.at_ns) <= SOON_NS;
    let is_nap = kind.detail == Detail::Target(WaitTarget::OwnSleep);
    if span.refused && is_nap && is_soon { lock_on_file(span, true) } else { kind }
}

/// Without a stack: by system call and file.
pub(super) fn ask_call(wait: &WaitContext<'_>) -> Option<WaitKind> {
    if wait.span.state == State::Io {
        return None;
    }
    match wait.call? {
        0 | 17 | 19 | 45 | 47 | 299 => read(wait),
        1 | 18 | 20 | 44 | 46 | 307 => write(wait),
        42 => Some(socket_write(wait)),
        43 | 288 => Some(socket_accept(wait)),
        7 | 23 | 270 | 271 => Some(poll(wait)),
        232 | 281 | 441 => Some(epoll(wait)),
        call if SLEEPS.contains(&call) => Some(time::own_sleep()),
        426 => Some(io_uring(wait)),
        // msync, fsync, fdatasync, sync, sync_file_range, syncfs: any wait inside one of these calls is for it.
        26 | 74 | 75 | 162 | 277 | 306 if wait.span.state == State::Blocked => {
            let call = wait.call_name().unwrap_or_default();
            Some(WaitKind::new(Reason::Writeback, Detail::Synced { call }, Class::Dependency))
        }
        _ => None,
    }
}

fn kind<'a>(wait: &WaitContext<'a>) -> Option<(&'a str, &'a str)> {
    wait.span.target.as_ref().map(|target| (target.kind.as_str(), target.name.as_str()))
}

fn read(wait: &WaitContext<'_>) -> Option<WaitKind> {
    match kind(wait)? {
        ("pipe", _) => Some(pipe_read(wait)),
        ("socket", "unix" | "AF_UNIX") => Some(unix_read(wait)),
        ("socket", _) => Some(socket_read(wait)),
        ("anon", "[eventfd]") => Some(WaitKind::target(WaitTarget::EventfdCount, Class::Idle)),
        ("anon", "[timerfd]") => Some(time::timeout(WaitTarget::TimerfdTimer)),
        ("anon", "inotify") => Some(WaitKind::target(WaitTarget::FileChanges, Class::Idle)),
        ("chr", name) if name.starts_with("tty") || name.starts_with("pts") => {
            Some(WaitKind::target(WaitTarget::TerminalInput, Class::Idle))
        }
        _ => None,
    }
}

fn write(wait: &WaitContext<'_>) -> Option<WaitKind> {
    match kind(wait)? {
        ("pipe", _) => Some(WaitKind::target(WaitTarget::PipeReader, Class::Dependency)),
        ("socket", "unix" | "AF_UNIX") => Some(WaitKind::target(WaitTarget::UnixReader, Class::Dependency)),
        ("socket", _) => Some(socket_write(wait)),
        _ => None,
    }
}
