//! Each pathology is made in a network namespace of the test's own, by threads of the test process.

use std::fs;
use std::io::Read as _;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Instant;

use super::waiting::{SLEEPS, WATCHES};
use super::*;
use crate::listeners;

const SECOND: u64 = 1_000_000_000;
/// A SYN is retransmitted after one second (TCP_TIMEOUT_INIT), less a jiffy or two.
const FIRST_RETRY_NS: u64 = 980_000_000;

/// One at a time: each sees the connects of all namespaces, and attaching and detaching disturbs the others.
static ALONE: Mutex<()> = Mutex::new(());

/// Run `f` on a thread in a new network namespace whose loopback is up.
fn in_own_netns<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let inside = move || {
        // SAFETY: concerns this thread only.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "root may unshare");
        loopback_up();
        f()
    };
    thread::spawn(inside).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn loopback_up() {
    // SAFETY: an all-zero ifreq is valid, and the name fits.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        assert!(socket >= 0);
        let socket = OwnedFd::from_raw_fd(socket);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l'.cast_signed();
        request.ifr_name[1] = b'o'.cast_signed();
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        assert_eq!(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request), 0);
    }
}

fn tid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    u32::try_from(unsafe { libc::gettid() }).unwrap()
}

/// A counter of TcpExt in this thread's network namespace.
fn counter(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = text.lines().filter(|l| l.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|n| n == name).unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

/// The kernel sends no event when such a counter moves, so this reads it every 5 ms.
fn await_counter(name: &str, least: u64) {
    await_that(name, || counter(name) >= least);
}

fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}: never came");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Length of the only listener's accept queue (its rx_queue, in hex).
fn queued(v6: bool) -> u32 {
    let file = if v6 { "tcp6" } else { "tcp" };
    let text = fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
    let listener = text.lines().find(|l| l.split_whitespace().nth(3) == Some("0A")).unwrap();
    let queues = listener.split_whitespace().nth(4).unwrap();
    u32::from_str_radix(queues.split_once(':').unwrap().1, 16).unwrap()
}

/// Connect and send something. With SYN cookies, and a third ACK that met a full queue, the server does not know of the connection until
/// data come.
fn connect_and_speak(to: SocketAddr) -> (TcpStream, Duration) {
    let began = Instant::now();
    let mut stream = TcpStream::connect(to).unwrap();
    let took = began.elapsed();
    stream.write_all(b"x").unwrap();
    (stream, took)
}

/// Bits for a test to draw from; printed, so that a failure can be reported.
fn draw() -> u64 {
    let mut bytes = [0; 8];
    fs::File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    let bits = u64::from_ne_bytes(bytes);
    println!("draw {bits:#x}");
    bits
}

/// A listener whose accept queue is full, and the connections that fill it.
struct Full {
    listener: TcpListener,
    at: SocketAddr,
    backlog: u32,
    fill: Vec<TcpStream>,
}

fn full_listener(ip: &str, bits: u64) -> Full {
    let port = 20_000 + (bits % 10_000) as u16;
    let backlog = (bits >> 32) as u32 % 4;
    let at = SocketAddr::new(ip.parse().unwrap(), port);
    let listener = TcpListener::bind(at).unwrap();
    // SAFETY: a second listen() only changes the backlog.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), backlog as i32) }, 0);
    // sk_acceptq_is_full() is "more than", so a backlog of n holds n + 1.
    let fill = (0..=backlog).map(|_| connect_and_speak(at).0).collect();
    await_that("a full queue", || queued(at.is_ipv6()) == backlog + 1);
    Full { listener, at, backlog, fill }
}

impl Full {
    /// Accept the connections that fill the queue and `more`.
    fn accept(&self, more: usize) -> Vec<TcpStream> {
        (0..self.fill.len() + more).map(|_| self.listener.accept().unwrap().0).collect()
    }
}

/// A socket with a connect that was begun and not waited for.
fn begin_connect(to: SocketAddr) -> OwnedFd {
    let SocketAddr::V4(v4) = to else { panic!("IPv4 only") };
    // SAFETY: the address is a whole sockaddr_in.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0);
        assert!(fd >= 0);
        let mut addr: libc::sockaddr_in = std::mem::zeroed();
        addr.sin_family = libc::AF_INET as u16;
        addr.sin_port = v4.port().to_be();
        addr.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
        let size = size_of::<libc::sockaddr_in>() as u32;
        assert_eq!(libc::connect(fd, (&raw const addr).cast(), size), -1, "it is pending");
        OwnedFd::from_raw_fd(fd)
    }
}

