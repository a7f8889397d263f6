//! Requests to this very host.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use super::clock::monotonic;
use super::*;

const LOOPBACK: [&str; 2] = ["127.0.0.1", "::1"];

fn aim(address: &str, how: PingHow, port: u16) -> Aim {
    Aim {
        address: address.parse().unwrap(),
        scope: 0,
        how,
        port,
        with_icmp: false,
        interval: Duration::from_millis(2),
        count: Some(50),
        timeout: Duration::from_secs(5),
    }
}

fn ask(aim: &Aim) -> (Vec<Ping>, LiveTimes) {
    let live = Live::default();
    let pinger = Pinger::open(aim).unwrap();
    let rows = pinger.run(monotonic(), Duration::from_secs(10), &AtomicBool::new(false), &live);
    (rows, live.now())
}

/// All requests got that answer, after they were sent.
fn all_got(aim: &Aim, answer: &str) {
    let (rows, live) = ask(aim);
    assert_eq!(rows.len(), 50);
    for row in &rows {
        assert_eq!((row.answer.as_str(), &row.error), (answer, &None), "{row:?}");
        assert!(row.answered_ns.unwrap() >= row.sent_ns, "{row:?}");
        assert_eq!(row.port == 0, aim.how == PingHow::Icmp);
    }
    assert!(rows.is_sorted_by_key(|row| row.sent_ns));
    assert_eq!((live.sent, live.answered, live.lost, live.not_sent), (50, 50, 0, 0));
    assert!(live.p50 <= live.p99 && live.p99 <= live.worst && live.worst.is_some(), "{live:?}");
}

#[test]
fn root_a_ping_of_loopback_is_answered() {
    LOOPBACK.iter().for_each(|address| all_got(&aim(address, PingHow::Icmp, 0), "reply"));
}

#[test]
fn root_an_open_port_of_tcp_is_told_from_a_closed_one() {
    for address in LOOPBACK {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        all_got(&aim(address, PingHow::Tcp, port), "syn-ack");
        drop(listener);
        all_got(&aim(address, PingHow::Tcp, port), "reset");
    }
}

#[test]
fn root_no_connection_is_left_at_the_target() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    all_got(&aim("127.0.0.1", PingHow::Tcp, listener.local_addr().unwrap().port()), "syn-ack");
    assert!(listener.accept().is_err());
}

/// A port that nobody listens to.
fn closed_port(address: &str) -> u16 {
    UdpSocket::bind((address, 0)).unwrap().local_addr().unwrap().port()
}

#[test]
fn root_a_server_of_ours_answers() {
    for address in ["127.0.0.1", "127.0.0.2", "::1"] {
        let port = closed_port(address);
        let stop = AtomicBool::new(false);
        let served = thread::scope(|scope| {
            let any = if address == "::1" { "[::]" } else { "0.0.0.0" };
            let (at, stop): (SocketAddr, _) = (format!("{any}:{port}").parse().unwrap(), &stop);
            let server = scope.spawn(move || serve(at, Duration::from_secs(20), stop));
            wait_for_server(address, port);
            all_got(&aim(address, PingHow::Udp, port), "reply");
            stop.store(true, Relaxed);
            server.join().unwrap().unwrap()
        });
        assert!(served.requests > 50 && served.foreign == 1, "{served:?}");
    }
}

/// Asks until it is answered; at last, something that it must not answer.
fn wait_for_server(address: &str, port: u16) {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    socket.connect((address, port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut answer = [0; 64];
    let answered = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(10));
        socket.send(b"whyslow?1234").is_ok_and(|_| socket.recv(&mut answer).is_ok())
    });
    assert!(answered && answer.starts_with(b"whyslow!1234\0"));
    while socket.recv(&mut answer).is_ok() {}
    socket.send(b"GET / HTTP/1.0").unwrap();
    assert!(socket.recv(&mut answer).is_err());
}

