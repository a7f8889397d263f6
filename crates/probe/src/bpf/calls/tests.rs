//! Threads of the test process make known calls, and the probe must have seen those and no others.

use std::ffi::CString;
use std::io::{BufRead as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use super::*;
use crate::bpf::sched::{Budget, Layout, Sched};

const READ: u32 = libc::SYS_read as u32;
const WRITE: u32 = libc::SYS_write as u32;
const OPENAT: u32 = libc::SYS_openat as u32;
const NANOSLEEP: u32 = libc::SYS_nanosleep as u32;

fn tid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    u32::try_from(unsafe { libc::gettid() }).unwrap()
}

/// Run `work` on a thread that `calls` follows; its id, and what `work` returned.
fn followed<T: Send>(calls: &Calls<'_>, work: impl FnOnce() -> T + Send) -> (u32, T) {
    let (tell, reported) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            tell.send(tid()).unwrap();
            wait.recv().unwrap();
            work()
        });
        let pid = reported.recv().unwrap();
        calls.follow(pid).unwrap();
        go.send(()).unwrap();
        (pid, thread.join().unwrap())
    })
}

fn c(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().to_str().unwrap()).unwrap()
}

fn openat(dir: i32, path: impl AsRef<Path>, flags: i32) -> i32 {
    // SAFETY: the path ends with a zero byte.
    let fd = unsafe { libc::openat(dir, c(path).as_ptr(), flags | libc::O_CLOEXEC, 0o600) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    fd
}

fn open(path: impl AsRef<Path>) -> i32 {
    openat(libc::AT_FDCWD, path, libc::O_CREAT | libc::O_RDWR)
}

/// Eight bytes, as eventfd requires.
fn write(fd: i32, times: usize) {
    for _ in 0..times {
        // SAFETY: the buffer is as long as we say.
        assert_eq!(unsafe { libc::write(fd, 1u64.to_ne_bytes().as_ptr().cast(), 8) }, 8);
    }
}

fn read(fd: i32, times: usize) {
    let mut buffer = [0u8; 8];
    for _ in 0..times {
        // SAFETY: the buffer is as long as we say.
        assert!(unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), 8) } >= 0);
    }
}

fn close(fd: i32) {
    // SAFETY: ours.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

fn sleep(time: Duration) {
    let time = libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    // SAFETY: a whole timespec. The raw call: glibc's uses another.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, 0) };
}

fn rows<'s>(seen: &'s RawCalls, pid: u32, nr: u32, path: &str) -> Vec<&'s Row> {
    let fits = |row: &&Row| row.pid == pid && row.nr == nr && row.path.as_deref() == Some(path);
    seen.rows.iter().filter(fits).collect()
}

/// (calls, errors) of one number on one path.
fn counts(seen: &RawCalls, pid: u32, nr: u32, path: impl AsRef<Path>) -> (u64, u64) {
    let found = rows(seen, pid, nr, path.as_ref().to_str().unwrap());
    (found.iter().map(|r| r.count).sum(), found.iter().map(|r| r.errors).sum())
}

#[track_caller]
fn expect(seen: &RawCalls, pid: u32, wanted: &[(u32, &str, u64)]) {
    for (nr, path, count) in wanted {
        let all: Vec<_> = seen.rows.iter().filter(|r| r.nr == *nr).map(|r| (&r.path, r.count)).collect();
        assert_eq!(counts(seen, pid, *nr, path).0, *count, "call {nr} on {path}: {all:?}");
    }
}

fn started(slot: &mut MaybeUninit<OpenObject>, slow: Option<Duration>) -> Calls<'_> {
    Calls::start(slot, None, slow, false).expect("root may trace system calls")
}