/// Wait in epoll until the socket is connected.
fn await_in_epoll(socket: &OwnedFd) {
    // SAFETY: the event is ours.
    unsafe {
        let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(0));
        let mut event = libc::epoll_event { events: libc::EPOLLOUT as u32, u64: 0 };
        let (at, add) = (epoll.as_raw_fd(), libc::EPOLL_CTL_ADD);
        assert_eq!(libc::epoll_ctl(at, add, socket.as_raw_fd(), &raw mut event), 0);
        assert_eq!(libc::epoll_wait(at, &raw mut event, 1, 30_000), 1);
    }
}

/// Wait in poll until the socket is connected.
fn await_in_poll(socket: &OwnedFd) {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one pollfd, ours.
    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 30_000) }, 1);
}

fn row_of(connect: &mut Connect<'_>, pid: u32) -> table::Connect {
    let rows = connect.rows().unwrap();
    let mut mine = rows.into_iter().filter(|r| r.pid == pid);
    let row = mine.next().unwrap_or_else(|| panic!("no row of {pid}"));
    assert_eq!(mine.next(), None, "one peer, one row");
    row
}

/// Were all SYNs that the kernel of this namespace retransmitted seen? A kernel may run no BPF program while a thread of its sandbox's
/// agent is on a CPU; a softirq on top of it, with all the timers that are due, is then not seen. (ftrace reported the retries of such a
/// softirq, and no program of any process ran.)
fn all_retries_seen(connect: &mut Connect<'_>) -> bool {
    let own = std::process::id();
    let seen: u64 = connect.rows().unwrap().iter().filter(|r| r.tgid == own).map(|r| r.retried).sum();
    let sent = counter("TCPSynRetrans");
    if seen < sent {
        println!("{sent} SYNs were retransmitted, {seen} seen");
    }
    seen >= sent
}

/// Run `f` until it returns true: it returns false if the kernel hid the events that it is about.
fn where_all_is_seen(f: impl Fn() -> bool + Clone + Send + 'static) {
    assert!((0..4).any(|_| in_own_netns(f.clone())), "some of four times everything is seen");
}

fn blocking_clients_pay_one_retry(ip: &'static str) {
    where_all_is_seen(move || {
        let bits = draw();
        let mut slot = MaybeUninit::uninit();
        let mut connect = Connect::start(&mut slot).unwrap();
        let full = full_listener(ip, bits);
        let at = full.at;
        let n = 1 + (bits >> 48) as usize % 4;
        let client = move || {
            let (stream, took) = connect_and_speak(at);
            (tid(), took, stream)
        };
        let clients: Vec<_> = (0..n).map(|_| thread::spawn(client)).collect();
        await_counter("ListenOverflows", n as u64);
        let _accepted = full.accept(n);
        let clients: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        if !all_retries_seen(&mut connect) {
            return false;
        }
        for (pid, took, _stream) in clients {
            let row = row_of(&mut connect, pid);
            assert_eq!(row.peer, at.to_string());
            assert_eq!((row.count, row.done, row.retried, row.prompt), (1, 1, 1, 0), "{row:?}");
            // Clients that come at once may meet the full queue once more, with the third ACK: none waits for an answer.
            assert_eq!(row.abandoned, row.unanswered, "{row:?}");
            let took = took.as_nanos() as u64;
            assert!(row.blocked_ns >= FIRST_RETRY_NS && row.blocked_ns <= took, "took {took}: {row:?}");
            assert_eq!((row.watched, row.watched_ns), (0, 0));
        }
        let filler = row_of(&mut connect, tid());
        assert_eq!((filler.done, filler.prompt, filler.retried), (full.fill.len() as u64, filler.done, 0));
        assert!(filler.prompt_ns > 0 && filler.blocked_ns == 0);

        let rows = listeners::full(&connect).unwrap();
        let found = rows.iter().find(|l| l.netns == filler.netns).expect("the listener is reported");
        assert_eq!((found.local.clone(), found.limit), (at.to_string(), full.backlog));
        assert_eq!(found.tgid, std::process::id());
        assert!(found.overflows >= n as u64, "{found:?}");
        assert_eq!(connect.lost(), 0);
        true
    });
}

