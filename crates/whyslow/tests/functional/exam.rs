//! The exam on the live host: its end, its outputs, and the users that may run it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub fn whyslow() -> Command {
    let mut command = Command::new(whyslow_faults::program!());
    command.stdin(Stdio::null()).env_remove("NO_COLOR");
    command
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it prints UTF-8")
}

/// The output must be one JSON document that is consistent.
pub fn document(page: &str) -> Value {
    let document = serde_json::from_str(page).expect("stdout is JSON and nothing else");
    whyslow_faults::story::must_hold(&document);
    document
}

fn has_cause(document: &Value) -> bool {
    document["findings"].as_array().unwrap().iter().any(|f| f["kind"] == "cause")
}

pub fn status(output: &Output) -> i32 {
    output.status.code().expect("it was not killed")
}

#[test]
fn root_exam_prints_json_and_its_status_tells_whether_there_is_a_cause() {
    let output = whyslow().args(["--for", "1s", "--json"]).output().unwrap();
    let document = document(&text(&output.stdout));
    assert_eq!(document["schema"], 0);
    assert!(document["window_s"].as_f64().unwrap() >= 0.9, "{}", document["window_s"]);
    assert_eq!(status(&output), i32::from(has_cause(&document)));
    assert!(text(&output.stderr).contains("looking, "), "{}", text(&output.stderr));
}

#[test]
fn root_text_has_no_colour_and_no_control_character_in_a_pipe() {
    let output = whyslow().args(["exam", "--for", "500ms", "-v"]).output().unwrap();
    let page = text(&output.stdout);
    assert!(page.starts_with("whyslow ") && page.contains("Where the time went"), "{page}");
    assert!(page.chars().all(|c| c == '\n' || !whyslow_report::safe::is_unsafe(c)), "{page:?}");
}

#[test]
fn root_ctrl_c_ends_the_window_and_the_report_still_comes() {
    let began = Instant::now();
    let mut command = whyslow();
    command.args(["--for", "50s", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    // These tests may run in the background of a shell, where SIGINT is ignored, and whyslow respects that. SAFETY: signal is
    // async-signal-safe and takes numbers.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    let mut progress = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("looking, ") {
        line.clear();
        assert!(progress.read_line(&mut line).unwrap() > 0, "it ended before it observed");
    }
    // SAFETY: a signal to a child that has not been waited for: the pid is its own.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let mut page = String::new();
    child.stdout.take().unwrap().read_to_string(&mut page).unwrap();
    let end = child.wait().unwrap();
    let document = document(&page);
    assert!(document["window_s"].as_f64().unwrap() < 40.0, "{}", document["window_s"]);
    assert_eq!(end.code(), Some(i32::from(has_cause(&document))));
    assert!(began.elapsed() < Duration::from_secs(49));
}

/// Two runs whose read never returns, each at its own file: a pipe without a writer. whyslow gives up after a minute of timer ticks (units
/// of `watchdog.rs`); here the test sends the ticks.
#[test]
fn root_a_look_that_is_stuck_is_ended_and_says_at_what_it_was() {
    for (file, at) in [("/proc/loadavg", "while starting;"), ("/proc/kallsyms", "while loading the probes;")]
    {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: a plain call with a name that ends.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        // The mount is in a namespace that ends with whyslow.
        let script = format!("mount --bind {} {file} && exec \"$WHYSLOW\" --for 300ms", pipe.display());
        let mut look = Command::new("unshare");
        look.args(["--mount", "--propagation", "private", "sh", "-c", &script]).stdin(Stdio::null());
        look.env("WHYSLOW", whyslow_faults::program!()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut look = look.spawn().unwrap();
        let _writes_nothing = open_when_read(&pipe);
        let began = Instant::now();
        let mut ticks = 0;
        while look.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(60) {
            // SAFETY: a signal to a child that has not been waited for: the pid is its own.
            assert_eq!(unsafe { libc::kill(look.id() as i32, libc::SIGALRM) }, 0);
            ticks += 1;
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = look.kill();
        let output = look.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{file}: {said}");
        assert!(output.stdout.is_empty() && ticks >= 5, "{file}: after {ticks} ticks");
        let reported = said.lines().last().unwrap_or_default();
        assert!(reported.contains("no progress for a minute") && reported.contains(at), "{file}: {said}");
    }
}

/// The write end of a pipe that another process has open for reading, or waits for in open(2): that open then returns, and its read(2) does
/// not.
fn open_when_read(pipe: &std::path::Path) -> std::fs::File {
    use std::os::unix::fs::OpenOptionsExt as _;
    let began = Instant::now();
    loop {
        match std::fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(pipe) {
            Ok(end) => return end,
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                assert!(began.elapsed() < Duration::from_secs(60), "no process reads {}", pipe.display());
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("{}: {error}", pipe.display()),
        }
    }
}

/// The answer is longer than a pipe holds, and the pipe has no reader: one Ctrl-C, or one SIGTERM, ends whyslow.
#[test]
fn root_an_answer_that_nobody_reads_is_ended_by_one_signal() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut command = whyslow();
        command.args(["--for", "200ms", "--json"]).stdout(Stdio::piped()).stderr(Stdio::null());
        with_default_signals(&mut command);
        let mut child = command.spawn().unwrap();
        smallest_pipe(child.stdout.as_ref().unwrap());
        assert!(waits_in_write(&mut child), "its answer does not fit into 4 kB");
        // SAFETY: a signal to a child that has not been waited for: the pid is its own.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        let patience = Instant::now() + Duration::from_secs(2);
        while child.try_wait().unwrap().is_none() && Instant::now() < patience {
            std::thread::yield_now();
        }
        let end = child.try_wait().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(end.expect("it ended").signal(), Some(signal));
    }
}

fn with_default_signals(command: &mut Command) {
    // SAFETY: signal is async-signal-safe and takes numbers.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            libc::signal(libc::SIGTERM, libc::SIG_DFL);
            Ok(())
        });
    }
}