#[test]
fn root_calls_are_counted_by_the_file_behind_the_descriptor() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    std::fs::create_dir(at("sub")).unwrap();
    let kept = std::fs::File::create(at("kept")).unwrap();
    std::fs::remove_file(at("kept")).unwrap();
    let mut slot = MaybeUninit::uninit();
    let calls = started(&mut slot, None);
    let (pid, ()) = followed(&calls, || {
        let a = open(at("a"));
        write(a, 3);
        // SAFETY: descriptors of ours.
        let (b, d) = unsafe { (libc::dup(a), libc::dup2(a, 900)) };
        write(b, 2);
        write(d, 4);
        [a, b, d].into_iter().for_each(close);
        let x = open(at("x"));
        read(x, 2);
        close(x);
        let y = open(at("y"));
        assert_eq!(x, y, "the number is used again");
        read(y, 5);
        close(y);
        let sub = openat(libc::AT_FDCWD, at("sub"), libc::O_DIRECTORY);
        let b = openat(sub, "b", libc::O_CREAT | libc::O_RDWR);
        read(b, 6);
        // SAFETY: the folder and this thread are ours; the name ends with a zero byte.
        unsafe {
            assert_eq!(libc::unshare(libc::CLONE_FS), 0);
            assert_eq!(libc::fchdir(sub), 0);
            assert_eq!(libc::access(c"./none".as_ptr(), 0), -1);
            assert_eq!(libc::faccessat(sub, c"nowhere/x".as_ptr(), 0, 0), -1);
        }
        let gone = open(at("gone"));
        std::fs::remove_file(at("gone")).unwrap();
        write(gone, 3);
        // SAFETY: a descriptor of ours.
        let kept = unsafe { libc::dup(kept.as_raw_fd()) };
        write(kept, 4);
        read(open("c"), 7);
        let unnamed = openat(libc::AT_FDCWD, home.path(), libc::O_TMPFILE | libc::O_RDWR);
        write(unnamed, 8);
    });
    let (seen, lost) = calls.finish().unwrap();
    assert_eq!(lost, 0);
    let path = |name: &str| at(name).to_str().unwrap().to_owned();
    let a = path("a");
    expect(&seen, pid, &[(OPENAT, &a, 1), (WRITE, &a, 9), (libc::SYS_close as u32, &a, 3)]);
    expect(&seen, pid, &[(READ, &path("x"), 2), (READ, &path("y"), 5), (READ, &path("sub/b"), 6)]);
    expect(
        &seen,
        pid,
        &[(READ, &path("sub/c"), 7), (OPENAT, &path("sub/c"), 1), (WRITE, &path("[unnamed]"), 8)],
    );
    // Its name when it was first seen: one file is one row.
    expect(&seen, pid, &[(WRITE, &path("gone"), 3), (WRITE, &path("kept (deleted)"), 4)]);
    expect(&seen, pid, &[(libc::SYS_fchdir as u32, &path("sub"), 1)]);
    let access = [libc::SYS_access, libc::SYS_faccessat, libc::SYS_faccessat2];
    let failed = |name: &str| access.map(|nr| counts(&seen, pid, nr as u32, path(name))).contains(&(1, 1));
    assert!(failed("sub/none") && failed("sub/nowhere/x"), "{:?}", seen.rows);
}

#[test]
fn root_pipes_sockets_and_their_like_have_names() {
    let home = tempfile::tempdir().unwrap();
    let unix = home.path().join("s");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = listener.local_addr().unwrap();
    let unix_listener = UnixListener::bind(&unix).unwrap();
    let mut slot = MaybeUninit::uninit();
    let calls = started(&mut slot, None);
    let (pid, ()) = followed(&calls, || {
        let mut ends = [0; 2];
        // SAFETY: the kernel fills both; names end with a zero byte.
        let made = unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            [libc::eventfd(0, 0), libc::memfd_create(c"mine".as_ptr(), 0), libc::epoll_create1(0)]
        };
        write(ends[1], 2);
        read(ends[0], 2);
        write(made[0], 3);
        write(made[1], 4);
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: one event, and we say so.
        unsafe { libc::epoll_wait(made[2], &raw mut event, 1, 0) };
        let tcp = TcpStream::connect(peer).unwrap();
        write(tcp.as_raw_fd(), 5);
        let stream = std::os::unix::net::UnixStream::connect(&unix).unwrap();
        write(stream.as_raw_fd(), 6);
        made.into_iter().chain(ends).for_each(close);
    });
    drop(unix_listener);
    let (seen, _) = calls.finish().unwrap();
    let (tcp, unix) = (format!("socket {peer}"), format!("unix:{}", unix.display()));
    expect(
        &seen,
        pid,
        &[(WRITE, "pipe", 2), (READ, "pipe", 2), (WRITE, "[eventfd]", 3), (WRITE, "memfd:mine", 4)],
    );
    expect(&seen, pid, &[(libc::SYS_connect as u32, &tcp, 1), (WRITE, &tcp, 5)]);
    expect(&seen, pid, &[(libc::SYS_connect as u32, &unix, 1), (WRITE, &unix, 6)]);
    let epoll = [libc::SYS_epoll_wait, libc::SYS_epoll_pwait]
        .map(|nr| counts(&seen, pid, nr as u32, "[eventpoll]").0);
    assert_eq!(epoll.iter().sum::<u64>(), 1);
    assert!(seen.rows.iter().all(|row| row.pid == pid), "no other thread is followed");
}

