use std::fs::File;
use std::io::Write as _;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use libbpf_rs::btf::Btf;
use whyslow_model::stall::{Stall, StallKind};

use super::*;
use crate::bpf::irq_latency::{IrqLatency, Kernel};
use crate::bpf::napi::tests::Flood;
use crate::bpf::sched::Layout;
use crate::kallsyms::Kallsyms;
use crate::span_table::Window;
use crate::symbols::KernelNames;

/// Stalls on CPU 1 while `work` runs. Without `polls` the hooks are removed as where a CPU has very many softirqs.
fn stalls_of(polls: bool, work: impl FnOnce()) -> Vec<Stall> {
    let (symbols, btf) = (Kallsyms::read(), Btf::from_vmlinux().unwrap());
    let (mut first, mut second) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let latency = IrqLatency::start(&mut first, &symbols, Kernel::of(&btf)).expect("root may trace");
    let count_at =
        Layout::of(&btf).or_from(&symbols).preempt_count_at.expect("this kernel says where that is");
    let mut stalls = Stalls::start(&mut second, latency.shared(), count_at).expect("root may trace");
    let start_ns = crate::host::monotonic_ns();
    stalls.begin();
    if !polls {
        stalls.stays = true;
        stalls.let_go();
    }
    work();
    let window = Window { start_ns, ns: crate::host::monotonic_ns() - start_ns };
    stalls.end();
    let (seen, lost) = stalls.finish().unwrap();
    assert_eq!(lost, 0);
    let rows = stall_table::stalls(&seen, window, &mut KernelNames::from(&symbols));
    rows.into_iter().filter(|row| row.cpu == 1).collect()
}

fn of_kind(rows: &[Stall], kind: StallKind) -> Vec<&Stall> {
    rows.iter().filter(|row| row.kind == kind.word()).collect()
}

fn pin(cpu: usize) {
    // SAFETY: a zeroed set is an empty one; the pointer is to a local of the size that is reported.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set), 0);
    }
}

/// From CPU 0 to CPU 1.
fn flood() -> Option<Flood> {
    let cpus = crate::host::online_cpus(std::path::Path::new("/"));
    (cpus.contains(&0) && cpus.contains(&1)).then(|| Flood::set(0, 1))
}

/// Packets have waited on a CPU since 100 ms, and a tick has seen it at 112 ms.
fn waiting() -> stall_cpu {
    let mut cpu = stall_cpu { raised: 100_000_000, ..stall_cpu::default() };
    cpu.stall.rows = SEEN + 3;
    cpu.stall.seen[2] = stall_seen { at: 112_000_000, pid: 9, ..stall_seen::default() };
    cpu
}

#[test]
fn packets_that_still_wait_at_the_end_of_the_window_are_a_stall() {
    let open = still_open(&waiting(), 3, 115_000_000).unwrap();
    assert_eq!((open.cpu, open.kind, open.at, open.ns), (3, STALL_DEFERRED, 115_000_000, 15_000_000));
    assert_eq!((open.end.pid, open.rows), (9, SEEN + 3));
}

#[test]
fn cpu_without_a_recent_tick_or_a_raised_softirq_has_no_open_stall() {
    assert!(still_open(&waiting(), 3, 130_000_000).is_none(), "it went offline");
    assert!(still_open(&stall_cpu { raised: 0, ..waiting() }, 3, 115_000_000).is_none());
    assert!(still_open(&stall_cpu { raised: 111_000_000, ..waiting() }, 3, 115_000_000).is_none(), "4 ms");
    assert!(
        still_open(&stall_cpu { raised: 120_000_000, ..waiting() }, 3, 115_000_000).is_none(),
        "after the window"
    );
    let mut unseen = waiting();
    unseen.stall.rows = 0;
    assert!(still_open(&unseen, 3, 115_000_000).is_none());
    // This tick was within another wait.
    assert!(still_open(&stall_cpu { raised: 113_000_000, ..waiting() }, 3, 119_000_000).is_none());
}