#[test]
fn root_a_closed_port_of_udp_refuses() {
    // The kernel limits these errors to about one a second for each host, but not to loopback (icmpv4_xrlim_allow, icmpv6_xrlim_allow).
    LOOPBACK.iter().for_each(|address| {
        all_got(&aim(address, PingHow::Udp, closed_port(address)), "port-unreachable");
    });
}

#[test]
fn root_a_service_that_does_not_know_us_may_answer_what_it_likes() {
    let service = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port();
    let answers = thread::spawn(move || {
        for _ in 0..50 {
            let (_, from) = service.recv_from(&mut [0; 64]).unwrap();
            service.send_to(b"what?", from).unwrap();
        }
    });
    all_got(&aim("127.0.0.1", PingHow::Udp, port), "reply");
    answers.join().unwrap();
}

#[test]
fn root_requests_without_an_answer_are_lost() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let aim = Aim {
        timeout: Duration::from_millis(30),
        ..aim("127.0.0.1", PingHow::Udp, silent.local_addr().unwrap().port())
    };
    let (rows, live) = ask(&aim);
    assert!(rows.iter().all(|row| row.answered_ns.is_none() && row.answer.is_empty()));
    assert_eq!((rows.len(), live.sent, live.lost, live.worst), (50, 50, 50, None));
}

#[test]
fn root_a_stop_ends_it_early() {
    let stop = AtomicBool::new(false);
    let aim = Aim { count: None, interval: Duration::from_secs(60), ..aim("127.0.0.1", PingHow::Icmp, 0) };
    let begin = monotonic();
    let rows = thread::scope(|scope| {
        let pinger = Pinger::open(&aim).unwrap();
        let run = scope.spawn(|| pinger.run(begin, Duration::from_secs(600), &stop, &Live::default()));
        thread::sleep(Duration::from_millis(100));
        stop.store(true, Relaxed);
        run.join().unwrap()
    });
    assert_eq!(rows.len(), 1);
    assert!(monotonic() - begin < 10_000_000_000);
}

#[test]
fn root_it_ends_with_its_window() {
    let aim = Aim { count: None, ..aim("127.0.0.1", PingHow::Icmp, 0) };
    let pinger = Pinger::open(&aim).unwrap();
    let rows = pinger.run(monotonic(), Duration::from_millis(100), &AtomicBool::new(false), &Live::default());
    assert!((1..=50).contains(&rows.len()), "{}", rows.len());
}

#[test]
fn root_after_a_stall_it_does_not_catch_up() {
    let aim = Aim { count: None, ..aim("127.0.0.1", PingHow::Icmp, 0) };
    let begin = monotonic() - 1_000_000_000;
    let window = Duration::from_millis(1020);
    let rows = Pinger::open(&aim).unwrap().run(begin, window, &AtomicBool::new(false), &Live::default());
    assert!(rows[0].late_ns >= 1_000_000_000 && rows.len() < 15, "{} rows", rows.len());
}

#[test]
fn aims_without_sense_are_refused() {
    let good = aim("127.0.0.1", PingHow::Udp, 7);
    let refused = |aim: Aim| Pinger::open(&aim).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused(aim("224.0.0.1", PingHow::Icmp, 0)).contains("multicast"));
    assert!(refused(aim("ff02::1", PingHow::Icmp, 0)).contains("multicast"));
    assert!(refused(aim("255.255.255.255", PingHow::Icmp, 0)).contains("broadcast"));
    assert!(refused(aim("127.255.255.255", PingHow::Udp, 7)).contains("broadcast"));
    assert!(refused(aim("::", PingHow::Icmp, 0)).contains("no address"));
    assert!(refused(aim("fe80::1", PingHow::Icmp, 0)).contains("one link"));
    assert!(refused(aim("127.0.0.1", PingHow::Tcp, 0)).contains("port 0"));
    assert!(refused(Aim { interval: Duration::from_micros(99), ..good.clone() }).contains("longer interval"));
    assert!(refused(Aim { timeout: Duration::ZERO, ..good.clone() }).contains("longer timeout"));
    assert!(refused(Aim { count: Some(MOST + 1), ..good }).contains("fewer"));
}
