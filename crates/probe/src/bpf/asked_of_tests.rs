//! Whether a client of a unix socket has asked the thread that it woke: a service of another process, on sockets of our own.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};

use whyslow_model::table::Span;
use whyslow_model::timeline::Asked;

use super::other_ends_tests::await_call;
use super::*;

const ROUNDS: usize = 5;
const LATE: Duration = Duration::from_millis(30);

/// A process that does one thing until it is killed. It allocates nothing: another thread may have been allocating when it was made.
struct Forked(libc::pid_t);

impl Forked {
    fn that(does: impl Fn()) -> Self {
        // SAFETY: the child makes system calls only, and never returns.
        match unsafe { libc::fork() } {
            0 => loop {
                does();
            },
            child => {
                assert!(child > 0, "no process could be made");
                Forked(child)
            }
        }
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        // SAFETY: a child of ours, which no other thread waits for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

fn receive(fd: RawFd) {
    // SAFETY: a buffer of one byte.
    unsafe { libc::recv(fd, [0_u8; 1].as_mut_ptr().cast(), 1, 0) };
}

fn send(fd: RawFd) {
    // SAFETY: a buffer of one byte.
    unsafe { libc::send(fd, [1_u8; 1].as_ptr().cast(), 1, libc::MSG_NOSIGNAL) };
}

/// The pathology: it was asked, and sleeps.
fn be_late() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: i64::from(LATE.subsec_nanos()) };
    // SAFETY: a local structure.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}

/// A client's end of a connection, and the service's: the name decides which is which.
fn connection(name: &str) -> (UnixStream, UnixStream) {
    let path = std::env::temp_dir().join(format!("whyslow-test-{}-{name}", me()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    let client = UnixStream::connect(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    (client, listener.accept().unwrap().0)
}

/// A client thread's waits for an answer. A wait that lasts for ever at a socket is ended when the window is over.
fn waits(client: impl FnOnce() + Send, lasts: Option<&UnixStream>) -> Vec<Span> {
    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget { rows: 1_000, stacks: 0 }).unwrap();
    if let Some(bss) = sched.skel.maps.bss_data.as_mut() {
        bss.own_tgid = 0; // otherwise our own rows are left out
    }
    sched.begin().unwrap();
    let (tell, told) = mpsc::channel();
    let mut rows = Vec::new();
    std::thread::scope(|scope| {
        let client = scope.spawn(move || {
            tell.send(me()).unwrap();
            client();
        });
        let pid = told.recv().unwrap();
        if lasts.is_some() {
            await_call(pid, &["45"]);
            std::thread::sleep(LATE); // shorter waits are not looked up
        } else {
            client.join().unwrap();
        }
        let (mut seen, _) = sched.finish().unwrap();
        if let Some(socket) = lasts {
            socket.shutdown(std::net::Shutdown::Both).unwrap();
        }
        let reads = u32::try_from(libc::SYS_recvfrom).ok();
        rows = timeline_of(pid, &mut seen);
        rows.retain(|row| row.syscall == reads && (row.open || row.waker.is_some()));
    });
    rows
}

fn sent_before(row: &Span) -> Option<u64> {
    row.waker.as_ref()?.delivery.as_ref()?.sent_before_ns
}

/// All its waits, or all but one: some hosts hide a task now and then, and with it the waker.
fn assert_all_asked(rows: &[Span]) {
    let tick = 2 * crate::host::tick_ns();
    let is_asked = |row: &&Span| {
        let waited = row.woken_ns - row.at_ns;
        sent_before(row).is_some_and(|before| before.abs_diff(waited) <= tick)
    };
    assert!(rows.len() + 1 >= ROUNDS, "{rows:?}");
    assert!(rows.iter().filter(is_asked).count() + 1 >= rows.len(), "{rows:?}");
    assert!(rows.first().is_some_and(|first| is_asked(&first)), "{rows:?}");
}

fn assert_none_asked(rows: &[Span]) {
    assert!(rows.len() + 1 >= ROUNDS, "{rows:?}");
    assert!(rows.iter().all(|row| sent_before(row).is_none()), "{rows:?}");
}

fn tells() -> bool {
    let tells = layout().tells_ready;
    if !tells {
        println!("not run: this kernel does not report at which socket data came");
    }
    tells
}

#[test]
fn root_a_request_that_wakes_a_service_is_seen_from_the_first_and_when_it_was() {
    for logs in [false, true] {
        let (client, service) = connection("asked");
        let (journal, _kept) = connection("journal");
        let (end, journal) = (service.as_raw_fd(), journal.as_raw_fd());
        let service = Forked::that(|| {
            receive(end);
            if logs {
                send(journal); // data that it sends to others meanwhile are no answer
            }
            be_late();
            send(end);
        });
        let rows = waits(|| (0..ROUNDS).for_each(|_| ask(&client, &service)), None);
        if tells() {
            assert_all_asked(&rows);
        }
    }
}

fn ask(mut client: &UnixStream, service: &Forked) {
    await_call(service.0 as u32, &["45"]);
    client.write_all(&[1]).unwrap();
    client.read_exact(&mut [0]).unwrap();
}

/// The client has had its answer without a sleep: nothing woke it.
#[test]
fn root_news_after_an_answer_were_not_asked_for() {
    let (mut client, service) = connection("news");
    let end = service.as_raw_fd();
    let service = Forked::that(|| {
        receive(end);
        send(end);
        loop {
            be_late();
            send(end);
        }
    });
    let rows = waits(
        || {
            await_call(service.0 as u32, &["45"]);
            client.write_all(&[1]).unwrap();
            client.set_nonblocking(true).unwrap();
            while client.read_exact(&mut [0]).is_err() {}
            client.set_nonblocking(false).unwrap();
            (0..ROUNDS).for_each(|_| client.read_exact(&mut [0]).unwrap());
        },
        None,
    );
    assert_none_asked(&rows);
}

#[test]
fn root_news_that_another_client_asked_for_were_not_asked_for() {
    let (mut client, service) = connection("told");
    let (other, others) = connection("asks");
    let (end, asks, answers) = (service.as_raw_fd(), other.as_raw_fd(), others.as_raw_fd());
    let _service = Forked::that(|| {
        receive(answers);
        be_late();
        send(end);
        send(answers);
    });
    let (mut go, start) = UnixStream::pair().unwrap();
    let begin = start.as_raw_fd();
    let _other = Forked::that(|| {
        receive(begin);
        loop {
            be_late();
            send(asks);
            receive(asks);
        }
    });
    let rows = waits(
        || {
            go.write_all(&[1]).unwrap();
            (0..ROUNDS).for_each(|_| client.read_exact(&mut [0]).unwrap());
        },
        None,
    );
    assert_none_asked(&rows);
}

#[test]
fn root_a_request_that_woke_a_service_and_lasts_is_seen() {
    let (client, service) = connection("lasts");
    let end = service.as_raw_fd();
    let service = Forked::that(|| {
        receive(end);
        loop {
            be_late();
        }
    });
    let rows = waits(
        || {
            await_call(service.0 as u32, &["45"]);
            (&client).write_all(&[1]).unwrap();
            let _ = (&client).read(&mut [0]);
        },
        Some(&client),
    );
    let lasts = rows.iter().find(|row| row.open).unwrap_or_else(|| panic!("it lasts: {rows:?}"));
    let other =
        lasts.other_end.as_deref().unwrap_or_else(|| panic!("no process has the other end: {lasts:?}"));
    let tells = tells();
    assert_eq!(other.asked, if tells { Asked::Sent } else { Asked::Unknown }, "{other:?}");
    let (waited, tick) = (lasts.woken_ns - lasts.at_ns, 2 * crate::host::tick_ns());
    let is_told = other.sent_before_ns.is_some_and(|before| before.abs_diff(waited) <= tick);
    assert_eq!(is_told, tells, "{waited} {other:?}");
}
