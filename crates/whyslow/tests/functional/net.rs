//! `whyslow net` on the live host: packets that wait for their CPU, and hosts that are asked. All traffic stays on loopback.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use whyslow_faults::Draw;

use super::exam::{document, status, text, whyslow};

#[test]
fn root_net_watch_reports_stalls_or_that_none_was_seen() {
    let output = whyslow().args(["net", "--watch", "--for", "500ms", "--json"]).output().unwrap();
    let document = document(&text(&output.stdout));
    assert_eq!((status(&output), document["schema"].as_u64()), (0, Some(0)));
    let missing = document["missing"].as_array().unwrap();
    assert!(missing.iter().all(|note| note["what"] != "packet stalls"), "{missing:?}");
    for stall in document["stalls"].as_array().into_iter().flatten() {
        assert!(stall["worst_s"].as_f64().unwrap() >= 0.005, "{stall}");
        assert!(stall["culprit"].is_object() != stall["unknown"].is_string(), "{stall}");
    }
    let output = whyslow().args(["net", "--watch", "--for", "300ms"]).output().unwrap();
    let page = text(&output.stdout);
    let is_answer = |line: &str| {
        line.contains("its packets")
            || line.contains("to wait for its CPU")
            || line.contains("waited for its CPU")
    };
    assert!(status(&output) == 0 && page.lines().any(is_answer), "{page}");
    let unasked = whyslow().args(["net"]).output().unwrap();
    assert_eq!((status(&unasked), unasked.stdout.is_empty()), (2, true), "a target or --watch is required");
}

/// The answer of whyslow about a host that it asked, and its account of the pings.
fn asked(args: &[&str]) -> (Output, Value) {
    let window = if args.contains(&"--count") { &[][..] } else { &["--for", "600ms"] };
    let output = whyslow().arg("net").args(args).arg("--json").args(window).output().unwrap();
    let page = text(&output.stdout);
    let pings = if page.is_empty() { Value::Null } else { document(&page)["pings"].clone() };
    (output, pings)
}

#[test]
fn root_net_asks_a_host_by_icmp_tcp_and_udp() {
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = |at: SocketAddr| at.port().to_string();
    let open_port = port(open.local_addr().unwrap());
    // A port that is free, and stays so: it is bound, and does not listen.
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap();
    let closed_port = port(closed.local_addr().unwrap());
    for (args, answer) in [
        (vec!["127.0.0.1"], "reply"),
        (vec!["::1", "--icmp"], "reply"),
        (vec!["localhost", "-4", "--tcp", &open_port], "syn-ack"),
        (vec!["127.0.0.1", "--tcp", &closed_port], "reset"),
        (vec!["127.0.0.1", "--interval", "5ms", "--count", "20"], "reply"),
    ] {
        let (output, pings) = asked(&args);
        assert_eq!(status(&output), 0, "{args:?}: {}", text(&output.stderr));
        let (sent, answered) = (pings["sent"].as_u64().unwrap(), pings["answered"].as_u64().unwrap());
        assert!((10..=60).contains(&sent) && answered == sent, "{args:?}: {pings}");
        assert_eq!(pings["answers"][0]["answer"], answer, "{args:?}: {pings}");
        let times = &pings["times"];
        let (p50, worst) = (times["p50_s"].as_f64().unwrap(), times["worst_s"].as_f64().unwrap());
        assert!(p50 > 0.0 && p50 <= worst && worst < 1.0, "{args:?}: {times}");
        assert!(pings["unwatched"].is_string(), "{args:?}: {pings}");
    }
}

#[test]
fn root_net_asks_a_host_by_icmp_and_a_port_in_turn() {
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = open.local_addr().unwrap().port().to_string();
    let (_, pings) = asked(&["127.0.0.1", "--icmp", "--tcp", &port, "--count", "31"]);
    assert_eq!((&pings["sent"], &pings["answered"], &pings["left_out"]), (&31.into(), &31.into(), &0.into()));
    let answers =
        serde_json::json!([{ "answer": "syn-ack", "count": 16 }, { "answer": "reply", "count": 15 }]);
    assert_eq!((&pings["answers"], &pings["with_icmp"]), (&answers, &true.into()), "{pings}");
}

