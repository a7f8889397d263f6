//! A disposable process that reads what might hurt or hang, and answers through a pipe.
//!
//! A read that waits for a patient's lock waits uninterruptibly: a thread in it would keep the exam from exiting, and no
//! signal ends it. So the reader is a process of its own, in its own session, with no descriptor of ours but the pipe
//! (an inherited BPF descriptor would keep our programs attached for as long as it hangs), and it is never waited for
//! beyond the deadline. One per host: a stuck one holds a socket name, and the next exam leaves the hazardous files out.
//!
//! Between fork and _exit the child allocates nothing: another thread of the parent may have held malloc's lock.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::root::{open_below, open_dir, read_at, regular};

/// A read that takes longer than this is somebody else's wait, too: the child stops. By its own clock: the time it was
/// ready and not running is not the file's fault.
pub(super) const TOO_SLOW: Duration = Duration::from_millis(5);
/// The parent keeps no more than this of a child's answers.
const MOST_ANSWERED: usize = 32 << 20;

/// One answer: header, then `len` bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// Which file, by its place in the list; or `STOPPED`, `OTHER`.
    pub index: u32,
    /// 0, or the error.
    pub errno: i32,
    /// How long reading took, without the time waiting for a CPU.
    pub took_ns: u64,
    /// Bytes that follow.
    pub len: u32,
    /// There was more than the cap.
    pub cut: u32,
}

// SAFETY: integers only, and no padding: 4 + 4 + 8 + 4 + 4.
unsafe impl plain::Plain for Header {}

/// The read before this was too slow.
pub(super) const STOPPED: u32 = u32::MAX;
/// Another child is at work, or stuck.
pub(super) const OTHER: u32 = u32::MAX - 1;

/// What a child left behind.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Whole answers, in order.
    pub all: Vec<(Header, Vec<u8>)>,
    /// The deadline passed before the child was done.
    pub late: bool,
    /// The child, if it is not gone yet.
    pub stray: Option<libc::pid_t>,
}

/// The child's end of the pipe.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pipe(RawFd);

impl Pipe {
    /// Writes one answer; ends the child if nobody listens any more.
    pub fn answer(self, header: Header, bytes: &[u8]) {
        // SAFETY: a Header is plain bytes without padding.
        self.write(unsafe { plain::as_bytes(&header) });
        self.write(bytes);
    }

    fn write(self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            // SAFETY: readable for its length.
            let sent = unsafe { libc::write(self.0, bytes.as_ptr().cast(), bytes.len()) };
            if sent > 0 {
                bytes = bytes.get(sent as usize..).unwrap_or_default();
            } else if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                // SAFETY: ends this process, which is the child.
                unsafe { libc::_exit(2) }
            }
        }
    }
}

/// Runs `body` in a child until it is done or `deadline` has passed. `body` must not allocate.
pub(super) fn run(deadline: Duration, cpus: Option<&[u64]>, body: impl FnOnce(Pipe)) -> io::Result<Answers> {
    let end = Instant::now() + deadline;
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and ours.
    let [from, to] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    // SAFETY: no arguments.
    let parent = unsafe { libc::getpid() };
    // SAFETY: the child calls nothing that allocates or takes a lock of this process, and never returns.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let _never = Leave; // also if `body` panics: a second copy of the program must not go on
            leave_home(parent, to.as_raw_fd(), cpus);
            body(Pipe(to.as_raw_fd()));
            // SAFETY: ends the child without running what the parent registered.
            unsafe { libc::_exit(0) }
        }
        _ => {
            drop(to);
            Ok(listen(&from, pid, end))
        }
    }
}

struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        // SAFETY: ends the child.
        unsafe { libc::_exit(3) }
    }
}

/// Own session, no descriptors but the pipe, gone when the parent is gone, on CPUs that serve no NIC.
fn leave_home(parent: libc::pid_t, pipe: RawFd, cpus: Option<&[u64]>) {
    const NAME: &CStr = c"whyslow-files";
    // SAFETY: plain system calls on this process; the pointers are good for their lengths.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(4);
        }
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        close_all_but(pipe);
        if let Some(set) = cpus {
            // Refused where a cpuset forbids these CPUs: then it runs where it may.
            libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(set), set.as_ptr());
        }
    }
}

/// close_range is Linux 5.9; before, descriptors are closed one by one.
unsafe fn close_all_but(keep: RawFd) {
    // SAFETY: closing descriptors of this process, which has no other use for them.
    unsafe {
        let below = keep == 0 || libc::syscall(libc::SYS_close_range, 0, keep - 1, 0) == 0;
        let above = libc::syscall(libc::SYS_close_range, keep + 1, u32::MAX, 0) == 0;
        if !(below && above) {
            let mut limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
            for fd in (0..limit.rlim_cur.min(65_536) as RawFd).filter(|fd| *fd != keep) {
                libc::close(fd);
            }
        }
    }
}

