//! A child of the harness that records its work in a ledger.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ledger::Ledger;
use crate::sys;

/// A running child. It ends when this is dropped, or when the thread that started it ends.
pub struct Process {
    child: Child,
    ledger: Arc<Ledger>,
    comm: String,
}

impl Process {
    /// Start a program that inherits the ledger under the same descriptor number.
    pub fn start(command: &mut Command, ledger: Arc<Ledger>, comm: String) -> io::Result<Self> {
        let (descriptor, parent) = (ledger.descriptor(), std::process::id());
        // SAFETY: between fork and exec the code makes only system calls, it allocates and locks nothing.
        unsafe {
            command.pre_exec(move || {
                sys::die_with_parent()?;
                if std::os::unix::process::parent_id() != parent {
                    return Err(io::ErrorKind::NotFound.into());
                }
                sys::keep_over_exec(descriptor)
            });
        }
        Ok(Process { child: command.spawn()?, ledger, comm })
    }

    /// The record of its work.
    #[must_use]
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its name.
    #[must_use]
    pub fn comm(&self) -> &str {
        &self.comm
    }

    /// Its exit status, if it has ended.
    pub fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Wait until its ledger shows `done`; an error if the child ends first or takes longer.
    pub fn until(&mut self, what: &str, within: Duration, done: impl Fn(&Ledger) -> bool) -> io::Result<()> {
        let began = Instant::now();
        while !done(&self.ledger) {
            if let Some(status) = self.status()? {
                return Err(io::Error::other(format!("{} ended early: {status}", self.comm)));
            }
            if began.elapsed() > within {
                let why = format!("{} did not {what} in {within:?}", self.comm);
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A child that has not been waited for: no other process can have its pid.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
