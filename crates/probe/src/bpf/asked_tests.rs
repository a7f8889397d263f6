//! Whether a client of a unix socket has asked, on sockets of our own.

use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixListener, UnixStream};

use super::*;

/// Long waits.
const ROUNDS: usize = 6;

/// One client and one service: it asks for each answer, or receives news; it waits in recv(2), or in poll(2).
struct Talk {
    asks: bool,
    polls: bool,
}

impl Talk {
    /// The client's waits for the service, in order: whether it was seen to have asked.
    fn seen(&self, reads_late_ms: u64) -> Vec<bool> {
        let mut slot = MaybeUninit::uninit();
        let mut sched = Sched::load(&mut slot, layout(), Budget::of(2, false)).unwrap();
        if let Some(bss) = sched.skel.maps.bss_data.as_mut() {
            bss.own_tgid = 0; // otherwise our own rows are left out
        }
        sched.begin().unwrap();
        let path = std::env::temp_dir().join(format!("whyslow-test-asked-{}", me()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let (asks, polls) = (self.asks, self.polls);
        let client = UnixStream::connect(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (tell, is_ready) = mpsc::channel();
        let client = std::thread::spawn(move || talk(client, asks, polls, &tell));
        let mut service = listener.accept().unwrap().0;
        for _ in 0..ROUNDS {
            is_ready.recv().unwrap();
            // The pathology: the service does not read the data.
            std::thread::sleep(Duration::from_millis(reads_late_ms));
            if asks {
                service.read_exact(&mut [0]).unwrap();
            }
            service.write_all(&[1]).unwrap();
        }
        let pid = client.join().unwrap();
        let (mut seen, _) = sched.finish().unwrap();
        let rows = timeline_of(pid, &mut seen);
        let calls = [libc::SYS_recvfrom, libc::SYS_poll].map(|call| u32::try_from(call).ok());
        let rows = rows.into_iter().filter(|row| row.waker.is_some() && calls.contains(&row.syscall));
        rows.map(|row| row.asked).collect()
    }
}

fn talk(mut service: UnixStream, asks: bool, polls: bool, tell: &mpsc::Sender<()>) -> u32 {
    let (none, _writer) = std::io::pipe().unwrap();
    for _ in 0..ROUNDS {
        if asks {
            service.write_all(&[2]).unwrap();
        }
        tell.send(()).unwrap();
        if polls {
            // It also polls a second socket, as many programs do: there it would wake the program, here it never does.
            let mut two = [none.as_raw_fd(), service.as_raw_fd()].map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            });
            // SAFETY: two local structures.
            assert_eq!(unsafe { libc::poll(two.as_mut_ptr(), 2, -1) }, 1);
        }
        service.read_exact(&mut [0]).unwrap();
    }
    me()
}

#[test]
fn root_a_request_that_lies_unread_at_a_unix_socket_is_seen() {
    for (asks, polls) in [(true, false), (true, true), (false, false), (false, true)] {
        let seen = Talk { asks, polls }.seen(4 + u64::from(me() % 5));
        // Some hosts hide a task now and then, and with it the waker.
        assert!(seen.len() >= ROUNDS - 2, "asks: {asks}, polls: {polls}: {seen:?}");
        let asked = seen.iter().filter(|asked| **asked).count();
        let all = if asks { seen.len() } else { 0 };
        assert!(asked <= all && asked + 1 >= all, "asks: {asks}, polls: {polls}: {seen:?}");
    }
}