#[test]
fn root_blocking_clients_of_a_full_queue_pay_one_retry() {
    blocking_clients_pay_one_retry("127.0.0.1");
}

#[test]
fn root_blocking_clients_over_ipv6_pay_one_retry() {
    blocking_clients_pay_one_retry("::1");
}

#[test]
fn root_a_connect_that_was_fired_and_forgotten_costs_nobody() {
    where_all_is_seen(|| {
        let mut slot = MaybeUninit::uninit();
        let mut connect = Connect::start(&mut slot).unwrap();
        let full = full_listener("127.0.0.1", draw());
        let at = full.at;
        let worker = move || {
            let _forgotten = begin_connect(at);
            await_counter("TCPSynRetrans", 1);
            tid()
        };
        let pid = thread::spawn(worker).join().unwrap();
        if !all_retries_seen(&mut connect) {
            return false;
        }
        let row = row_of(&mut connect, pid);
        assert_eq!((row.count, row.done, row.retried, row.abandoned), (1, 0, 1, 1), "{row:?}");
        assert_eq!((row.blocked_ns, row.watched_ns), (0, 0), "{row:?}");
        assert_eq!(connect.lost(), 0);
        true
    });
}

#[test]
fn root_a_client_in_epoll_is_blocked_by_its_only_connect() {
    where_all_is_seen(|| {
        let mut slot = MaybeUninit::uninit();
        let mut connect = Connect::start(&mut slot).unwrap();
        let full = full_listener("127.0.0.1", draw());
        let at = full.at;
        let client = thread::spawn(move || {
            let began = Instant::now();
            let socket = begin_connect(at);
            await_in_epoll(&socket);
            (tid(), began.elapsed())
        });
        await_counter("ListenOverflows", 1);
        let _accepted = full.accept(1);
        let (pid, took) = client.join().unwrap();
        if !all_retries_seen(&mut connect) {
            return false;
        }
        let row = row_of(&mut connect, pid);
        assert_eq!((row.done, row.retried, row.abandoned, row.watched), (1, 1, 0, 1), "{row:?}");
        assert!(
            row.blocked_ns >= FIRST_RETRY_NS && row.blocked_ns <= took.as_nanos() as u64,
            "{took:?}: {row:?}"
        );
        assert_eq!(connect.lost(), 0);
        true
    });
}

#[test]
fn root_a_client_that_waited_before_the_window_counts_from_its_start() {
    in_own_netns(|| {
        let full = full_listener("127.0.0.1", draw());
        let at = full.at;
        let (tell, reported) = mpsc::channel();
        let client = thread::spawn(move || {
            tell.send(tid()).unwrap();
            let socket = begin_connect(at);
            await_in_poll(&socket);
        });
        let pid = reported.recv().unwrap();
        await_counter("TCPSynRetrans", 1);
        let mut slot = MaybeUninit::uninit();
        let began = Instant::now();
        let mut connect = Connect::start(&mut slot).unwrap();
        await_counter("TCPSynRetrans", 2);
        let row = row_of(&mut connect, pid);
        let window = began.elapsed().as_nanos() as u64;
        assert_eq!((row.count, row.done, row.retried), (1, 0, 1), "{row:?}");
        assert!(row.blocked_ns > 0 && row.blocked_ns <= window, "{window}: {row:?}");
        let _accepted = full.accept(1);
        client.join().unwrap();
        assert_eq!(row_of(&mut connect, pid).done, 1);
        assert_eq!(connect.lost(), 0);
    });
}

/// The event of a retry is lost if the kernel hides the task that the softirq came on: here no program listens to it.
#[test]
fn root_a_retry_that_was_not_seen_is_on_the_sockets_own_count() {
    in_own_netns(|| {
        let mut slot = MaybeUninit::uninit();
        let mut connect = Connect::start(&mut slot).unwrap();
        connect.skel.links.sent_again = None;
        let full = full_listener("127.0.0.1", draw());
        let at = full.at;
        let (tell, reported) = mpsc::channel();
        let client = thread::spawn(move || {
            tell.send(tid()).unwrap();
            connect_and_speak(at).1
        });
        let pid = reported.recv().unwrap();
        await_counter("TCPSynRetrans", 1);
        let unseen = row_of(&mut connect, pid);
        assert_eq!((unseen.retried, unseen.blocked_ns), (0, 0), "{unseen:?}");
        listeners::full(&connect).unwrap();
        let open = row_of(&mut connect, pid);
        assert_eq!((open.done, open.retried, open.abandoned), (0, 1, 0), "{open:?}");
        assert!(open.blocked_ns >= FIRST_RETRY_NS, "{open:?}");
        let _accepted = full.accept(1);
        let took = client.join().unwrap().as_nanos() as u64;
        let ended = row_of(&mut connect, pid);
        assert_eq!((ended.done, ended.retried, ended.prompt), (1, 1, 0), "{ended:?}");
        assert!(ended.blocked_ns > open.blocked_ns && ended.blocked_ns <= took, "{took}: {ended:?}");
        assert_eq!(connect.lost(), 0);
    });
}