#[test]
fn root_times_are_those_of_the_callers_clock() {
    let mut sched_slot = MaybeUninit::uninit();
    let mut sched = Sched::load(&mut sched_slot, Layout::default(), Budget::of(2, true)).unwrap();
    sched.begin().expect("root may trace the scheduler");
    let mut slot = MaybeUninit::uninit();
    let calls = Calls::start(&mut slot, Some(sched.shared()), None, false).unwrap();
    let (pid, spent) = followed(&calls, || {
        let began = Instant::now();
        (0..40).for_each(|_| sleep(Duration::from_millis(2)));
        began.elapsed()
    });
    let (seen, _) = calls.finish().unwrap();
    let row = seen.rows.iter().find(|row| row.pid == pid && row.nr == NANOSLEEP).unwrap();
    let total = Duration::from_nanos(row.total_ns);
    assert_eq!((row.count, &row.path), (40, &None));
    assert!(total <= spent && total.as_secs_f64() > 0.9 * spent.as_secs_f64(), "{total:?} of {spent:?}");
    assert_eq!(row.split.total_ns(), row.total_ns, "{row:?}");
    assert!(row.split.sleep_ns >= 40 * 2_000_000, "a sleep is never shorter than requested: {row:?}");
    assert!(row.worst_ns >= 2_000_000 && row.worst_ns <= row.total_ns);
}

#[test]
fn root_slow_calls_are_reported_once_and_open_ones_too() {
    let mut slot = MaybeUninit::uninit();
    let calls = Calls::start(&mut slot, None, Some(Duration::from_millis(20)), true).unwrap();
    let (begun, seen_begin) = mpsc::channel();
    let mut ends = [0; 2];
    // SAFETY: the kernel fills both.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let (pid, ()) = followed(&calls, || {
        sleep(Duration::from_micros(50));
        (0..3).for_each(|_| sleep(Duration::from_millis(30)));
    });
    let blocked = thread::spawn(move || {
        begun.send(tid()).unwrap();
        read(ends[0], 2);
    });
    let waiter = seen_begin.recv().unwrap();
    calls.follow(waiter).unwrap();
    write(ends[1], 1); // its first read began unseen
    let state = || std::fs::read_to_string(format!("/proc/self/task/{waiter}/syscall")).unwrap_or_default();
    let began = Instant::now();
    while !state().starts_with("0 ") || unread(ends[0]) {
        assert!(began.elapsed() < Duration::from_secs(30));
        thread::yield_now();
    }
    let (seen, _) = calls.finish().unwrap();
    let slow: Vec<_> = seen.singles.iter().filter(|one| one.pid == pid).collect();
    assert_eq!(slow.len(), 3, "{slow:?}");
    assert!(slow.iter().all(|one| one.nr == NANOSLEEP && one.ns >= 30_000_000 && !one.open));
    assert!(slow.iter().all(|one| !one.frames.is_empty()), "{slow:?}");
    assert!(slow.windows(2).all(|two| two[0].at_ns + two[0].ns <= two[1].at_ns));
    let open: Vec<_> = seen.singles.iter().filter(|one| one.pid == waiter).collect();
    assert_eq!(open.len(), 1, "{open:?}");
    assert!(open[0].open && open[0].nr == READ && open[0].path.as_deref() == Some("pipe"), "{open:?}");
    write(ends[1], 1);
    blocked.join().unwrap();
    ends.into_iter().for_each(close);
}

