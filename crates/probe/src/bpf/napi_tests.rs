use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::bpf::irq::Irq;
use crate::bpf::tested_c::Program;

#[test]
fn the_time_limit_is_in_whole_ticks_and_rounded_up() {
    let ticks = |us, tick_ns| Limits::of(Some(300), us, tick_ns).ticks;
    assert_eq!((ticks(Some(8000), 4_000_000), ticks(Some(2000), 4_000_000)), (2, 1));
    assert_eq!((ticks(Some(20_000), 10_000_000), ticks(Some(2001), 1_000_000)), (2, 3));
    assert_eq!((ticks(None, 4_000_000), ticks(Some(u64::MAX), 0)), (2, u64::MAX));
}

/// Feeds polls, one a line ("run work ticks ns"), to the C that the kernel runs, and prints the sums.
const HARNESS: &str = r#"
#include <stdio.h>
#include "napi_split.bpf.h"
int main(void)
{
	struct napi_cpu c = { 0 };
	unsigned long long budget, limit, run, work, ticks, ns;

	if (scanf("%llu %llu", &budget, &limit) != 2)
		return 1;
	while (scanf("%llu %llu %llu %llu", &run, &work, &ticks, &ns) == 4)
		if (napi_polled(&c, run, work, budget, ticks, limit))
			napi_stopped(&c, ns);
	printf("%llu %llu %llu %llu %llu %llu %llu %llu %llu\n", c.runs, c.polls, c.packets, c.budget_stops, c.budget_ns,
	       c.budget_packets, c.time_stops, c.time_ns, c.time_packets);
	return 0;
}
"#;

/// One run of the softirq as the kernel makes it: polls until no device has packets, or a limit is met.
#[derive(Debug, Clone)]
struct Run {
    /// (packets, time in ns) of each poll that there would be.
    polls: Vec<(u64, u64)>,
    /// Where in a tick it begins.
    phase_ns: u64,
}

const TICK_NS: u64 = 4_000_000;

/// The kernel's count in net_rx_action, and the result that we expect; the lines that the hook sees go to `lines`.
fn simulate(runs: &[Run], budget: u64, limit: u64, lines: &mut String) -> [u64; 9] {
    use std::fmt::Write as _;
    let mut sums = [0; 9];
    for (number, run) in runs.iter().enumerate() {
        let (mut left, mut ns, mut done) = (budget as i64, 0, 0);
        sums[0] += 1;
        for (work, took) in &run.polls {
            ns += took;
            left -= *work as i64;
            done += work;
            sums[1] += 1;
            sums[2] += work;
            let ticks = (run.phase_ns + ns) / TICK_NS;
            writeln!(lines, "{} {work} {ticks} {ns}", number + 1).unwrap();
            if left <= 0 || ticks >= limit {
                let at = if left <= 0 { 3 } else { 6 };
                sums[at] += 1;
                sums[at + 1] += ns;
                sums[at + 2] += done;
                break;
            }
        }
    }
    sums
}

fn run_c(budget: u64, limit: u64, lines: &str) -> Vec<u64> {
    static BUILT: OnceLock<Program> = OnceLock::new();
    BUILT.get_or_init(|| Program::of("split", HARNESS)).run(&format!("{budget} {limit}\n{lines}"))
}

fn any_run() -> impl Strategy<Value = Run> {
    let poll = (0_u64..=64, prop_oneof![1_000_u64..200_000, 1_000_000_u64..20_000_000]);
    (proptest::collection::vec(poll, 1..40), 0..TICK_NS).prop_map(|(polls, phase_ns)| Run { polls, phase_ns })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_split_is_what_the_kernel_counts(
        runs in proptest::collection::vec(any_run(), 0..60),
        budget in prop_oneof![1_u64..2000, Just(300)],
        limit in 1_u64..5,
    ) {
        let mut lines = String::new();
        let want = simulate(&runs, budget, limit, &mut lines);
        prop_assert_eq!(run_c(budget, limit, &lines), want.to_vec());
    }
}

/// Packets of one CPU for another, in a network namespace of our own, on its loopback. Each goes to all readers, and a long filter makes
/// each as expensive as needed: the other CPU's backlog fills.
pub struct Flood {
    pub socket: UdpSocket,
    readers: Vec<UdpSocket>,
    pub to: std::net::SocketAddr,
}