/// The window ends within the first timeout of its last connect.
#[test]
fn root_a_client_that_had_to_wait_before_waits_from_its_first_syn() {
    where_all_is_seen(|| {
        let mut slot = MaybeUninit::uninit();
        let mut connect = Connect::start(&mut slot).unwrap();
        let full = full_listener("127.0.0.1", draw());
        let at = full.at;
        let (tell, reported) = mpsc::channel();
        let client = thread::spawn(move || {
            let first = connect_and_speak(at);
            tell.send((tid(), first.1, Instant::now())).unwrap();
            (connect_and_speak(at), first)
        });
        await_counter("ListenOverflows", 1);
        let mut accepted = vec![full.listener.accept().unwrap().0];
        let (pid, took, again) = reported.recv().unwrap();
        await_that("a part of the first timeout", || again.elapsed() > Duration::from_millis(300));
        listeners::full(&connect).unwrap();
        let least = (took + again.elapsed()).as_nanos() as u64;
        let row = row_of(&mut connect, pid);
        let is_seen = all_retries_seen(&mut connect);
        accepted.extend(full.accept(1));
        client.join().unwrap();
        if is_seen {
            assert_eq!((row.count, row.done, row.retried), (2, 1, 1), "{row:?}");
            let slack = took.as_nanos() as u64 / 10;
            assert!(
                row.blocked_ns + slack > least && row.blocked_ns < least + 2 * SECOND,
                "{least}: {row:?}"
            );
        }
        is_seen
    });
}

/// A third ACK that the listener never saw, without the race that a full queue needs: its socket filter takes only SYNs.
fn take_only_syns(listener: &TcpListener, on: bool) {
    let code = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    // Byte 13 of the TCP header holds the flags; SYN is 2.
    let mut program =
        [code(0x30, 13, 0, 0), code(0x45, 2, 0, 1), code(0x06, u32::MAX, 0, 0), code(0x06, 0, 0, 0)];
    let filter = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    let how = if on { libc::SO_ATTACH_FILTER } else { libc::SO_DETACH_FILTER };
    let size = size_of::<libc::sock_fprog>() as u32;
    // SAFETY: the program outlives the call, which copies it.
    let done = unsafe {
        libc::setsockopt(listener.as_raw_fd(), libc::SOL_SOCKET, how, (&raw const filter).cast(), size)
    };
    assert_eq!(done, 0);
}

#[test]
fn root_a_client_whose_third_ack_was_dropped_waits_for_its_first_answer() {
    in_own_netns(|| {
        let mut slot = MaybeUninit::uninit();
        let mut connect = Connect::start(&mut slot).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        take_only_syns(&listener, true);
        let client = thread::spawn(move || {
            let began = Instant::now();
            let (mut stream, _) = connect_and_speak(at);
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 1);
            (tid(), began.elapsed())
        });
        await_counter("TCPTimeouts", 2);
        take_only_syns(&listener, false);
        listener.accept().unwrap().0.write_all(b"y").unwrap();
        let (pid, took) = client.join().unwrap();
        let row = row_of(&mut connect, pid);
        assert_eq!(
            (row.done, row.prompt, row.retried, row.unanswered, row.abandoned),
            (1, 1, 0, 1, 0),
            "{row:?}"
        );
        let took = took.as_nanos() as u64;
        assert!(row.blocked_ns >= took / 2 && row.blocked_ns <= took, "{took}: {row:?}");
        assert_eq!(connect.lost(), 0);
    });
}