/// Calls that begin on another CPU after the closing walk's time was taken, and before it came to their task.
#[test]
fn root_a_call_that_begins_during_the_closing_walk_has_no_length() {
    let mut slot = MaybeUninit::uninit();
    let mut calls = started(&mut slot, None);
    let done = std::sync::atomic::AtomicBool::new(false);
    let (tell, reported) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            tell.send(tid()).unwrap();
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                thread::yield_now();
            }
        });
        let pid = reported.recv().unwrap();
        calls.follow(pid).unwrap();
        let began = host::monotonic_ns();
        let mut open = Vec::new();
        for _ in 0..2000 {
            // As if the window went on: calls are seen to begin again.
            calls.skel.maps.bss_data.as_mut().unwrap().ended_at = 0;
            thread::sleep(Duration::from_micros(20));
            let all = calls.open_at(host::monotonic_ns()).unwrap();
            let since = host::monotonic_ns() - began;
            open.extend(all.into_iter().map(|one| (one.pid, one.ns, since)));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        let wrong: Vec<_> = open.iter().filter(|(of, ns, since)| *of != pid || ns > since).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        assert!(!open.is_empty(), "none of 2000 walks met a call");
    });
}

fn unread(fd: i32) -> bool {
    let mut bytes = 0i32;
    // SAFETY: FIONREAD fills one int.
    assert_eq!(unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut bytes) }, 0);
    bytes > 0
}

#[test]
fn root_full_maps_cost_names_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let mut slot = MaybeUninit::uninit();
    let calls = Calls::load(&mut slot, None, None, false, SPARE + 80).unwrap();
    let (pid, ()) = followed(&calls, || {
        for file in 0..200 {
            let fd = open(home.path().join(file.to_string()));
            read(fd, 2);
            close(fd);
        }
    });
    let (seen, _) = calls.finish().unwrap();
    for (nr, count) in [(READ, 400), (OPENAT, 200)] {
        let rows: Vec<_> = seen.rows.iter().filter(|row| row.nr == nr && row.pid == pid).collect();
        assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), count);
        assert!(rows.len() > 5 && rows.len() < 60, "{}", rows.len());
        assert!(counts(&seen, pid, nr, OTHER_FILES).0 > count / 2);
    }
}

#[test]
fn root_entries_of_ended_tasks_are_used_again() {
    let home = tempfile::tempdir().unwrap();
    let mut slot = MaybeUninit::uninit();
    let mut calls = Calls::load(&mut slot, None, None, false, SPARE + 400).unwrap();
    let mut pids = Vec::new();
    for _ in 0..40 {
        let work = || {
            for file in 0..20 {
                let fd = open(home.path().join(file.to_string()));
                read(fd, 3);
                close(fd);
            }
        };
        pids.push(followed(&calls, work).0);
        calls.poll().unwrap();
    }
    let (seen, lost) = calls.finish().unwrap();
    assert_eq!(lost, 0);
    let reads: Vec<_> = seen.rows.iter().filter(|row| row.nr == READ).collect();
    assert_eq!(reads.iter().map(|row| row.count).sum::<u64>(), 40 * 20 * 3);
    assert!(reads.iter().all(|row| row.path.as_deref() != Some(OTHER_FILES)), "there was room for each");
}

