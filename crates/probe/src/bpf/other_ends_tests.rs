//! Clients of ours wait at connections with the other end in children of ours.

use std::os::fd::AsRawFd as _;

use whyslow_model::timeline::Asked;

use super::*;
use crate::bpf::sched::other_ends::ends_by_row;

/// How a client of ours has a connection with the other end in a child of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lasting {
    unix: bool,
    /// The client has sent something, and the other end ...
    sends: bool,
    /// ... has read it ...
    is_read: bool,
    /// ... and answered.
    is_answered: bool,
    polls: bool,
    followed: bool,
    /// It was not accepted.
    queued: bool,
    /// The other end sends of its own accord, again and again, and reads nothing that the client answers.
    tells: bool,
}

impl Lasting {
    fn drawn(bits: u32) -> Self {
        let is = |bit: u32| bits >> bit & 1 == 1;
        let queued = is(6);
        // A unix socket does not count what has come.
        let tells = is(7) && !is(0) && !queued;
        let (sends, is_read) = (is(1) || tells, is(2) && !queued && !tells);
        let is_answered = sends && is_read && is(3);
        Lasting { unix: is(0), sends, is_read, is_answered, polls: is(4), followed: is(5), queued, tells }
    }

    /// A unix socket does not note when it has sent.
    fn has_asked(self) -> bool {
        let is_owed = self.sends && !self.is_answered && !self.tells;
        is_owed && !(self.unix && self.is_read)
    }

