use std::fs::{self, File};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::process::Command;

use super::*;
use proptest::prelude::*;

/// Calls of this process that failed while it did `what`.
fn failed(what: impl FnOnce()) -> Vec<table::FailedCall> {
    let mut slot = MaybeUninit::uninit();
    let mut probe = Failed::load(&mut slot).expect("root may look");
    probe.begin().unwrap();
    what();
    let mut rows = probe.rows();
    rows.retain(|row| row.tgid == std::process::id());
    rows
}

/// A file system of 64 KiB, in a folder of its own that is gone when this is dropped.
struct Small(std::path::PathBuf);

impl Small {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("whyslow-test-{}-small", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&path).status();
        assert!(mounted.unwrap().success());
        Small(path)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn root_writes_to_a_full_file_system_are_reported_with_it() {
    let small = Small::new();
    let mut file = File::create(small.0.join("big.log")).unwrap();
    let mut refused = 0;
    let rows = failed(|| {
        for _ in 0..40 {
            refused += u64::from(file.write_all(&[1; 4096]).is_err());
        }
    });
    assert!(refused > 20, "{refused}");
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.error, row.syscall, row.count), (libc::ENOSPC as u32, libc::SYS_write as u32, refused));
    assert_eq!((&*row.file_system, &*row.device, &*row.file), ("tmpfs", "tmpfs", "big.log"));
    assert!(row.dev.starts_with("0:"), "{row:?}");
}

/// How long a thread slept between writes to a file system that is full, by the kind of sleep, each 20 times.
fn slept_between(does: impl Fn()) -> Duration {
    let small = Small::new();
    let mut file = File::create(small.0.join("big.log")).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    let rows = failed(|| {
        for _ in 0..21 {
            assert!(file.write_all(&[1; 4096]).is_err());
            does();
        }
    });
    let [row] = &rows[..] else { panic!("{rows:?}") };
    Duration::from_nanos(row.slept_ns)
}

#[test]
fn root_sleeps_between_calls_that_failed_are_told_if_nothing_else_was_waited_for() {
    const NAP: Duration = Duration::from_millis(5);
    let nap = || std::thread::sleep(NAP);
    // SAFETY: nothing is watched.
    let poll = || assert_eq!(unsafe { libc::poll(std::ptr::null_mut(), 0, 5) }, 0);
    // A CPU that other tasks use, too, may be late, or merge two sleeps into one.
    let is_all = |slept: Duration| slept >= 15 * NAP && slept < 100 * NAP;
    let (napped, polled) = (slept_between(nap), slept_between(poll));
    assert!(is_all(napped) && is_all(polled), "{napped:?}, {polled:?}");
    let (quiet, _other) = UnixStream::pair().unwrap();
    quiet.set_read_timeout(Some(NAP)).unwrap();
    let waits = || assert!(std::io::Read::read(&mut &quiet, &mut [0]).is_err());
    assert_eq!(slept_between(waits), Duration::ZERO, "it waits for data");
    let twice = || {
        nap();
        nap();
    };
    assert_eq!(slept_between(twice), Duration::ZERO, "its own pace");
    let works = || {
        let until = Instant::now() + NAP;
        while Instant::now() < until {}
    };
    assert_eq!(slept_between(works), Duration::ZERO);
}

/// 64 together are counted together; a call between them begins a new streak, and a few are nothing.
#[test]
fn root_calls_that_fail_one_after_the_other_are_reported_together() {
    let close = |times: u64| {
        // SAFETY: no such descriptor.
        let closed = (0..times).filter(|_| unsafe { libc::close(1_000_000) } == 0);
        assert_eq!(closed.count(), 0);
    };
    let rows = failed(|| close(1_000));
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.error, row.syscall), (libc::EBADF as u32, libc::SYS_close as u32));
    // Another task may break a streak or two.
    assert!((700..1_000).contains(&row.count) && row.count.is_multiple_of(64), "{row:?}");
    assert!(row.streak_ns > 10 * row.count && !row.of_children && row.away_ns == 0, "{row:?}");
    let broken = failed(|| {
        for _ in 0..200 {
            close(20);
            // SAFETY: no arguments.
            unsafe { libc::getppid() };
        }
    });
    assert_eq!(broken, []);
    let slow = failed(|| {
        for _ in 0..200 {
            close(1);
            std::thread::sleep(Duration::from_micros(60));
        }
    });
    assert_eq!(slow, [], "it does something else between them");
}

