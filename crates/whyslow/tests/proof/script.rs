//! A process that runs a script of a suite, in namespaces of its own, and keeps a log.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, Fence};

pub struct Script {
    child: Child,
    /// The log that it writes.
    pub log: PathBuf,
    /// Its name.
    pub name: String,
}

impl Script {
    /// A Perl script, called with the log, `args` and its name, after a shell has run `begin`; `unshared`: options of unshare(1).
    pub fn start(
        draw: &mut Draw,
        fence: &Fence,
        (script, unshared, begin): (&str, &[&str], &str),
        args: &[&OsStr],
    ) -> Result<Self, Trouble> {
        let (log, name) = (fence.dir().join("log"), draw.word(7));
        println!("{name}: {args:?}");
        let mut command = Command::new("unshare");
        command.args(unshared).args(["--", "sh", "-ec", &format!("{begin}\nexec perl -e \"$@\""), "sh"]);
        command.arg(script).arg(&log).args(args).arg(&name).stdin(Stdio::null());
        // SAFETY: one system call between fork and exec.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        Ok(Script { child: command.spawn()?, log, name })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
