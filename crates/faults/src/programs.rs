//! Real programs, as a shell would start them, in a cgroup and a session of their own.

use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::cgroup::Group;
use crate::{Draw, sys};

/// Programs that compute without end, one shell line each; the first word is the program that the host must have.
const COMPUTE: [&str; 7] = [
    "gzip -9 -c /dev/zero",
    "xz -1 -T1 -c /dev/zero",
    "bzip2 -c /dev/zero",
    "sha256sum /dev/zero",
    "md5sum /dev/zero",
    "perl -e for(;;){}",
    "awk BEGIN{while(1)n++}",
];

/// The program ends after so many seconds, whatever happens to its parent: no test may last longer.
const LIFETIME_S: u32 = 60;

/// Processes of one command line. They end when this is dropped; their children end with their cgroup.
#[derive(Debug)]
pub struct Programs(Vec<Child>);

/// Draw a program that computes and that this host has.
pub fn that_computes(draw: &mut Draw) -> io::Result<&'static str> {
    let here: Vec<&'static str> = COMPUTE.into_iter().filter(|line| is_here(first(line))).collect();
    if here.is_empty() {
        Err(io::Error::other("no program that computes is here"))
    } else {
        Ok(draw.pick(&here))
    }
}

/// The program of a command line.
#[must_use]
pub fn first(line: &str) -> &str {
    line.split(' ').next().unwrap_or(line)
}

/// Whether a program is in PATH.
#[must_use]
pub fn is_here(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).exists())
}

impl Programs {
    /// Start so many processes: the words of the line are executed in `dir`.
    pub fn start(group: &Group, dir: &Path, count: u64, line: &str) -> io::Result<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        Programs::of(group, dir, count, &words)
    }

    /// The same with a shell script.
    pub fn of_script(group: &Group, dir: &Path, count: u64, script: &str) -> io::Result<Self> {
        Programs::of(group, dir, count, &["sh", "-c", script])
    }

    fn of(group: &Group, dir: &Path, count: u64, words: &[&str]) -> io::Result<Self> {
        let procs = group.procs_files();
        let procs: Vec<CString> = procs.iter().map(|path| sys::c_path(path)).collect::<io::Result<_>>()?;
        let one = |_| {
            let procs = procs.clone();
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).current_dir(dir);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            // SAFETY: between fork and exec the code makes only system calls, it allocates and locks nothing.
            unsafe {
                command.pre_exec(move || {
                    sys::die_with_parent()?;
                    sys::die_after(LIFETIME_S);
                    procs.iter().try_for_each(|path| sys::write_file(path, b"0"))?;
                    sys::write_file(c"/proc/self/oom_score_adj", b"1000")?;
                    sys::new_session()
                });
            }
            command.spawn()
        };
        let mut all = Programs(Vec::new());
        for at in 0..count {
            all.0.push(one(at)?);
        }
        Ok(all)
    }

    /// Their pids.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::id).collect()
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Children that have not been waited for: no other process can have their pids.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