#[test]
fn root_net_serve_answers_requests_until_it_is_ended() {
    let server = Server::start();
    let (_, pings) = asked(&["127.0.0.1", "--udp", &server.port, "--count", "30"]);
    assert_eq!((&pings["sent"], &pings["answered"]), (&30.into(), &30.into()), "{pings}");
    // Datagrams of others have no answer, so that no server answers another for ever.
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(b"hello", format!("127.0.0.1:{}", server.port)).unwrap();
    let (_, again) = asked(&["127.0.0.1", "--udp", &server.port, "--count", "5"]);
    stranger.set_nonblocking(true).unwrap();
    assert!(again["answered"] == 5 && stranger.recv(&mut [0; 64]).is_err(), "{again}");
    let output = server.end();
    let said = text(&output.stdout);
    assert!(status(&output) == 0 && said.contains("1 datagram of other programs ignored"), "{said}");
}

#[test]
fn root_net_saves_answers_and_reports_them_later() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pings.why");
    let args = ["net", "127.0.0.1", "--watch", "--count", "30", "-o"];
    let live = whyslow().args(args).arg(&file).output().unwrap();
    let page = text(&live.stdout);
    assert!(status(&live) == 0 && page.contains("127.0.0.1 answered in "), "{page}");
    let later = whyslow().arg("report").arg(&file).arg("--json").output().unwrap();
    let document = document(&text(&later.stdout));
    assert_eq!(document["pings"]["sent"], 30, "{}", document["pings"]);
    let later = whyslow().arg("report").arg(&file).output().unwrap();
    assert!(text(&later.stdout).contains("127.0.0.1 answered in "), "{}", text(&later.stdout));
    assert!(document["pings"]["unwatched"].is_null(), "the packets of this host were watched");
    // Without --watch there is nothing else to report.
    let alone = whyslow().args(["net", "127.0.0.1", "--count", "30", "-o"]).arg(&file).output().unwrap();
    let later = whyslow().arg("report").arg(&file).output().unwrap();
    assert_eq!((status(&alone), status(&later)), (0, 0));
    assert_eq!(text(&later.stdout), text(&alone.stdout));
}

/// A server of whyslow on a free port of loopback, which has begun to answer.
struct Server {
    process: Child,
    port: String,
}

impl Server {
    fn start() -> Self {
        let port = UdpSocket::bind("[::]:0").unwrap().local_addr().unwrap().port().to_string();
        let process = whyslow().args(["net", "--serve", &port]).stdout(Stdio::piped()).spawn().unwrap();
        let mut server = Server { process, port };
        // Until the server has its port, the kernel answers for it.
        let answers = (0..50).map(|_| asked(&["127.0.0.1", "--udp", &server.port, "--count", "20"]).1);
        let is_served = |pings: &Value| {
            pings["answers"]
                .as_array()
                .is_some_and(|all| !all.is_empty() && all.iter().all(|one| one["answer"] == "reply"))
        };
        if !answers.into_iter().any(|pings| is_served(&pings)) {
            server.signal(libc::SIGKILL);
            panic!("no answer of the server: {:?}", server.process.wait());
        }
        server
    }

    fn signal(&mut self, signal: i32) {
        // SAFETY: our own child, which has not been waited for.
        unsafe { libc::kill(self.process.id() as i32, signal) };
    }

    /// What it says when it is ended.
    fn end(mut self) -> Output {
        self.signal(libc::SIGTERM);
        self.process.wait_with_output().unwrap()
    }
}

