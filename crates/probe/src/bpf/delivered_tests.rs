//! The data with which a packet ended a wait, where no stack was taken of it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;

use whyslow_model::table::Span;

use super::*;

const ROUNDS: usize = 6;
/// A wait of this length is reported one by one.
const LATE: Duration = Duration::from_millis(3);

/// Rows of the thread that `work` returns, which gets the two ends of a connection.
fn rows_of(work: impl FnOnce(TcpStream, TcpStream) -> u32) -> Vec<Span> {
    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget { rows: 1_000, stacks: 0 }).unwrap();
    if let Some(bss) = sched.skel.maps.bss_data.as_mut() {
        bss.own_tgid = 0; // otherwise our own rows are left out
    }
    sched.begin().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let pid = work(one, listener.accept().unwrap().0);
    let (mut seen, _) = sched.finish().unwrap();
    timeline_of(pid, &mut seen)
}

/// For each long wait in this call: the ends of the socket at which data ended it, if any did.
fn woken(call: libc::c_long, work: impl FnOnce(TcpStream, TcpStream) -> u32) -> Vec<Option<[String; 2]>> {
    let mut rows = rows_of(work);
    rows.retain(|row| row.syscall == u32::try_from(call).ok() && row.waker.is_some());
    let ends = |row: &Span| {
        let waker = row.waker.as_ref()?;
        assert_eq!(waker.stack, None);
        let ready = waker.delivery.as_ref()?.ready.as_ref()?;
        Some([ready.local.clone(), ready.peer.clone()])
    };
    rows.iter().map(ends).collect()
}

#[test]
fn root_data_that_end_a_wait_are_told_without_a_stack() {
    if !layout().tells_ready {
        println!("not run: this kernel does not report at which socket data came");
        return;
    }
    let mut ends = None;
    let seen = woken(libc::SYS_recvfrom, |mut one, mut other| {
        ends = Some([one.local_addr().unwrap().to_string(), one.peer_addr().unwrap().to_string()]);
        std::thread::scope(|scope| {
            let (tell, is_ready) = mpsc::channel();
            let reader = scope.spawn(move || {
                for _ in 0..ROUNDS {
                    tell.send(()).unwrap();
                    one.read_exact(&mut [0]).unwrap();
                }
                me()
            });
            for () in is_ready {
                std::thread::sleep(LATE);
                other.write_all(&[1]).unwrap();
            }
            reader.join().unwrap()
        })
    });
    // Some hosts hide a task now and then, and with it the waker.
    let told = seen.iter().filter(|told| **told == ends).count();
    assert!(ends.is_some() && told + 2 >= ROUNDS && seen.iter().flatten().count() == told, "{seen:?}");
}

/// A sender that waits for room is woken from the same list under the same lock.
#[test]
fn root_room_that_ends_a_wait_is_no_data() {
    let seen = woken(libc::SYS_sendto, |mut one, mut other| {
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                for _ in 0..ROUNDS {
                    one.write_all(&vec![0; 4 << 20]).unwrap();
                }
                me()
            });
            let mut some = vec![0; 1 << 20];
            loop {
                std::thread::sleep(LATE);
                if other.read(&mut some).unwrap() == 0 {
                    break;
                }
            }
            writer.join().unwrap()
        })
    });
    assert!(seen.len() >= ROUNDS && seen.iter().all(Option::is_none), "{seen:?}");
}

/// Each question is two small writes. With Nagle's algorithm the second waits until the first is acknowledged, which the other end delays.
#[test]
fn root_wait_is_flagged_held_back_only_for_nagle_with_delayed_ack() {
    if !layout().tells_ready {
        println!("not run: this kernel does not report at which socket data came");
        return;
    }
    #[derive(Clone, Copy, PartialEq)]
    enum Sends {
        WithNagle,
        AtOnce,
        Corked,
        /// ... with Nagle's algorithm; the first half is answered before the second has come.
        Ahead,
    }
    let held = |sends: Sends| {
        let rows = rows_of(|mut one, mut other| {
            one.set_nodelay(sends == Sends::AtOnce).unwrap();
            other.set_nodelay(true).unwrap();
            let cork: libc::c_int = (sends == Sends::Corked).into();
            // SAFETY: the socket is open, and the value lives as long as the call.
            let set = unsafe {
                libc::setsockopt(
                    one.as_raw_fd(),
                    libc::IPPROTO_TCP,
                    libc::TCP_CORK,
                    (&raw const cork).cast(),
                    4,
                )
            };
            assert_eq!(set, 0);
            std::thread::scope(|scope| {
                let asker = scope.spawn(move || {
                    for _ in 0..2 * ROUNDS {
                        one.write_all(&[1]).unwrap();
                        one.write_all(&[2]).unwrap();
                        one.read_exact(&mut [0]).unwrap();
                    }
                    me()
                });
                let (mut question, is_ahead) = ([0; 2], sends == Sends::Ahead);
                while other.read_exact(&mut question[usize::from(is_ahead)..]).is_ok() {
                    if is_ahead || sends == Sends::AtOnce {
                        std::thread::sleep(LATE);
                    }
                    other.write_all(&[3]).unwrap();
                    if is_ahead {
                        other.read_exact(&mut question[1..]).unwrap();
                    }
                }
                asker.join().unwrap()
            })
        });
        let reads = rows.iter().filter(|row| row.syscall == u32::try_from(libc::SYS_recvfrom).ok());
        let told = reads.filter(|row| row.waker.is_some());
        told.map(|row| (row.woken_ns - row.at_ns, row.held_back)).collect::<Vec<_>>()
    };
    // The first is not checked; and a kernel acknowledges at once while a connection is new (net/ipv4/tcp_input.c,
    // tcp_enter_quickack_mode).
    let seen = held(Sends::WithNagle);
    let told = seen.iter().filter(|(_, held)| *held).count();
    assert!(told + 2 >= seen.len() && told >= 3, "{seen:?}");
    for sends in [Sends::AtOnce, Sends::Corked] {
        let seen = held(sends);
        assert!(seen.len() >= ROUNDS && seen.iter().all(|(_, held)| !held), "{seen:?}");
    }
    // An answer that comes before the acknowledgement's timer carries the acknowledgement itself: the asker waited for the answer. Each
    // second question is held back as a whole, for the last half of the one before.
    let seen = held(Sends::Ahead);
    let short: Vec<_> = seen.iter().filter(|(waited, _)| *waited < 20_000_000).collect();
    assert!(short.len() >= ROUNDS / 2 && short.iter().all(|(_, held)| !held), "{seen:?}");
}