/// Collects answers until the child is done or `end` has come.
fn listen(from: &OwnedFd, pid: libc::pid_t, end: Instant) -> Answers {
    let mut bytes = Vec::new();
    let mut done = false;
    while !done && bytes.len() < MOST_ANSWERED && readable_before(from, end) {
        let have = bytes.len();
        bytes.resize(have + (64 << 10), 0);
        // SAFETY: the tail of `bytes` is writable.
        let got = unsafe { libc::read(from.as_raw_fd(), bytes[have..].as_mut_ptr().cast(), 64 << 10) };
        bytes.truncate(have + usize::try_from(got).unwrap_or(0));
        done = got == 0 || (got < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted);
    }
    if !done {
        // SAFETY: our child, not waited for yet, so the number is still its own.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    // A child that has closed its pipe has little left to do; one that was killed dies at once, or hangs.
    let grace = if done { end.max(Instant::now() + Duration::from_millis(20)) } else { Instant::now() };
    Answers { all: split(&bytes), late: !done, stray: (!reaped_before(pid, grace)).then_some(pid) }
}

fn readable_before(fd: &OwnedFd, end: Instant) -> bool {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd.
        let ready = unsafe { libc::poll(&raw mut poll, 1, left.as_millis().clamp(1, 60_000) as i32) };
        if ready > 0 {
            return true;
        }
        if ready < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return false;
        }
    }
}

/// Whether the child is gone; looks again until `end`, but never hangs in wait.
pub(super) fn reaped_before(pid: libc::pid_t, end: Instant) -> bool {
    loop {
        // SAFETY: no status wanted.
        let got = unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
        if got != 0 {
            return true; // gone, or somebody else has waited for it
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200)); // pidfds are Linux 5.3; an exit takes less than this
    }
}

/// Whole answers; a torn last one is left out.
fn split(mut bytes: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(size_of::<Header>()) {
        let mut header = Header::default();
        if plain::copy_from_bytes(&mut header, head).is_err() {
            break;
        }
        let Some((body, rest)) = rest.split_at_checked(header.len as usize) else { break };
        all.push((header, body.to_vec()));
        bytes = rest;
    }
    all
}

/// The child's work: read the files in order, answer each, stop at the first that is too slow.
pub(super) fn read_all(
    pipe: Pipe,
    root: &CStr,
    live: bool,
    only_one: Option<&[u8]>,
    files: &[(&CStr, usize)],
    into: &mut [u8],
) {
    // The socket is closed, and its name free, when this process is gone: also if it was killed.
    if only_one.is_some_and(|name| !claim(name)) {
        return pipe.answer(Header { index: OTHER, ..Header::default() }, &[]);
    }
    let Ok(root) = open_dir(root) else { return };
    let clock = Clock::new();
    for (index, (path, cap)) in files.iter().enumerate() {
        let before = clock.now();
        let room = into.get_mut(..cap.saturating_add(1)).map_or(0, |room| room.len());
        let got = read_one(root.as_raw_fd(), path, live, into.get_mut(..room).unwrap_or_default());
        let took_ns = clock.now().saturating_sub(before);
        let errno = got.as_ref().err().map_or(0, |err| err.raw_os_error().unwrap_or(libc::EIO));
        let len = got.unwrap_or(0);
        let kept = len.min(*cap);
        let header =
            Header { index: index as u32, errno, took_ns, len: kept as u32, cut: u32::from(len > *cap) };
        pipe.answer(header, into.get(..kept).unwrap_or_default());
        if took_ns > TOO_SLOW.as_nanos() as u64 {
            return pipe.answer(Header { index: STOPPED, took_ns, ..Header::default() }, &[]);
        }
    }
}

fn read_one(root: RawFd, path: &CStr, live: bool, into: &mut [u8]) -> io::Result<usize> {
    struct Open(RawFd);
    impl Drop for Open {
        fn drop(&mut self) {
            // SAFETY: opened by us, closed once.
            unsafe { libc::close(self.0) };
        }
    }
    if !live {
        let there = Open(open_below(root, path, live, libc::O_PATH)?);
        regular(there.0)?;
    }
    let file = Open(open_below(root, path, live, libc::O_NONBLOCK)?);
    regular(file.0)?;
    let mut have = 0;
    while let Some(room) = into.get_mut(have..).filter(|room| !room.is_empty()) {
        match read_at(file.0, room, have)? {
            0 => break,
            got => have += got,
        }
    }
    Ok(have)
}

/// Binds a name in the abstract namespace of Unix sockets: it leaves no file, and lasts as long as the process.
fn claim(name: &[u8]) -> bool {
    // SAFETY: a zeroed sockaddr_un is valid; the length given covers what was written.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let room = address.sun_path.iter_mut().skip(1);
        room.zip(name).for_each(|(to, from)| *to = *from as libc::c_char);
        let len = size_of::<libc::sa_family_t>() + 1 + name.len().min(address.sun_path.len() - 1);
        let bound = libc::bind(fd, (&raw const address).cast(), len as libc::socklen_t);
        bound == 0 || *libc::__errno_location() != libc::EADDRINUSE
    }
}