/// A poll takes up to 64 packets: with 200 long filters each that is some 20 ms.
#[test]
fn root_long_poll_is_a_stall_and_its_ticks_show_the_softirqs_code() {
    let Some(mut flood) = flood() else { return println!("not run: one CPU") };
    flood.more_readers(300);
    let rows = stalls_of(true, || {
        let until = Instant::now() + Duration::from_millis(600);
        while Instant::now() < until {
            flood.send(100);
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let polls = of_kind(&rows, StallKind::Poll);
    assert!(polls.len() >= 3, "{rows:?}");
    let is_shown = |row: &&Stall| {
        let ticks = row.seen.len() - 1;
        row.seen[..ticks].iter().any(|tick| tick.kernel.iter().any(|frame| frame.contains("udp")))
    };
    // The kernel does not unwind the filters themselves: most stacks end there.
    assert!(polls.iter().any(is_shown), "{polls:?}");
    let ticks = polls.iter().flat_map(|row| &row.seen[..row.seen.len() - 1]);
    let (count, in_softirq) = ticks.fold((0, 0), |(all, of), tick| (all + 1, of + u32::from(tick.softirq)));
    assert!(count > polls.len() as u32 && in_softirq == count, "{in_softirq} of {count}");
    assert!(polls.iter().all(|row| (5_000_000..1_000_000_000).contains(&row.ns)));
}

/// With 20 long filters a packet takes some 20 us: a queue of 1,000 packets is a wait of 20 ms, and no poll of 64 takes 5 ms.
#[test]
fn root_packets_behind_each_other_wait_in_the_queue_of_their_cpu() {
    let Some(mut flood) = flood() else { return println!("not run: one CPU") };
    flood.fill_queues();
    flood.more_readers(20);
    let rows = stalls_of(true, || {
        let until = Instant::now() + Duration::from_millis(1500);
        while Instant::now() < until {
            flood.send(100);
        }
    });
    let queued = of_kind(&rows, StallKind::Queued);
    let sum: u64 = queued.iter().map(|row| row.ns).sum();
    assert!((500_000_000..1_600_000_000).contains(&sum), "{sum}: {rows:?}");
    for row in &queued {
        assert!((5_000_000..200_000_000).contains(&row.worst_ns), "{row:?}");
        assert!(row.ns <= u64::from(row.waits) * row.worst_ns && row.ns >= u64::from(row.waits) * 5_000_000);
    }
    let ticks = queued.iter().flat_map(|row| &row.seen[..row.seen.len() - 1]);
    let (count, softirqs) = ticks
        .fold((0, 0), |(all, of), tick| (all + tick.count, of + if tick.softirq { tick.count } else { 0 }));
    assert!(count >= 20 && softirqs * 2 > count, "{softirqs} of {count}");
    // Bursts that the CPU handles at once.
    let rows = stalls_of(true, || {
        let until = Instant::now() + Duration::from_millis(600);
        while Instant::now() < until {
            flood.send(20);
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert!(of_kind(&rows, StallKind::Queued).is_empty(), "{rows:?}");
}

#[test]
fn waits_that_are_no_whole_row_are_told_at_the_end_of_the_window() {
    let mut cpu = waiting();
    assert!(not_told(&cpu).is_none());
    cpu.queue = stall { waits: 3, ns: 21_000_000, ..stall::default() };
    cpu.queue.end.pid = 20;
    let told = not_told(&cpu).unwrap();
    assert_eq!((told.waits, told.ns, told.end.pid), (3, 21_000_000, 20));
}

/// A device whose packets the writer itself carries up, with bottom halves off (drivers/net/tun.c, tun_rx_batched).
struct Tun(File);

impl Tun {
    fn set() -> Self {
        let tun = File::options().read(true).write(true).open("/dev/net/tun").unwrap();
        // SAFETY: integers and bytes; the name stays empty but for its prefix.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(b"stall0") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
        // SAFETY: the request lives as long as the call.
        assert_eq!(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF as _, &raw const request) }, 0);
        let ip = |args: &[&str]| assert!(Command::new("ip").args(args).status().unwrap().success());
        ip(&["addr", "add", "10.9.8.1/24", "dev", "stall0"]);
        ip(&["link", "set", "stall0", "up"]);
        Tun(tun)
    }

    /// A UDP packet for all sockets at this port, from a neighbour.
    fn broadcast(&mut self, port: u16) {
        let mut packet = vec![0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 8, 2, 10, 9, 8, 255];
        let words = packet.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let sum = words.sum::<u32>();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend([0x30, 0x39]);
        packet.extend(port.to_be_bytes());
        packet.extend([0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]); // without a checksum
        self.0.write_all(&packet).unwrap();
    }
}

#[test]
fn root_softirq_behind_disabled_bottom_halves_is_a_stall_of_their_thread() {
    let Some(mut flood) = flood() else { return println!("not run: one CPU") };
    let mut tun = Tun::set();
    let mut took = Duration::ZERO;
    while took < Duration::from_millis(12) {
        flood.readers_with(libc::sock_filter { code: 0x34, jt: 0, jf: 0, k: 1 }, 100); // "divide by 1"
        let began = Instant::now();
        tun.broadcast(flood.to.port());
        took = began.elapsed();
    }
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (to, port) = (other.local_addr().unwrap(), flood.to.port());
    for polls in [true, false] {
        let (stop, mut longest, mut pid) = (AtomicBool::new(false), Duration::ZERO, 0);
        let rows = stalls_of(polls, || {
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    pin(1);
                    let (until, mut longest) = (Instant::now() + Duration::from_millis(600), Duration::ZERO);
                    while Instant::now() < until {
                        let began = Instant::now();
                        tun.broadcast(port);
                        longest = longest.max(began.elapsed());
                    }
                    stop.store(true, Ordering::Relaxed);
                    // SAFETY: gettid has no arguments and cannot fail.
                    (longest, unsafe { libc::gettid() } as u32)
                });
                while !stop.load(Ordering::Relaxed) {
                    let _ = flood.socket.send_to(&[7; 64], to); // a full queue of `other` is no matter
                    std::thread::sleep(Duration::from_millis(1));
                }
                (longest, pid) = writer.join().unwrap();
            });
        });
        let deferred = of_kind(&rows, StallKind::Deferred);
        assert!(deferred.len() >= 3, "{longest:?}: {rows:?}");
        let is_theirs = |row: &&Stall| {
            let end = row.seen.last().unwrap();
            (end.pid, end.syscall) == (pid, Some(libc::SYS_write as u32))
                && end.file.as_deref() == Some("net/tun")
        };
        let theirs = deferred.iter().filter(|row| is_theirs(row)).count();
        assert!(theirs * 2 > deferred.len(), "{theirs} of {}: {deferred:?}", deferred.len());
        // The writer had the CPU with bottom halves off: only on its way out it may serve other softirqs first.
        let ticks: Vec<_> = deferred
            .iter()
            .flat_map(|row| &row.seen[..row.seen.len() - 1])
            .filter(|tick| tick.pid == pid)
            .collect();
        assert!(ticks.iter().filter(|tick| tick.softirq).count() * 2 <= ticks.len(), "{deferred:?}");
    }
}