#[test]
fn root_one_task_may_touch_more_files_than_there_are_entries() {
    let home = tempfile::tempdir().unwrap();
    let mut slot = MaybeUninit::uninit();
    let mut calls = Calls::load(&mut slot, None, None, false, SPARE + 600).unwrap();
    let (tell, reported) = mpsc::channel::<u32>();
    let (go, wait) = mpsc::channel::<u32>();
    thread::scope(|scope| {
        scope.spawn(move || {
            tell.send(tid()).unwrap();
            let kept = open(home.path().join("kept"));
            for round in &wait {
                for file in 0..40 {
                    let fd = open(home.path().join(format!("{round}-{file}")));
                    read(fd, 3);
                    close(fd);
                }
                read(kept, 2); // its entry is remembered, or taken, or made again
                tell.send(0).unwrap();
            }
        });
        calls.follow(reported.recv().unwrap()).unwrap();
        for round in 0..30 {
            go.send(round).unwrap();
            reported.recv().unwrap();
            calls.poll().unwrap();
            calls.poll().unwrap();
        }
        drop(go);
    });
    let (seen, lost) = calls.finish().unwrap();
    assert_eq!(lost, 0);
    let reads: Vec<_> = seen.rows.iter().filter(|row| row.nr == READ).collect();
    assert_eq!(reads.iter().map(|row| row.count).sum::<u64>(), 30 * (40 * 3 + 2));
    let kept = |row: &&&Row| row.path.as_deref().is_some_and(|path| path.ends_with("/kept"));
    assert_eq!(reads.iter().filter(kept).map(|row| row.count).sum::<u64>(), 30 * 2);
    assert!(reads.iter().all(|row| row.path.as_deref() != Some(OTHER_FILES)), "there was room for each");
}

#[test]
fn root_a_path_in_a_page_that_is_not_there_yet_is_read_when_the_call_returns() {
    let home = tempfile::tempdir().unwrap();
    let text = home.path().join("text");
    std::fs::write(&text, b"/nowhere/at/all\0").unwrap();
    let mut slot = MaybeUninit::uninit();
    let calls = started(&mut slot, None);
    let (pid, ()) = followed(&calls, || {
        let fd = open(&text);
        // SAFETY: the file has a path with a zero byte in its first page, and the pages are not used after.
        unsafe {
            let page = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
            assert_ne!(page, libc::MAP_FAILED);
            assert_eq!(libc::access(page.cast(), 0), -1);
            libc::munmap(page, 4096);
            assert_eq!(libc::access(std::ptr::without_provenance(8), 0), -1);
        }
    });
    let (seen, _) = calls.finish().unwrap();
    let access = |path: Option<&str>| {
        let calls = [libc::SYS_access as u32, libc::SYS_faccessat as u32, libc::SYS_faccessat2 as u32];
        let fits = |row: &&Row| row.pid == pid && calls.contains(&row.nr) && row.path.as_deref() == path;
        seen.rows.iter().filter(fits).map(|row| row.errors).sum::<u64>()
    };
    assert_eq!((access(Some("/nowhere/at/all")), access(None)), (1, 1), "{:?}", seen.rows);
    assert_eq!(counts(&seen, pid, libc::SYS_mmap as u32, &text), (1, 0));
}