/// One process lives for a moment, and was there when the window began: it is reported by its own number. One that is born later by its
/// parent's.
#[test]
fn root_calls_of_children_are_told_with_their_parent_if_they_are_born_in_the_window() {
    let script = "read go; exec perl -e 'chmod(0, map { \"/nowhere/$_\" } 1 .. 900)'";
    let mut child =
        Command::new("sh").args(["-c", script]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut slot = MaybeUninit::uninit();
    let mut probe = Failed::load(&mut slot).expect("root may look");
    probe.begin().unwrap();
    drop(child.stdin.take());
    let born = Command::new("sh").args(["-c", script]).stdin(std::process::Stdio::null()).status();
    assert!(child.wait().unwrap().success() && born.unwrap().success());
    let rows = probe.rows();
    let of = |tgid: u32| rows.iter().find(|row| row.tgid == tgid && row.syscall == libc::SYS_chmod as u32);
    assert!(of(child.id()).is_some_and(|row| !row.of_children && row.count > 500), "{rows:?}");
    assert!(of(std::process::id()).is_some_and(|row| row.of_children && row.count > 500), "{rows:?}");
}

#[test]
fn root_eagain_from_nonblocking_read_is_no_failure() {
    let (socket, _other) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    let rows = failed(|| {
        for _ in 0..1_000 {
            let read = std::io::Read::read(&mut &socket, &mut [0; 8]);
            assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        }
    });
    assert_eq!(rows, []);
}

/// Only one attempt: refused at once, or an error that the queue is full.
fn connect_at_once(to: &UnixAddr) -> std::io::Result<UnixStream> {
    use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
    // SAFETY: no pointers.
    let fd = unsafe {
        libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0)
    };
    assert!(fd >= 0);
    // SAFETY: no other owner has it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let path = to.as_pathname().unwrap().as_os_str().as_encoded_bytes();
    // SAFETY: all zeros are an address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    address.sun_path.iter_mut().zip(path).for_each(|(to, byte)| *to = byte.cast_signed());
    let len = size_of::<libc::sockaddr_un>() as u32;
    // SAFETY: the address is as long as is said.
    match unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len) } {
        0 => Ok(UnixStream::from(socket)),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[test]
fn root_a_unix_socket_whose_queue_is_full_or_where_nobody_listens_is_reported_by_its_name() {
    use std::os::fd::AsRawFd as _;
    use std::os::linux::net::SocketAddrExt as _;
    let path = std::env::temp_dir().join(format!("whyslow-test-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    // SAFETY: its own descriptor.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let at = listener.local_addr().unwrap();
    let mut taken = Vec::new();
    let full = failed(|| {
        for _ in 0..5 {
            taken.extend(connect_at_once(&at));
        }
    });
    let [row] = &full[..] else { panic!("{full:?}") };
    assert_eq!(
        (row.error, row.syscall, row.count),
        (libc::EAGAIN as u32, libc::SYS_connect as u32, 5 - taken.len() as u64)
    );
    assert_eq!(row.file, path.to_string_lossy());
    drop(listener);
    let nameless = UnixAddr::from_abstract_name("whyslow-test-nobody").unwrap();
    let gone = failed(|| {
        assert!(UnixStream::connect(&path).is_err());
    });
    let without_place = failed(|| {
        assert!(UnixStream::connect_addr(&nameless).is_err());
    });
    fs::remove_file(&path).unwrap();
    for (rows, name) in [(gone, &*path.to_string_lossy()), (without_place, "@whyslow-test-nobody")] {
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((row.error, row.count, row.file.as_str()), (libc::ECONNREFUSED as u32, 1, name));
    }
}

/// TCP has a table of its own for them.
#[test]
fn root_a_refusal_of_tcp_is_no_row() {
    let at = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let rows = failed(|| assert!(std::net::TcpStream::connect(at).is_err()));
    assert_eq!(rows, []);
}

#[test]
fn root_a_path_that_has_no_room_is_reported_as_it_was_given() {
    let small = Small::new();
    fs::write(small.0.join("fills"), [1; 65_536]).unwrap();
    let new = small.0.join("no-room");
    let rows = failed(|| {
        // A link's text has no room of its own there.
        let long = "x".repeat(2000);
        assert!(std::os::unix::fs::symlink(&long, &new).is_err());
    });
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.error, row.count, &*row.file), (libc::ENOSPC as u32, 1, new.to_str().unwrap()));
    assert_eq!(row.dev, "");
}

#[test]
fn root_alternating_enoent_and_econnrefused_are_not_reported() {
    let rows = failed(|| {
        for _ in 0..100 {
            assert!(File::open("/no/such/file").is_err());
            assert!(std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, 1)).is_err());
        }
    });
    assert_eq!(rows, []);
}

#[test]
fn root_probe_detaches_under_many_calls_and_reattaches_after_a_pause() {
    let mut slot = MaybeUninit::uninit();
    let mut probe = Failed::load(&mut slot).expect("root may look");
    probe.begin().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while probe.skel.links.returned.is_some() {
        assert!(Instant::now() < until);
        for _ in 0..20_000 {
            // SAFETY: no pointers.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
        probe.poll(Duration::ZERO);
    }
    while probe.skel.links.returned.is_none() {
        assert!(Instant::now() < until, "it did not come back");
        probe.poll(Duration::ZERO);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(probe.visits.away(Instant::now()) >= Visits::AWAY);
}

#[test]
fn root_probe_omits_failures_of_its_own_process() {
    let mut slot = MaybeUninit::uninit();
    let mut probe = Failed::load(&mut slot).expect("root may look");
    probe.leave_out(std::process::id());
    probe.begin().unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    assert!((&full).write_all(&[1]).is_err());
    assert!(probe.rows().iter().all(|row| row.tgid != std::process::id()));
}

#[test]
fn threads_are_counted() {
    assert_eq!(threads("0.12 0.08 0.05 1/345 6789\n"), Some(345));
    assert_eq!(threads("0.12 0.08 0.05 1"), None);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".{0,40}") {
        threads(&text);
    }
}