/// Connects to a port without a listener, `times` with a rest after each, while `elsewhere` is asked in between, too.
fn refused(at: SocketAddr, times: u32, elsewhere: Option<SocketAddr>) {
    for _ in 0..times {
        assert_eq!(TcpStream::connect(at).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
        if let Some(other) = elsewhere {
            TcpStream::connect(other).unwrap();
        }
        thread::sleep(Duration::from_millis(40));
    }
}

#[test]
fn root_refused_client_row_has_its_sleep_and_its_absent_server() {
    in_own_netns(|| {
        let mut slot = MaybeUninit::uninit();
        let began = Instant::now();
        let mut connect = Connect::start(&mut slot).unwrap();
        connect.begin().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        drop(TcpStream::connect(at).unwrap());
        drop(listener);
        refused(at, 3, None);
        let listener = TcpListener::bind(at).unwrap();
        drop(TcpStream::connect(at).unwrap());
        let row = row_of(&mut connect, tid());
        assert_eq!((row.count, row.done, row.refused, row.naps), (5, 2, 3, 3), "{row:?}");
        let slept = Duration::from_nanos(row.slept_ns);
        let rests = Duration::from_millis(120);
        // CPU time before the refusal, up to a tick, counts as time after it.
        assert!(slept >= rests.mul_f64(0.8) && slept <= began.elapsed(), "{slept:?}");
        let server = row.server.unwrap();
        assert_eq!((server.tgid, server.closed, server.ended), (std::process::id(), 1, 0));
        let absent = Duration::from_nanos(server.absent_ns);
        assert!(absent >= rests && absent <= began.elapsed(), "{absent:?}");
        drop(listener);
    });
}

#[test]
fn root_refused_client_that_asks_elsewhere_is_charged_no_sleep() {
    in_own_netns(|| {
        let mut slot = MaybeUninit::uninit();
        let mut connect = Connect::start(&mut slot).unwrap();
        connect.begin().unwrap();
        let [gone, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let (at, elsewhere) = (gone.local_addr().unwrap(), other.local_addr().unwrap());
        drop(gone);
        refused(at, 3, Some(elsewhere));
        let rows = connect.rows().unwrap();
        let row = rows.iter().find(|row| row.pid == tid() && row.refused > 0).unwrap();
        assert_eq!((row.peer.as_str(), row.refused, row.naps), (at.to_string().as_str(), 3, 0), "{row:?}");
        assert!(rows.iter().all(|row| row.slept_ns == 0), "{rows:?}");
    });
}

/// Each round of attempts asks all addresses of a name.
#[test]
fn root_a_sleep_after_a_round_of_addresses_is_for_the_first_of_them() {
    in_own_netns(|| {
        let mut slot = MaybeUninit::uninit();
        let mut connect = Connect::start(&mut slot).unwrap();
        connect.begin().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let round = ["127.0.0.2", "127.0.0.1"].map(|ip| SocketAddr::new(ip.parse().unwrap(), port));
        for _ in 0..3 {
            round.iter().for_each(|at| assert!(TcpStream::connect(at).is_err()));
            thread::sleep(Duration::from_millis(40));
        }
        let rows = connect.rows().unwrap();
        let naps = |at: SocketAddr| rows.iter().find(|row| row.peer == at.to_string()).unwrap().naps;
        assert_eq!(round.map(naps), [2, 0], "{rows:?}");
    });
}

#[test]
fn root_a_listening_socket_is_counted_once() {
    in_own_netns(|| {
        let mut slot = MaybeUninit::uninit();
        let mut connect = Connect::start(&mut slot).unwrap();
        connect.begin().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let doors = |connect: &Connect<'_>| {
            let all = connect.doors();
            let (_, door) = all.iter().find(|(key, _)| key.port == u32::from(at.port())).unwrap();
            (door.open, door.closed)
        };
        assert_eq!(doors(&connect), (1, 0));
        connect.seed(true);
        connect.listening().unwrap();
        assert_eq!(doors(&connect), (1, 0), "a walk meets it once more");
        drop(listener);
        assert_eq!(doors(&connect), (0, 1));
    });
}

fn pending(pid: u32, port: u32, from: u64, until: u64, how: u32) -> connect_pending {
    let key = connect_key { pid, tgid: pid, port, netns: 1, ..Default::default() };
    connect_pending {
        key,
        start_ns: from,
        end_ns: until,
        looked_ns: until,
        retries: 1,
        how,
        ..Default::default()
    }
}

fn shared(retried: &[connect_pending]) -> Vec<table::Connect> {
    let mut rows = BTreeMap::new();
    for p in retried {
        note_retried(&mut rows, p);
    }
    share_out(&mut rows, retried);
    rows.into_values().collect()
}

#[test]
fn overlapping_connects_of_one_task_block_it_once() {
    let rows = shared(&[
        pending(5, 80, 0, 2 * SECOND, WATCHES),
        pending(5, 81, SECOND, 3 * SECOND, WATCHES),
        pending(6, 80, 0, SECOND, SLEEPS),
    ]);
    let of = |pid| rows.iter().filter(|r| r.pid == pid).map(|r| r.blocked_ns).sum::<u64>();
    assert_eq!((of(5), of(6)), (3 * SECOND, SECOND));
    assert_eq!(rows.iter().map(|r| r.retried_ns).sum::<u64>(), 5 * SECOND);
}

#[test]
fn a_busy_event_loop_is_blocked_in_part() {
    let busy = |p| connect_pending { wakes: 1_000, ..p };
    let rows = shared(&[
        busy(pending(5, 80, 0, 2 * SECOND, WATCHES)),
        busy(pending(5, 80, SECOND, 2 * SECOND, WATCHES)),
    ]);
    assert_eq!((rows[0].blocked_ns, rows[0].watched_ns), (0, 2 * SECOND));
    assert_eq!(rows[0].watched_share_ns, SECOND + SECOND / 2);
}

#[test]
fn addresses_print_in_their_own_family() {
    let mut v4 = [0; 16];
    v4[10..].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
    assert_eq!(socket_address(v4, 80).to_string(), "127.0.0.1:80");
    let mut v6 = [0; 16];
    v6[15] = 1;
    assert_eq!(socket_address(v6, 80).to_string(), "[::1]:80");
    assert_eq!(socket_address([0; 16], 80).to_string(), "[::]:80");
}

/// Processes with more open files than an iterator passes at one reading (a million), ended when this is dropped.
struct ManyFiles(libc::pid_t);

impl ManyFiles {
    const FILES: u64 = 1_040_000;

    /// `None`: we may not have so many.
    fn new() -> Option<Self> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is to a local.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
        let most = limit.rlim_max.saturating_sub(500).min(Self::FILES);
        let others = Self::FILES.checked_div(most).filter(|others| *others < 100)?;
        let (mut from, to) = std::io::pipe().unwrap();
        // SAFETY: the child calls nothing that allocates, and never returns.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            Self::open_files(limit.rlim_max, most, others, to.as_raw_fd());
        }
        drop(to);
        from.read_exact(&mut vec![0; others as usize + 1]).expect("all have their files");
        Some(ManyFiles(pid))
    }

    /// In the child: have `files`, and so have `others` that are forked then; each reports it.
    fn open_files(limit: u64, files: u64, others: u64, tell: i32) -> ! {
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        // SAFETY: numbers, and pointers to locals.
        unsafe {
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
            for _ in 0..files {
                if libc::dup(2) < 0 {
                    libc::_exit(1);
                }
            }
            for _ in 0..others {
                if libc::fork() == 0 {
                    break;
                }
            }
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::write(tell, [1].as_ptr().cast(), 1);
            libc::close(tell);
            loop {
                libc::pause();
            }
        }
    }
}

impl Drop for ManyFiles {
    fn drop(&mut self) {
        // SAFETY: our own child, which no other thread waits for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

#[test]
fn root_a_listener_is_found_behind_a_million_open_files() {
    let Some(many) = ManyFiles::new() else {
        eprintln!("not run: too few open files are allowed");
        return;
    };
    let mut slot = MaybeUninit::uninit();
    let probe = Connect::start(&mut slot).unwrap();
    // The holders come before it in the walk: pids go up.
    let mut child = std::process::Command::new("sleep").arg("60").stdin(listening()).spawn().unwrap();
    // With as much time as it takes on a busy host.
    let seen = walk_within(listeners::WHAT, &probe.walk, std::time::Duration::MAX).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    drop(many);
    let rows = seen.chunks_exact(size_of::<connect_listener>()).map(value::<connect_listener>);
    assert!(rows.into_iter().any(|row| row.tgid == child.id()));
}

/// A listening socket on the loopback.
fn listening() -> std::os::fd::OwnedFd {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().into()
}