#[test]
fn root_a_sleep_that_a_stop_interrupts_goes_on_in_the_same_row() {
    let mut slot = MaybeUninit::uninit();
    let calls = started(&mut slot, None);
    let mut child = Command::new("/bin/sh")
        .args(["-c", "read line; exec sleep 0.3"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    calls.follow(child.id()).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let syscall = format!("/proc/{}/syscall", child.id());
    let sleeps = [libc::SYS_nanosleep, libc::SYS_clock_nanosleep].map(|nr| format!("{nr} "));
    let began = Instant::now();
    while !std::fs::read_to_string(&syscall).is_ok_and(|text| sleeps.iter().any(|nr| text.starts_with(nr))) {
        assert!(began.elapsed() < Duration::from_secs(30));
        thread::yield_now();
    }
    // SAFETY: our own child, not waited for yet.
    let signal = |signal| assert_eq!(unsafe { libc::kill(child.id().cast_signed(), signal) }, 0);
    signal(libc::SIGSTOP);
    let mut status = 0;
    // SAFETY: as above; this returns when it has stopped.
    unsafe { libc::waitpid(child.id().cast_signed(), &raw mut status, libc::WUNTRACED) };
    signal(libc::SIGCONT);
    child.wait().unwrap();
    let (seen, _) = calls.finish().unwrap();
    let sleeps = [libc::SYS_nanosleep as u32, libc::SYS_clock_nanosleep as u32];
    let slept: Vec<_> = seen.rows.iter().filter(|row| sleeps.contains(&row.nr)).collect();
    assert_eq!((slept.len(), slept[0].count, slept[0].errors), (1, 2, 0), "{slept:?}");
    assert!(slept[0].total_ns >= 290_000_000, "{slept:?}");
    assert!(seen.rows.iter().all(|row| row.nr != libc::SYS_restart_syscall as u32));
}

#[test]
fn root_a_process_that_executes_and_ends_is_followed_through() {
    let mut slot = MaybeUninit::uninit();
    let calls = started(&mut slot, None);
    let script = "read line; exec /usr/bin/env cat /dev/null";
    let mut child = Command::new("/bin/sh")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    calls.follow(child.id()).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
    let (seen, _) = calls.finish().unwrap();
    let execs: Vec<_> =
        seen.rows.iter().filter(|row| row.nr == libc::SYS_execve as u32 && row.count > row.errors).collect();
    assert!(execs.iter().any(|row| row.path.as_deref() == Some("/usr/bin/env")), "{execs:?}");
    assert_eq!(counts(&seen, child.id(), OPENAT, "/dev/null"), (1, 0));
    assert!(seen.rows.iter().all(|row| row.pid == child.id()));
    assert!(seen.singles.is_empty(), "the dead are in no call: {:?}", seen.singles);
}

/// For the next test, in a process of its own.
#[test]
#[ignore = "part of another test, in a process of its own"]
fn a_thread_executes() {
    let thread = thread::spawn(|| {
        println!("thread {} ", tid());
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let args = [c"cat".as_ptr(), c"/dev/null".as_ptr(), std::ptr::null()];
        // SAFETY: strings with a zero byte, and a list with a null.
        unsafe { libc::execv(c"/bin/cat".as_ptr(), args.as_ptr()) };
    });
    thread.join().unwrap();
}

#[test]
fn root_a_thread_that_executes_takes_its_call_along_to_the_pid_of_the_process() {
    let mut slot = MaybeUninit::uninit();
    let calls = started(&mut slot, None);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "bpf::calls::tests::a_thread_executes", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("thread ")).expect("it prints its thread");
    let thread: u32 = line.split("thread ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_ne!(thread, child.id());
    calls.follow(thread).unwrap();
    calls.follow(child.id()).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
    let (seen, _) = calls.finish().unwrap();
    assert_eq!(counts(&seen, thread, libc::SYS_execve as u32, "/bin/cat"), (1, 0), "{:?}", seen.rows);
    assert_eq!(counts(&seen, child.id(), OPENAT, "/dev/null"), (1, 0));
    assert!(seen.singles.is_empty(), "{:?}", seen.singles);
}

/// On a slow host it takes most of a second to detach the hooks: the time of a call beyond the window does not count.
#[test]
fn root_calls_after_the_window_do_not_count() {
    let mut slot = MaybeUninit::uninit();
    let mut calls = started(&mut slot, None);
    calls.follow(tid()).unwrap();
    sleep(Duration::from_millis(2));
    sleep(Duration::from_millis(2));
    calls.stop(Duration::ZERO).unwrap();
    sleep(Duration::from_secs(1));
    let (seen, lost) = calls.finish().unwrap();
    let sleeps: Vec<&Row> = seen.rows.iter().filter(|row| row.pid == tid() && row.nr == NANOSLEEP).collect();
    let told = sleeps.iter().map(|row| (row.count, row.total_ns)).collect::<Vec<_>>();
    assert_eq!((lost, sleeps.iter().map(|row| row.count).sum::<u64>()), (0, 2), "{told:?}");
    assert!(told.iter().all(|(_, ns)| *ns < 1_000_000_000), "{told:?}");
}