/// The server is stopped for drawn times. Each is one stall, as long as this test's own clock says.
#[test]
fn timed_net_tells_each_stop_of_a_server_as_one_stall_of_its_length() {
    let mut draw = Draw::of_run("stopped-server", 0);
    let mut server = Server::start();
    let args =
        ["net", "127.0.0.1", "--udp", &server.port.clone(), "--interval", "2ms", "--for", "2s", "--json"];
    let mut prober = whyslow().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut progress = BufReader::new(prober.stderr.take().unwrap()).lines();
    let begun = progress.next().unwrap().unwrap();
    assert!(begun.contains(" s left"), "{begun}");
    let mut stops = Vec::new();
    for _ in 0..4 {
        let (length, pause) = (draw.between(30, 120), draw.between(100, 200));
        let began = Instant::now();
        server.signal(libc::SIGSTOP);
        sleep(Duration::from_millis(length));
        server.signal(libc::SIGCONT);
        stops.push(began.elapsed().as_secs_f64());
        sleep(Duration::from_millis(pause));
    }
    let output = prober.wait_with_output().unwrap();
    server.end();
    let pings = document(&text(&output.stdout))["pings"].clone();
    let told = pings["stalls"].as_array().unwrap();
    let lengths: Vec<f64> = told.iter().map(|stall| stall["length_s"].as_f64().unwrap()).collect();
    // The first late request left up to an interval after the stop; the server had to get a CPU again.
    let is_of = |length: f64, stop: f64| (length - stop).abs() <= 0.002 + 0.005 + 0.05 * stop;
    let is_found = |stop: &f64| lengths.iter().any(|length| is_of(*length, *stop));
    assert!(stops.iter().all(is_found), "{draw}: {stops:?}, told {lengths:?}");
    // A stall of this host itself, with its server or prober, is shorter than any stop.
    let strange = |length: &&f64| **length > 0.025 && !stops.iter().any(|stop| is_of(**length, *stop));
    assert_eq!(lengths.iter().filter(strange).count(), 0, "{draw}: {stops:?}, told {lengths:?}");
    let late: u64 = told.iter().map(|stall| stall["late"].as_u64().unwrap()).sum();
    let alone = pings["alone"].as_u64().unwrap();
    assert_eq!((&pings["lost"], &pings["late"]), (&0.into(), &(late + alone).into()), "{draw}: {pings}");
    // The kernel took the requests in time, and the server did not run.
    let place = &pings["places"][0];
    assert_eq!(place["place"], "target", "{draw}: {pings}");
    assert!(place["late"].as_u64().unwrap() * 10 >= late * 9, "{draw}: {pings}");
    assert_eq!(pings["ruled_out"][0]["what"], "the network between the two hosts", "{draw}: {pings}");
}

/// A request without an answer keeps whyslow no longer than the user wants.
#[test]
fn root_net_ends_when_it_is_told_to_also_while_it_waits_for_answers() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port().to_string();
    let args = ["net", "127.0.0.1", "--udp", &port, "--timeout", "1m", "--count", "3", "--json"];
    let prober = whyslow().args(args).stdout(Stdio::piped()).spawn().unwrap();
    // It has sent all it had to send.
    for _ in 0..3 {
        silent.recv(&mut [0; 64]).unwrap();
    }
    let told = Instant::now();
    // SAFETY: our own child, which has not been waited for.
    unsafe { libc::kill(prober.id() as i32, libc::SIGTERM) };
    let output = prober.wait_with_output().unwrap();
    assert!(told.elapsed() < Duration::from_secs(20), "{:?}", told.elapsed());
    let pings = document(&text(&output.stdout))["pings"].clone();
    assert_eq!((&pings["sent"], &pings["lost"]), (&0.into(), &0.into()), "none is known to be lost: {pings}");
}

#[test]
fn root_net_tells_a_host_that_does_not_answer() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port().to_string();
    let (output, pings) = asked(&["127.0.0.1", "--udp", &port, "--timeout", "50ms", "--count", "7"]);
    assert_eq!((&pings["sent"], &pings["lost"], status(&output)), (&7.into(), &7.into(), 2), "{pings}");
    assert!(pings["times"].is_null() && pings["answers"] == serde_json::json!([]), "{pings}");
    for refused in [vec!["224.0.0.1"], vec!["127.0.0.1", "--interval", "100us"], vec!["no-such-host.invalid"]]
    {
        let (output, _) = asked(&refused);
        let said = text(&output.stderr);
        assert!(status(&output) == 2 && output.stdout.is_empty() && said.contains("cannot "), "{said}");
    }
}