/// Time that passed, without the time this task was ready and not running (where the kernel counts it).
struct Clock {
    schedstat: RawFd,
}

impl Clock {
    fn new() -> Clock {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: the path ends with a NUL. Without the file, all time counts.
        Clock { schedstat: unsafe { libc::open(c"/proc/self/schedstat".as_ptr(), flags) } }
    }

    fn now(&self) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: room for one timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        let wall = (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64);
        wall.saturating_sub(self.delay().unwrap_or(0))
    }

    /// The second number of schedstat: run_delay.
    fn delay(&self) -> Option<u64> {
        let mut text = [0_u8; 96];
        let got = read_at(self.schedstat, &mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..got)?).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn header(index: u32, len: usize) -> Header {
        Header { index, len: len as u32, ..Header::default() }
    }

    #[test]
    fn answers_come_through_the_pipe_and_the_child_is_gone() {
        let answers = run(LONG, None, |pipe| pipe.answer(header(7, 5), b"hello")).unwrap();
        assert_eq!(answers.all, [(header(7, 5), b"hello".to_vec())]);
        assert!(!answers.late);
        assert_eq!(answers.stray, None);
    }

    #[test]
    fn a_child_that_hangs_is_killed_and_what_it_said_before_is_kept() {
        let answers = run(Duration::from_millis(300), None, |pipe| {
            pipe.answer(header(1, 2), b"ok");
            loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            }
        })
        .unwrap();
        assert_eq!(answers.all.len(), 1);
        assert!(answers.late);
        let gone = answers.stray.is_none_or(|pid| reaped_before(pid, Instant::now() + LONG));
        assert!(gone);
    }

    #[test]
    fn the_child_has_no_descriptor_but_the_pipe_and_a_session_of_its_own() {
        let answers = run(LONG, None, |pipe| {
            let open = |fd: &i32| {
                // SAFETY: asks for flags only.
                *fd != pipe.0 && unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0
            };
            let others = (0..1024).filter(open).count() as u64;
            // SAFETY: no arguments that could be wrong.
            let leads = unsafe { libc::getsid(0) == libc::getpid() };
            pipe.answer(Header { took_ns: others, cut: u32::from(leads), ..Header::default() }, &[]);
        })
        .unwrap();
        assert_eq!((answers.all[0].0.took_ns, answers.all[0].0.cut), (0, 1));
    }

    #[test]
    fn a_panic_in_the_child_ends_the_child() {
        let answers = run(LONG, None, |_| {
            if std::hint::black_box(true) {
                // The message would allocate; unwinding alone is what the guard must stop.
                std::panic::resume_unwind(Box::new(()));
            }
        })
        .unwrap();
        assert_eq!(answers.all, []);
        assert!(!answers.late);
    }

    #[test]
    fn two_children_cannot_be_at_work_at_once() {
        let name = format!("whyslow-test-{}", std::process::id());
        let taken = run(LONG, None, |pipe| {
            let first = claim(name.as_bytes());
            let second = claim(name.as_bytes());
            pipe.answer(
                Header { index: u32::from(first), len: 0, cut: u32::from(second), ..header(0, 0) },
                &[],
            );
        })
        .unwrap();
        assert!(taken.all[0].0.cut == 0);
        let again = run(LONG, None, |pipe| pipe.answer(header(u32::from(claim(name.as_bytes())), 0), &[]));
        assert_eq!(again.unwrap().all[0].0.index, 1);
    }

    #[test]
    fn files_are_read_and_errors_told() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "12345").unwrap();
        let root = std::ffi::CString::new(dir.path().to_str().unwrap()).unwrap();
        let files = [(c"a", 4), (c"none", 4), (c"a", 100)];
        let mut buffer = vec![0; 101];
        let answers =
            run(LONG, None, |pipe| read_all(pipe, &root, false, None, &files, &mut buffer)).unwrap();
        let read: Vec<_> = answers.all.iter().filter(|(h, _)| h.index < OTHER).collect();
        assert_eq!((read[0].0.cut, &read[0].1[..]), (1, &b"1234"[..]));
        // A read of a temporary file is over 5 ms only on a stalled host; then the child stops, as it should.
        if let Some((header, _)) = read.get(1) {
            assert_eq!(header.errno, libc::ENOENT);
        }
    }

    #[test]
    fn a_torn_answer_is_left_out() {
        let torn = header(1, 3);
        // SAFETY: plain bytes.
        let mut bytes = unsafe { plain::as_bytes(&torn) }.to_vec();
        bytes.extend(b"abc");
        let whole = bytes.len();
        bytes.extend_from_within(..whole - 1);
        assert_eq!(split(&bytes).len(), 1);
        assert_eq!(split(&[]).len(), 0);
    }
}