impl Flood {
    pub fn set(from: usize, to: usize) -> Self {
        // SAFETY: concern this thread alone, which the test harness made for this test.
        unsafe {
            assert_eq!(
                libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS),
                0,
                "{}",
                std::io::Error::last_os_error()
            );
            let none = c"none".as_ptr();
            let private = libc::MS_REC | libc::MS_PRIVATE;
            assert_eq!(libc::mount(none, c"/".as_ptr(), std::ptr::null(), private, std::ptr::null()), 0);
            // The devices of a namespace are in the sysfs that was mounted in it.
            assert_eq!(libc::mount(none, c"/sys".as_ptr(), c"sysfs".as_ptr(), 0, std::ptr::null()), 0);
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(from, &mut set);
            assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set), 0);
        }
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        std::fs::write("/sys/class/net/lo/queues/rx-0/rps_cpus", format!("{:x}", 1_u64 << to)).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_broadcast(true).unwrap();
        Flood { socket, readers: Vec::new(), to: ([127, 255, 255, 255], 9).into() }
    }

    pub fn more_readers(&mut self, count: usize) {
        // 4,000 times "add 1", and none of the packet is wanted.
        self.readers_with(libc::sock_filter { code: 0x04, jt: 0, jf: 0, k: 1 }, count);
    }

    /// Readers that run this instruction 4,000 times for each packet.
    pub fn readers_with(&mut self, instruction: libc::sock_filter, count: usize) {
        for _ in 0..count {
            // SAFETY: plain numbers in and out.
            let socket = unsafe {
                let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
                assert!(fd >= 0);
                <UdpSocket as std::os::fd::FromRawFd>::from_raw_fd(fd)
            };
            let mut program = vec![instruction; 4000];
            program.push(libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 });
            let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
            let yes = 1;
            set_option(&socket, libc::SO_REUSEADDR, &yes);
            set_option(&socket, libc::SO_ATTACH_FILTER, &filter);
            let at = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: self.to.port().to_be(),
                sin_addr: libc::in_addr { s_addr: 0 },
                sin_zero: [0; 8],
            };
            let length = size_of::<libc::sockaddr_in>() as u32;
            // SAFETY: `at` is a whole address.
            let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const at).cast(), length) };
            assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
            self.readers.push(socket);
        }
    }

    /// Room for more packets than the queue of a CPU takes (net.core.netdev_max_backlog).
    pub fn fill_queues(&self) {
        set_option(&self.socket, libc::SO_SNDBUFFORCE, &(16 << 20));
    }

    pub fn send(&self, packets: u64) {
        for _ in 0..packets {
            let _ = self.socket.send_to(&[7; 64], self.to); // a full backlog is what is wanted
        }
    }
}

fn set_option<T>(socket: &UdpSocket, option: i32, value: &T) {
    let length = size_of::<T>() as u32;
    // SAFETY: `value` is read for its length, and the kernel copies what it points to.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(value).cast(),
            length,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// The squeezes of all CPUs, by softnet_stat.
fn squeezes() -> u64 {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
    text.lines().map(|l| u64::from_str_radix(l.split_whitespace().nth(2).unwrap(), 16).unwrap()).sum()
}

/// One round: (the kernel's count of stops, our rows).
fn round(napi: &mut Napi<'_>, flood: &mut Flood) -> (u64, Vec<table::Poll>) {
    napi.begin().unwrap();
    let (before, began) = (squeezes(), Instant::now());
    // The backlog alone is polled once a run, 64 packets at most: so many readers that these take longer than a run may.
    while squeezes() < before + 20 {
        assert!(began.elapsed() < Duration::from_secs(30), "not in 30 s: {:?}", napi.rows());
        flood.more_readers(if flood.readers.len() < 400 { 20 } else { 0 });
        flood.send(500);
    }
    // The two are read one after the other: at a moment when nothing happens between them.
    loop {
        let reported = squeezes();
        let rows = napi.rows().unwrap();
        if squeezes() == reported {
            return (reported - before, rows);
        }
    }
}

#[test]
fn root_the_split_adds_up_to_the_kernels_own_count() {
    let cpus = host::online_cpus(Path::new("/"));
    let [from, .., to] = cpus[..] else { return println!("not run: one CPU") };
    let mut slots = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let irq = Irq::start(&mut slots.0).unwrap();
    let mut napi = Napi::start(&mut slots.1, Some(irq.soft())).unwrap();
    let mut flood = Flood::set(from as usize, to as usize);
    let sum = |rows: &[table::Poll]| rows.iter().map(|r| r.budget_stops + r.time_stops).sum::<u64>();
    // Where the host hides tasks from tracing, softirqs that interrupt these are not seen: then fewer, and another round.
    for attempt in 1.. {
        let (reported, rows) = round(&mut napi, &mut flood);
        let ours = sum(&rows);
        println!("kernel {reported}, ours {ours}: {rows:?}");
        for row in &rows {
            assert!(row.budget_packets >= row.budget_stops * row.budget, "{row:?}");
            assert!(row.time_packets <= row.time_stops * row.budget, "{row:?}");
            assert!(row.time_ns >= row.time_stops * (row.limit_ns - napi.limits.tick_ns), "{row:?}");
            assert!(row.packets >= row.budget_packets + row.time_packets && row.polls >= row.runs, "{row:?}");
        }
        // A run may have begun before the hook was there, and a tick may come between the kernel's test and ours.
        assert!(ours <= reported + 1, "kernel {reported}, ours {ours}");
        if reported <= ours + 1 {
            return;
        }
        assert!(attempt < 8, "kernel {reported}, ours {ours}: never the same");
    }
}

#[test]
fn root_a_datagram_queue_that_nobody_reads_is_reported_with_its_owner() {
    let mut slots = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let irq = Irq::start(&mut slots.0).unwrap();
    let mut napi = Napi::start(&mut slots.1, Some(irq.soft())).unwrap();
    napi.begin().unwrap();
    let (reader, writer) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let at = reader.local_addr().unwrap();
    (0..3000).for_each(|_| drop(writer.send_to(&[1; 1024], at)));
    let began = Instant::now();
    let rows = napi.sockets(Duration::from_secs(1)).unwrap();
    println!("a look at all sockets took {:?}", began.elapsed());
    let row = rows.iter().find(|r| r.local == at.to_string()).expect("its queue is full");
    assert_eq!((row.tgid, row.tcp, row.full), (std::process::id(), false, 1), "{row:?}");
    assert!(row.drops > 0 && row.used_bytes * 2 >= row.room_bytes, "{row:?}");
}