    /// Both ends, the client's first; for a connection that was not accepted, the listener's.
    fn connect(self, folder: &std::path::Path) -> (std::os::fd::OwnedFd, std::os::fd::OwnedFd) {
        if self.queued {
            return self.connect_only(folder);
        }
        if self.unix {
            let path = folder.join("socket");
            let _ = std::fs::remove_file(&path);
            let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
            let client = std::os::unix::net::UnixStream::connect(&path).unwrap();
            let server = listener.accept().unwrap().0;
            self.talk(&client, &server);
            return (client.into(), server.into());
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        self.talk(&client, &server);
        (client.into(), server.into())
    }

    fn connect_only(self, folder: &std::path::Path) -> (std::os::fd::OwnedFd, std::os::fd::OwnedFd) {
        use std::io::Write as _;
        if self.unix {
            let path = folder.join("queue");
            let _ = std::fs::remove_file(&path);
            let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
            let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
            client.write_all(&b"?"[..usize::from(self.sends)]).unwrap();
            return (client.into(), listener.into());
        }
        let at = if self.polls { "127.0.0.1" } else { "[::]" };
        let listener = std::net::TcpListener::bind(format!("{at}:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut client = std::net::TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        client.write_all(&b"?"[..usize::from(self.sends)]).unwrap();
        (client.into(), listener.into())
    }

    fn talk<S>(self, client: &S, server: &S)
    where
        for<'s> &'s S: std::io::Read + std::io::Write,
    {
        use std::io::{Read as _, Write as _};
        let (mut client, mut server) = (client, server);
        for _ in 0..3 * u32::from(self.tells) {
            server.write_all(b"!").unwrap();
            client.read_exact(&mut [0]).unwrap();
            client.write_all(b".").unwrap();
        }
        if self.sends {
            client.write_all(b"?").unwrap();
        }
        if self.sends && self.is_read {
            server.read_exact(&mut [0]).unwrap();
        }
        if self.is_answered {
            server.write_all(b"!").unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
    }
}

/// Ended with the test.
pub(super) struct Holder(pub(super) std::process::Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Wait until a thread sleeps in one of these system calls. A thread that is woken from another CPU has not begun to run there, for which
/// `syscall` takes it to sleep (TASK_WAKING, kernel/sched/core.c), and a waker of it then wakes no thread.
pub(super) fn await_call(thread: u32, calls: &[&str]) {
    let file = |name: &str| std::fs::read_to_string(format!("/proc/{thread}/{name}")).unwrap_or_default();
    let until = Instant::now() + Duration::from_secs(10);
    let is_in = || calls.contains(&file("syscall").split(' ').next().unwrap_or_default());
    let is_asleep = || file("stat").rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'));
    while !is_in() || !is_asleep() {
        assert!(Instant::now() < until, "it does not wait");
        std::thread::yield_now();
    }
}

/// What was found at connections and listening sockets, as the kernel half has it.
fn found(kind: u32, port: u16, last: u8, end: other_end) -> (other_key, other_end) {
    let mut local = [0; 16];
    local[15] = last;
    (other_key { kind, local, local_port: port, netns: 1, ..Default::default() }, end)
}

fn holders<const N: usize>(all: [u32; N], end: other_end) -> other_end {
    let mut end = other_end { count: N as u32, ..end };
    end.holders[..N].copy_from_slice(&all);
    end
}

#[test]
fn a_connection_that_nobody_has_belongs_to_who_listens_at_its_address_or_at_any() {
    use crate::bpf::constants::other_ends_h::{ASKED_QUEUED, ASKED_SENT, OTHER_INET, OTHER_LISTENER};
    let queued = |index| other_end { index, may_be_queued: 1, asked: ASKED_SENT, ..Default::default() };
    let (here, any, other) = ([5], [6, 7], [8]);
    let all = [
        found(OTHER_INET, 80, 9, queued(1)),
        found(OTHER_INET, 81, 9, queued(2)),
        found(OTHER_INET, 82, 9, queued(3)),
        found(OTHER_INET, 80, 9, holders([4], queued(4))),
        found(OTHER_INET, 80, 9, other_end { may_be_queued: 0, ..queued(5) }),
        found(OTHER_LISTENER, 80, 9, holders(here, other_end::default())),
        found(OTHER_LISTENER, 80, 0, holders(other, other_end::default())),
        found(OTHER_LISTENER, 81, 0, holders(any, other_end::default())),
        found(OTHER_LISTENER, 82, 9, other_end::default()), // its queue is empty
    ];
    let ends = ends_by_row(&all);
    let told =
        |index: u32| (ends[&index].asked, ends[&index].holders[..ends[&index].count as usize].to_vec());
    assert_eq!(told(1), (ASKED_QUEUED, here.to_vec()));
    assert_eq!(told(2), (ASKED_QUEUED, any.to_vec()));
    assert_eq!(told(3), (ASKED_SENT, vec![]));
    assert_eq!(told(4), (ASKED_SENT, vec![4]), "it was accepted");
    assert_eq!(told(5), (ASKED_SENT, vec![]), "it has had an answer");
    assert_eq!(ends.len(), 5);
}

#[test]
fn root_holder_of_the_other_end_of_a_lasting_socket_wait_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    let ways: Vec<Lasting> = (0..256).map(|bits| Lasting::drawn(bits ^ (drawn & 255))).collect();
    let (tell, told) = mpsc::channel();
    let mut all = Vec::new();
    for way in ways {
        let (client, server) = way.connect(folder.path());
        let mut holder = std::process::Command::new("sleep");
        let holder = Holder(holder.arg("1000").stdin(std::process::Stdio::from(server)).spawn().unwrap());
        let (fd, tell) = (client.as_raw_fd(), tell.clone());
        let thread = std::thread::spawn(move || {
            tell.send(me()).unwrap();
            let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid entry; a buffer of one byte.
            unsafe {
                if way.polls {
                    libc::poll(&raw mut polled, 1, -1)
                } else {
                    libc::recv(fd, [0u8; 1].as_mut_ptr().cast(), 1, 0) as i32
                }
            }
        });
        let pid = told.recv().unwrap();
        await_call(pid, &["7", "45"]);
        all.push((way, client, holder, thread, pid));
    }
    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget::of(2, false)).unwrap();
    let followed: Vec<u32> = all.iter().filter(|(way, ..)| way.followed).map(|(.., pid)| *pid).collect();
    sched.follow(&followed).unwrap();
    sched.begin().unwrap();
    std::thread::sleep(Duration::from_millis(30)); // shorter waits of clients that are not followed are not looked up
    let (mut seen, _) = sched.finish().unwrap();
    assert!(seen.ends_missing.is_none(), "{:?}", seen.ends_missing);
    let requests = crate::span_table::requests(&seen);
    let rows = timeline_of_all(&mut seen);
    for (way, client, holder, thread, pid) in all {
        let row = rows.iter().rfind(|row| row.pid == pid).expect("it has a row");
        let end = row.other_end.as_deref();
        let what = format!("{way:?}, seed {drawn}: {row:?}");
        assert!(row.open, "{what}");
        // Unread data are found when the other end is: over TCP the client has sent, too. Without any data from the service it is not known
        // before whether the connection was accepted.
        let is_new = way.queued || (!way.unix && !way.is_answered && !way.tells);
        // Requests that were answered within a tick are looked up, too: a finer clock then shows the answer.
        let is_told = way.followed || way.has_asked() || is_new || way.unix;
        assert!(end.is_some() == is_told || (end.is_some() && (way.is_answered || way.tells)), "{what}");
        if let Some(end) = end {
            assert_eq!(end.asked >= Asked::Sent, way.has_asked() || way.queued, "{what}");
            assert_eq!(
                end.asked == Asked::Unread,
                way.queued || (way.sends && !way.is_read && !way.tells),
                "{what}"
            );
            assert!(end.asked != Asked::No || !way.unix, "{what}");
            assert!(end.asked == Asked::No || !(way.is_answered || way.tells) || way.unix, "{what}");
            assert_eq!(end.processes, [holder.0.id()], "{what}");
        }
        if !way.unix {
            let its = requests.iter().filter(|request| request.other_end.processes == [holder.0.id()]);
            let asked: Vec<u32> = its.map(|request| request.tgid).collect();
            let is_one = way.has_asked() || way.queued;
            assert_eq!(asked, vec![std::process::id(); usize::from(is_one)], "{what}");
        }
        drop(holder); // the last process with the other end
        thread.join().unwrap();
        drop(client);
    }
}

#[test]
fn root_reader_of_a_full_datagram_socket_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let server = std::os::unix::net::UnixDatagram::bind(folder.path().join("log")).unwrap();
    let client = std::os::unix::net::UnixDatagram::unbound().unwrap();
    client.connect(folder.path().join("log")).unwrap();
    client.set_nonblocking(true).unwrap();
    while client.send(&[0]).is_ok() {}
    client.set_nonblocking(false).unwrap();
    let server = std::process::Stdio::from(std::os::fd::OwnedFd::from(server));
    let holder = Holder(std::process::Command::new("sleep").arg("1000").stdin(server).spawn().unwrap());
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        tell.send(me()).unwrap();
        client.send(&[0]).unwrap_err() // its reader ends
    });
    let pid = told.recv().unwrap();
    await_call(pid, &["1", "44"]);
    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget::of(2, false)).unwrap();
    sched.begin().unwrap();
    std::thread::sleep(Duration::from_millis(30)); // shorter waits of clients that are not followed are not looked up
    let (mut seen, _) = sched.finish().unwrap();
    let row = timeline_of(pid, &mut seen).pop().expect("it has a row");
    let end = row.other_end.as_deref().unwrap_or_else(|| panic!("{row:?}"));
    assert_eq!((end.asked, &end.processes[..]), (Asked::Unread, &[holder.0.id()][..]), "{row:?}");
    drop(holder);
    thread.join().unwrap();
}

