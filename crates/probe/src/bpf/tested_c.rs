//! C of the kernel half that calls no helper, built for this host, so that a test can feed it sequences that no kernel repeats.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};

/// A built program: a file without a name, which is gone with us, however we end.
pub struct Program(File);

impl Program {
    /// Build `source`, which may include what is beside this file.
    pub fn of(name: &str, source: &str) -> Self {
        let to = std::env::temp_dir().join(format!("whyslow-test-{}-{name}", std::process::id()));
        let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang-19".into());
        let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bpf");
        let mut compiler = Command::new(clang)
            .args(["-x", "c", "-O1", "-Wall", "-Werror", "-I", beside, "-", "-o"])
            .arg(&to)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        compiler.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
        let ended = compiler.wait();
        let built = File::open(&to);
        let _ = std::fs::remove_file(&to); // there is none if the compiler failed, which is reported next
        assert!(ended.unwrap().success());
        Program(built.unwrap())
    }

    /// The numbers that it prints, fed with `input`.
    pub fn run(&self, input: &str) -> Vec<u64> {
        let mut program = Command::new(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        program.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let reported = program.wait_with_output().unwrap();
        let reported = String::from_utf8(reported.stdout).unwrap();
        reported.split_whitespace().map(|n| n.parse().unwrap()).collect()
    }
}
