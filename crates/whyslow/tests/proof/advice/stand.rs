//! Things of this host that replace the things of a case: a busy process that reads, a thread that waits in D state, a connection, a group
//! with a limit on tasks, many open files.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use whyslow_faults::Fence;

/// Number of files that this process has open: more than most processes, and fewer than its limit.
const FILES: usize = 900;
/// Name of the waiting thread.
const WAITING: &str = "waits-in-d";
/// It reads a file of the kernel in a loop, and computes in between.
const BUSY: &str = "while :; do read a < /proc/stat; done";
/// Time until the thread waits and the process runs.
const SETTLE: Duration = Duration::from_millis(300);

/// All these things; dropping it ends them.
pub struct Stand {
    busy: Child,
    waiting: Option<JoinHandle<()>>,
    fifo: PathBuf,
    group: PathBuf,
    _files: Vec<File>,
    _connection: (TcpStream, TcpStream),
    // Last: it removes the folder of the fifo.
    _fence: Fence,
}

impl Stand {
    /// Make it.
    pub fn set() -> io::Result<Self> {
        let fence = Fence::enter()?;
        let fifo = fence.dir().join("fifo");
        let name = CString::new(fifo.as_os_str().as_bytes())?;
        // SAFETY: plain mkfifo of a name that lives.
        if unsafe { libc::mkfifo(name.as_ptr(), 0o600) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let waiting = thread::Builder::new().name(WAITING.to_owned()).spawn(move || spawn_behind(&name))?;
        let busy = Command::new("bash").args(["-c", BUSY]).stdin(Stdio::null()).spawn()?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let connection = (client, listener.accept()?.0);
        let mut files = (0..FILES).map(|_| File::open("/dev/null")).collect::<io::Result<Vec<File>>>()?;
        // A process that has it open and writes nothing makes no request.
        files.extend(File::open("/dev/cpu_dma_latency"));
        let of = |root: &str| PathBuf::from(format!("{root}{}", fence.top().path()));
        let groups = [of("/sys/fs/cgroup/pids"), of("/sys/fs/cgroup")];
        let group = groups.into_iter().find(|path| path.join("pids.max").exists());
        let group = group.ok_or_else(|| io::Error::other("no cgroup has a limit on tasks"))?;
        thread::sleep(SETTLE);
        let waiting = Some(waiting);
        Ok(Stand { busy, waiting, fifo, group, _files: files, _connection: connection, _fence: fence })
    }

    /// A line of a case, with processes, groups and disks of this host.
    pub fn in_place_of(&self, line: &str) -> String {
        let busy = self.busy.id().to_string();
        let mut words: Vec<String> = Vec::new();
        for word in line.split(' ') {
            let is_id = words.last().is_some_and(|before| ["-p", "-t", "-cp"].contains(&before.as_str()));
            words.push(match word {
                _ if is_id => busy.clone(),
                _ if words.last().is_some_and(|before| before == "id") => program(),
                "vda" => disk(),
                group if group.starts_with("/sys/fs/cgroup/build") => self.group.display().to_string(),
                file => self.of_our_process(file),
            });
        }
        words.join(" ")
    }

    /// "/proc/7/io": the file of the busy process; for a stack, of the waiting thread.
    fn of_our_process(&self, file: &str) -> String {
        let path = file.strip_prefix("/proc/").and_then(|rest| rest.split_once('/'));
        match path.filter(|(id, _)| id.chars().all(|c| c.is_ascii_digit())) {
            Some((_, "stack")) => format!("/proc/{}/task/{}/stack", std::process::id(), waiting_thread()),
            Some((_, name)) => format!("/proc/{}/{name}", self.busy.id()),
            None => file.to_owned(),
        }
    }

    /// A word that a check must print, with names of this test.
    pub fn named(&self, word: &str) -> String {
        let me = fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let word = word.replace("{pid}", &std::process::id().to_string());
        word.replace("{busy}", "bash").replace("{me}", me.trim()).replace("{waiting}", WAITING)
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        let _ = self.busy.kill();
        let _ = self.busy.wait();
        // The child continues, and then the thread does.
        let end = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&self.fifo);
        if let (Ok(_end), Some(waiting)) = (end, self.waiting.take()) {
            let _ = waiting.join();
        }
    }
}

/// A thread that starts a child waits in D state until the child has begun; this child first has to open a fifo that has no writer.
fn spawn_behind(fifo: &CString) {
    let program = c"/bin/true";
    let mut argv = [program.as_ptr().cast_mut(), std::ptr::null_mut()];
    let mut environment = [std::ptr::null_mut()];
    let mut child = 0;
    // SAFETY: the file actions are made before they are used and live until they are destroyed; names and lists live here.
    unsafe {
        let mut actions: libc::posix_spawn_file_actions_t = std::mem::zeroed();
        libc::posix_spawn_file_actions_init(&mut actions);
        libc::posix_spawn_file_actions_addopen(&mut actions, 0, fifo.as_ptr(), libc::O_RDONLY, 0);
        let none = std::ptr::null();
        libc::posix_spawn(
            &mut child,
            program.as_ptr(),
            &actions,
            none,
            argv.as_mut_ptr(),
            environment.as_mut_ptr(),
        );
        libc::posix_spawn_file_actions_destroy(&mut actions);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}

/// The waiting thread, found by its name.
fn waiting_thread() -> String {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_it =
        |path: &PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == WAITING);
    let found = tasks.filter(is_it).find_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    found.unwrap_or_default()
}

/// The id of some BPF program.
fn program() -> String {
    let all = Command::new("bpftool").args(["prog", "show"]).output().map(|done| done.stdout);
    let text = String::from_utf8_lossy(&all.unwrap_or_default()).into_owned();
    text.split(':').next().unwrap_or_default().to_owned()
}

/// A disk that is not made of memory or files.
fn disk() -> String {
    let all = fs::read_dir(Path::new("/sys/block")).into_iter().flatten().flatten();
    let mut names: Vec<String> = all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| !["loop", "ram", "zram"].iter().any(|no| name.starts_with(no)));
    names.sort();
    names.into_iter().next().unwrap_or_else(|| "sda".to_owned())
}