/// Both ends; a thread of ours waits at the first.
fn pair(reads: bool, udp: bool, is_read: bool) -> (std::os::fd::OwnedFd, std::os::fd::OwnedFd) {
    use std::io::Write as _;
    if udp {
        let at = if reads { "127.0.0.1:0" } else { "[::]:0" };
        let server = std::net::UdpSocket::bind(at).unwrap();
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(("127.0.0.1", server.local_addr().unwrap().port())).unwrap();
        client.send(b"?").unwrap();
        if is_read {
            server.recv(&mut [0]).unwrap();
        }
        return (client.into(), server.into());
    }
    let (reader, mut writer) = std::io::pipe().unwrap();
    if reads {
        return (reader.into(), writer.into());
    }
    // SAFETY: a pipe of ours; its size in bytes.
    let room = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ) };
    writer.write_all(&vec![0; usize::try_from(room).unwrap()]).unwrap();
    (writer.into(), reader.into())
}

#[test]
fn root_holder_of_the_other_end_of_a_pipe_or_udp_socket_is_found() {
    let (tell, told) = mpsc::channel();
    let mut all = Vec::new();
    for bits in 0..8 {
        let [reads, udp, is_read] = [1, 2, 4].map(|bit| bits & bit != 0);
        let (own, other) = pair(reads, udp, is_read);
        let mut holder = std::process::Command::new("sleep");
        let holder = Holder(holder.arg("1000").stdin(std::process::Stdio::from(other)).spawn().unwrap());
        let (fd, tell) = (own.as_raw_fd(), tell.clone());
        let thread = std::thread::spawn(move || {
            tell.send(me()).unwrap();
            // SAFETY: buffers of one byte; a broken pipe is an error here.
            unsafe {
                match (udp, reads) {
                    (true, _) => libc::recv(fd, [0u8; 1].as_mut_ptr().cast(), 1, 0),
                    (_, true) => libc::read(fd, [0u8; 1].as_mut_ptr().cast(), 1),
                    (_, false) => libc::write(fd, [0u8; 1].as_ptr().cast(), 1),
                }
            }
        });
        let pid = told.recv().unwrap();
        await_call(pid, &["0", "1", "45"]);
        all.push((reads, udp, is_read, own, holder, thread, pid));
    }
    let mut slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut slot, layout(), Budget::of(2, false)).unwrap();
    sched.begin().unwrap();
    std::thread::sleep(Duration::from_millis(30)); // shorter waits of clients that are not followed are not looked up
    let (mut seen, _) = sched.finish().unwrap();
    let rows = timeline_of_all(&mut seen);
    for (reads, udp, is_read, own, holder, thread, pid) in all {
        let row = rows.iter().rfind(|row| row.pid == pid).expect("it has a row");
        let end = row.other_end.as_deref().unwrap_or_else(|| panic!("{udp} {reads}: {row:?}"));
        assert_eq!(end.processes, [holder.0.id()], "{udp} {reads}: {row:?}");
        let owes = if udp { !is_read } else { !reads };
        assert_eq!(end.asked, if owes { Asked::Unread } else { Asked::Unknown }, "{udp} {reads}: {row:?}");
        if udp {
            // SAFETY: a socket of ours: its receiver wakes up.
            unsafe { libc::shutdown(own.as_raw_fd(), libc::SHUT_RDWR) };
        }
        drop(holder); // the last process with the other end
        thread.join().unwrap();
    }
}
