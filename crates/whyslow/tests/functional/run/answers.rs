//! The answer comes in time, however many short waits there are.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use whyslow_faults::draw::Draw;
use whyslow_faults::fence::Fence;
use whyslow_faults::look::Look;
use whyslow_faults::report_checks::Verb;
use whyslow_faults::{rounds, thresholds};

use super::{text, whyslow};

/// Long enough for tens of thousands of waits.
const WINDOW: Duration = Duration::from_secs(8);

/// Four workers that contend for one file lock, and sleep for drawn times while they hold it. They print a line when they begin and when
/// all is over.
fn four_workers(fence: &Fence, draw: &mut Draw) -> Vec<String> {
    let group = fence.group(&draw.word(6)).unwrap();
    let files = group.procs_files();
    let enter: String = files.iter().map(|file| format!("echo $$ > {}\n", file.display())).collect();
    let (least, more) = (draw.between(50, 120), draw.between(80, 180));
    let (lock, seconds) = (fence.dir().join("lock"), WINDOW.as_secs());
    let perl = format!(
        "$| = 1; print \"up\\n\"; $end = time + {seconds};
         for (1 .. 4) {{ next if fork; open $file, '>>', '{}' or die;
         while (time < $end) {{ flock $file, 2; select undef, undef, undef, ({least} + rand {more}) / 1e6; flock $file, 8 }}
         exit }} 1 while wait > 0; print \"over\\n\"",
        lock.display()
    );
    ["sh", "-ec", &format!("{enter}exec perl -e \"$1\""), "sh", &perl].map(str::to_owned).into()
}

fn spawned(command: &mut Command) -> (Child, BufReader<ChildStdout>) {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    heard(&mut out, "up\n");
    (child, out)
}

fn heard(out: &mut BufReader<ChildStdout>, word: &str) {
    let mut line = String::new();
    while line != word {
        line.clear();
        assert_ne!(out.read_line(&mut line).unwrap(), 0, "it never said {word}");
    }
}

#[test]
fn root_an_exam_beside_four_workers_of_one_file_lock_is_answered_in_time() {
    let fence = Fence::enter().unwrap();
    let mut draw = Draw::of_run("four-workers", 0);
    let workers = four_workers(&fence, &mut draw);
    let (mut child, mut out) = spawned(Command::new(&workers[0]).args(&workers[1..]));
    let kept = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("four-workers.json");
    let length = Duration::from_secs(thresholds::WINDOW_S);
    let args = ["exam", "--for", &format!("{}s", thresholds::WINDOW_S), "--json"];
    let look = Look::now(&whyslow_faults::program!(), &args, length, &kept).unwrap();
    look.is_sound(Verb::Exam).unwrap();
    heard(&mut out, "over\n");
    child.wait().unwrap();
}

/// A shell that spins in a session of its own, until it is dropped.
struct Session(Child);

impl Session {
    fn start() -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        let alone = || {
            // SAFETY: two system calls that take numbers.
            let done =
                unsafe { libc::setsid() != -1 && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 };
            if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: between fork and exec `alone` calls nothing but the kernel.
        Session(unsafe { command.pre_exec(alone) }.spawn().unwrap())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// CPU time of children that have ended and were waited for.
fn cpu_of_children() -> Duration {
    // SAFETY: all-zero is valid, and the struct is local.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let time = |of: libc::timeval| Duration::new(of.tv_sec as u64, of.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// The kernel divides the CPUs between sessions first: niceness matters only within a session (kernel/sched/autogroup.c).
#[test]
fn root_among_busy_sessions_it_answers_before_its_share_would_let_it() {
    let _fence = Fence::enter().unwrap();
    let mut draw = Draw::of_run("sessions", 0);
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    let each = draw.between(8, 13);
    let sessions: Vec<Session> = (0..each * cpus).map(|_| Session::start()).collect();
    let (before, began) = (cpu_of_children(), Instant::now());
    let whyslow =
        whyslow(&["exam", "--for", "2s", "-v"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let whyslow = whyslow.unwrap();
    let own = format!("a real-time task runs on it (pid {})", whyslow.id());
    let output = whyslow.wait_with_output().unwrap();
    let late = began.elapsed().saturating_sub(Duration::from_secs(2));
    let used = cpu_of_children() - before;
    drop(sessions);
    assert!(text(&output.stdout).contains(" full"), "{}", text(&output.stdout));
    assert!(!text(&output.stdout).contains(&own), "it reported itself as one: {}", text(&output.stdout));
    let share = used * each as u32;
    rounds::say(&format!("{late:.2?} more than the window, {used:.2?} of CPU, seed {}", draw.seed()));
    assert!(
        late < share * 2 / 3,
        "{late:?} for {used:?} of CPU beside {each} sessions a CPU, seed {}",
        draw.seed()
    );
}

#[test]
fn root_a_run_of_four_workers_of_one_file_lock_is_answered_in_time() {
    let fence = Fence::enter().unwrap();
    let mut draw = Draw::of_run("four-workers", 1);
    let workers = four_workers(&fence, &mut draw);
    let mut args = vec!["run", "--json", "--"];
    args.extend(workers.iter().map(String::as_str));
    let (mut child, mut out) = spawned(&mut whyslow(&args));
    heard(&mut out, "over\n");
    let over = Instant::now();
    let document = super::rest(out);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let late = over.elapsed();
    rounds::say(&format!("run answered {late:.2?} after its command, seed {}", draw.seed()));
    assert!(
        late <= thresholds::patient(thresholds::ANSWER_WITHIN),
        "{late:?} after the end, seed {}",
        draw.seed()
    );
    let document = super::document(document.trim_start());
    let flock = document["calls"].to_string().contains("flock");
    assert!(flock, "the workers were not followed: {}", document["calls"]);
}