fn smallest_pipe(pipe: &impl std::os::fd::AsRawFd) {
    // SAFETY: numbers only.
    assert!(unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) } >= 4096);
}

/// Returns when the child sleeps in write(2) to its standard output; false: it ended.
fn waits_in_write(child: &mut std::process::Child) -> bool {
    let at = format!("/proc/{}/syscall", child.id());
    let call = format!("{} 0x1 ", libc::SYS_write);
    while !std::fs::read_to_string(&at).is_ok_and(|text| text.starts_with(&call)) {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

#[test]
fn root_focus_says_where_a_process_spent_its_time() {
    let me = std::process::id().to_string();
    let output = whyslow().args(["--for", "500ms", "--pid", &me]).output().unwrap();
    let page = text(&output.stdout);
    assert!(page.contains(&format!("(pid {me})")) && page.contains("running "), "{page}");
}

#[test]
fn root_recorded_now_reported_later_is_the_same_document() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.why");
    let live = whyslow().args(["--for", "500ms", "--json", "-o"]).arg(&file).output().unwrap();
    let later = whyslow().args(["report", "--json"]).arg(&file).output().unwrap();
    assert_eq!(status(&live), status(&later), "{}", text(&later.stderr));
    assert_eq!(text(&live.stdout), text(&later.stdout));
    document(&text(&later.stdout));
}

/// Stack names are resolved before a recording is closed, and the binary is one file: the report needs nothing from this host.
#[test]
fn root_recorded_here_it_says_the_same_in_an_empty_chroot_as_nobody() {
    const NOBODY: u32 = 65534;
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let live = whyslow().args(["--for", "500ms", "-v", "-o"]).arg(place("host.why")).output().unwrap();
    assert!(matches!(status(&live), 0 | 1), "{}", text(&live.stderr));
    std::fs::copy(whyslow_faults::program!(), place("whyslow")).unwrap();
    for path in [folder.path().to_owned(), place("host.why"), place("whyslow")] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let jail = std::ffi::CString::new(folder.path().to_str().unwrap()).unwrap();
    let mut command = Command::new("/whyslow");
    command.args(["report", "-v", "/host.why"]).env_clear();
    // SAFETY: chroot, chdir, setgid and setuid are plain system calls on strings made before the fork.
    unsafe {
        command.pre_exec(move || {
            let jailed = libc::chroot(jail.as_ptr()) == 0 && libc::chdir(c"/".as_ptr()) == 0;
            let dropped = jailed && libc::setgid(NOBODY) == 0 && libc::setuid(NOBODY) == 0;
            if dropped { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
    let later = command.output().unwrap();
    assert_eq!(status(&later), status(&live), "{}", text(&later.stderr));
    assert_eq!(text(&later.stdout), text(&live.stdout));
}

#[test]
fn root_record_says_where_it_is_and_how_to_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.why");
    let output = whyslow().args(["record", "--for", "300ms", "-o"]).arg(&file).output().unwrap();
    assert_eq!(status(&output), 0, "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("whyslow report "), "{}", text(&output.stdout));
    assert!(file.is_file());
}

#[test]
fn root_a_file_that_cannot_be_saved_does_not_cost_the_answer() {
    let output = whyslow().args(["--for", "300ms", "-o", "/proc/nope.why"]).output().unwrap();
    assert_eq!(status(&output), 2);
    assert!(text(&output.stdout).contains("\nCPU "), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("cannot save recording"), "{}", text(&output.stderr));
}

#[test]
fn root_may_drop_to_a_user_who_is_reported_what_can_be_reported_and_the_way_out() {
    const NOBODY: u32 = 65534;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = folder.path().join("whyslow");
    std::fs::copy(whyslow_faults::program!(), &program).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new(&program);
    let output =
        command.args(["--for", "300ms", "-v"]).current_dir("/").uid(NOBODY).gid(NOBODY).output().unwrap();
    let (page, remarks) = (text(&output.stdout), text(&output.stderr));
    assert!(matches!(status(&output), 0..=2), "{remarks}");
    assert!(remarks.contains("not root") && remarks.contains("sudo whyslow"), "{remarks}");
    assert!(!remarks.contains("libbpf"), "{remarks}");
    assert!(page.contains("Cannot tell") && page.contains("task list"), "{page}");
    // Every user may read the hypervisor's share.
    let causes = page.split_once("Causes, by time lost").map_or("", |(_, rest)| rest);
    let causes = causes.split("\n\n").next().unwrap_or("");
    let is_cause = |line: &&str| line.split_once(". ").is_some_and(|(rank, _)| rank.parse::<u32>().is_ok());
    let named = causes.lines().filter(is_cause).count();
    assert_eq!(
        named,
        causes.matches("[steal]").count(),
        "nothing was seen, so no process may be accused: {page}"
    );
}

#[test]
fn root_doctor_prints_every_rung_with_what_is_lost() {
    let output = whyslow().arg("doctor").output().unwrap();
    let page = text(&output.stdout);
    assert_eq!(status(&output), 0);
    assert!(page.contains("ok    privilege") && page.contains("BPF: task list"), "{page}");
    let lost = page.lines().filter(|l| l.starts_with("lost  ")).count();
    assert_eq!(lost, page.lines().filter(|l| l.starts_with("      lost: ")).count(), "{page}");
}
