//! What a packet ended a wait for, where no stack was taken of it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use whyslow_model::table::Span;

use super::*;

const ROUNDS: usize = 6;
/// A wait of this length is told one by one.
const LATE: Duration = Duration::from_millis(3);

/// Of each long wait in this call: the ends of the socket at which data ended it, if any did.
fn woken(call: libc::c_long, work: impl FnOnce(TcpStream, TcpStream) -> u32) -> Vec<Option<[String; 2]>> {
    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget { rows: 1_000, stacks: 0 }).unwrap();
    if let Some(bss) = sched.skel.maps.bss_data.as_mut() {
        bss.own_tgid = 0; // else our own rows are left out
    }
    sched.begin().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let pid = work(one, listener.accept().unwrap().0);
    let (mut seen, _) = sched.finish().unwrap();
    let mut rows = timeline_of(pid, &mut seen);
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
        println!("not run: this kernel does not tell at which socket data came");
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
    // Some hosts hide a task now and then, and with it who ended a wait.
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
