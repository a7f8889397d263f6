//! Epolls that watch a service's end of a connection, with and without a task that waits there.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use super::other_ends_tests::{Holder, await_call};
use super::*;

/// x86-64: poll, epoll_wait, recvfrom.
const WAITS: [&str; 3] = ["7", "232", "45"];

fn epoll(watches: &OwnedFd) -> OwnedFd {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: the new descriptor is ours alone; the event outlives the call.
    unsafe {
        let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
        let added =
            libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, watches.as_raw_fd(), &raw mut event);
        assert_eq!(added, 0);
        epoll
    }
}

/// A thread that is in `call` as soon as this returns, until the file that it waits at is gone.
fn waiting(call: impl FnOnce() + Send + 'static) -> (u32, std::thread::JoinHandle<()>) {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        tell.send(me()).unwrap();
        call();
    });
    let pid = told.recv().unwrap();
    await_call(pid, &WAITS);
    (pid, thread)
}

fn at_epoll(epoll: &OwnedFd) -> std::thread::JoinHandle<()> {
    let fd = epoll.as_raw_fd();
    let wait = move || {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        unsafe { libc::epoll_wait(fd, &raw mut event, 1, -1) };
    };
    waiting(wait).1
}

fn at_poll(epoll: &OwnedFd) -> std::thread::JoinHandle<()> {
    let fd = epoll.as_raw_fd();
    let wait = move || {
        let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut polled, 1, -1) };
    };
    waiting(wait).1
}

#[derive(Debug, Clone, Copy)]
enum Looks {
    Nobody,
    AnEpollAlone,
    AnEpollWithAWaiter,
    TwoOfWhichOneHasAWaiter,
    AnEpollThatIsPolled,
    AnEpollInAnEpoll,
}

impl Looks {
    /// The epolls that watch it, and threads that wait there.
    fn at(self, server: &OwnedFd) -> (Vec<OwnedFd>, Vec<std::thread::JoinHandle<()>>) {
        let first = || epoll(server);
        match self {
            Looks::Nobody => (Vec::new(), Vec::new()),
            Looks::AnEpollAlone => (vec![first()], Vec::new()),
            Looks::AnEpollWithAWaiter => {
                let epoll = first();
                let waits = at_epoll(&epoll);
                (vec![epoll], vec![waits])
            }
            Looks::TwoOfWhichOneHasAWaiter => {
                let both = [first(), first()];
                let waits = at_epoll(&both[0]);
                (both.into(), vec![waits])
            }
            Looks::AnEpollThatIsPolled => {
                let epoll = first();
                let waits = at_poll(&epoll);
                (vec![epoll], vec![waits])
            }
            Looks::AnEpollInAnEpoll => {
                let inner = first();
                let outer = epoll(&inner);
                let waits = at_epoll(&outer);
                (vec![inner, outer], vec![waits])
            }
        }
    }
}

#[test]
fn root_whether_a_task_waits_where_a_service_looks_at_its_client_is_told() {
    use Looks::*;
    let ways = [
        (Nobody, None),
        (AnEpollAlone, Some(false)),
        (AnEpollWithAWaiter, Some(true)),
        (TwoOfWhichOneHasAWaiter, Some(true)),
        (AnEpollThatIsPolled, None),
        (AnEpollInAnEpoll, None),
    ];
    let mut all = Vec::new();
    for (looks, watched) in ways {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = OwnedFd::from(listener.accept().unwrap().0);
        let (epolls, looking) = looks.at(&server);
        let mut holder = std::process::Command::new("sleep");
        let holder = Holder(holder.arg("1000").stdin(std::process::Stdio::from(server)).spawn().unwrap());
        let mut reads = client.try_clone().unwrap();
        let (pid, reading) = waiting(move || drop(std::io::Read::read(&mut reads, &mut [0])));
        all.push((looks, watched, pid, client, holder, epolls, looking, reading));
    }
    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget::of(2, false)).unwrap();
    sched.begin().unwrap();
    std::thread::sleep(Duration::from_millis(30)); // shorter waits of clients that are not followed are not looked up
    let (mut seen, _) = sched.finish().unwrap();
    let rows = timeline_of_all(&mut seen);
    for (looks, watched, pid, client, holder, epolls, looking, reading) in all {
        let row = rows.iter().rfind(|row| row.pid == pid).expect("it has a row");
        let end = row.other_end.as_deref().unwrap_or_else(|| panic!("{looks:?}: {row:?}"));
        assert_eq!((&end.processes[..], end.watched), (&[holder.0.id()][..], watched), "{looks:?}");
        client.shutdown(std::net::Shutdown::Both).unwrap(); // which wakes all that wait
        looking.into_iter().chain([reading]).for_each(|thread| thread.join().unwrap());
        drop((holder, epolls));
    }
}
