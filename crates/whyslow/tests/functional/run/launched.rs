//! The command starts as if whyslow were not there.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use super::{from_a_shell, rest, run_script, started, status, text};

/// Everything that a process inherits: signals, descriptors, niceness, group, session, folder, limits, environment.
const LOOK: &str =
    "grep -E '^(Umask|Sig(Blk|Ign|Cgt)|Groups|Uid|Gid|NoNewPrivs|Seccomp|CapEff|CapAmb|Cpus_allowed_list)' \
    /proc/self/status
    cut -d' ' -f5,6,7,19,41 /proc/self/stat
    for fd in /proc/self/fd/*; do readlink $fd; done
    cat /proc/self/oom_score_adj /proc/self/limits; pwd; env | grep -v -e '^_=' -e '^PPID=' | sort";

/// A caller with unusual settings.
fn oddly(command: &mut Command) -> &mut Command {
    command.current_dir("/usr").env("ODD", "a b\nc").env_remove("TERM");
    // SAFETY: system calls on numbers and local sets between fork and exec.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGPIPE, libc::SIGCHLD, libc::SIGUSR2, libc::SIGQUIT, libc::SIGALRM] {
                libc::signal(signal, libc::SIG_IGN);
            }
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGUSR1);
            libc::sigaddset(&raw mut set, libc::SIGALRM);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::umask(0o027);
            libc::setpriority(libc::PRIO_PROCESS, 0, 5);
            libc::dup2(libc::open(c"/dev/zero".as_ptr(), libc::O_RDONLY), 17);
            let files = libc::rlimit { rlim_cur: 777, rlim_max: 1777 };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files);
            Ok(())
        })
    }
}

#[test]
fn root_the_command_inherits_what_it_would_without_us() {
    let mut plain = Command::new("sh");
    plain.args(["-c", LOOK]);
    let mut plain = from_a_shell(plain);
    let want = text(&oddly(&mut plain).output().unwrap().stdout);
    let output = oddly(&mut run_script(&[], LOOK)).output().unwrap();
    assert_eq!(status(&output), 0, "{}", text(&output.stderr));
    let got = text(&output.stdout);
    for (got, want) in got.lines().zip(want.lines()) {
        // Each pipe has its own number.
        let same = got == want || got.starts_with("pipe:") && want.starts_with("pipe:");
        assert!(same, "inherited {got:?}, without us {want:?}");
    }
    assert_eq!(got.lines().count(), want.lines().count(), "{got}\n---\n{want}");
    assert!(got.contains("/dev/zero") && got.contains("SigIgn:"), "{got}");
}

/// A reader that goes away ends a writer: SIGPIPE is not ignored, as Rust's runtime would leave it.
#[test]
fn root_a_pipe_that_breaks_ends_the_command() {
    let output =
        run_script(&[], "trap - PIPE; yes | head -n 1; kill -PIPE $$; echo survived").output().unwrap();
    assert_eq!(text(&output.stdout), "y\n");
    assert_eq!(status(&output), 128 + libc::SIGPIPE);
}

#[test]
fn root_it_goes_on_when_we_are_killed() {
    let (mut child, out) = started(&mut run_script(&[], "echo up; read word; echo $word"));
    let mut to = child.stdin.take().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    to.write_all(b"still here\n").unwrap();
    drop(to);
    assert_eq!(rest(out), "still here\n");
}

fn niceness(pid: u32) -> i32 {
    // SAFETY: takes numbers; for a process that is gone it returns -1.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, pid) }
}

/// The kernel reserves a part of a CPU for it (include/uapi/linux/sched.h).
const SCHED_DEADLINE: libc::c_int = 6;

fn policy(pid: u32) -> libc::c_int {
    // SAFETY: takes a number; for a process that is gone it returns -1.
    match unsafe { libc::sched_getscheduler(pid.cast_signed()) } {
        -1 => -1,
        policy => policy & 0xff,
    }
}

/// On a host with forty busy tasks the command would otherwise begin after half a minute.
#[test]
fn root_it_loads_before_others_and_begins_the_command_as_its_caller_is() {
    let mut command = run_script(&[], "cut -d' ' -f19,41 /proc/self/stat; read word");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let out = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || rest(out));
    let own = niceness(std::process::id());
    let commands = format!("/proc/{0}/task/{0}/children", child.id());
    let begun = || {
        // Besides the command, whyslow has another child.
        let pids = std::fs::read_to_string(&commands).unwrap_or_default();
        let comm = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let is_another = |comm: String| !comm.is_empty() && comm.trim() != "whyslow";
        pids.split_whitespace().any(|pid| is_another(comm(pid)))
    };
    let mut goes_first = false;
    while !begun() && child.try_wait().unwrap().is_none() {
        goes_first |= niceness(child.id()) < own || policy(child.id()) == SCHED_DEADLINE;
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    let as_ours = format!("{own} {}", policy(std::process::id()));
    assert_eq!(reader.join().unwrap().trim(), as_ours, "of its caller's niceness and policy");
    assert!(goes_first, "it loaded as one of many");
}
