//! A child of the harness that writes down what it does.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ledger::Ledger;
use crate::sys;

/// A running child. It ends when this is dropped, and when the thread that started it ends.
pub struct Process {
    child: Child,
    ledger: Arc<Ledger>,
    comm: String,
}

impl Process {
    /// Start a program that inherits the ledger, under the number that its descriptor has here.
    pub fn start(command: &mut Command, ledger: Arc<Ledger>, comm: String) -> io::Result<Self> {
        let (descriptor, parent) = (ledger.descriptor(), std::process::id());
        // SAFETY: between fork and exec only system calls are made, nothing is allocated or locked.
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

    /// What it did.
    #[must_use]
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The name that it was given.
    #[must_use]
    pub fn comm(&self) -> &str {
        &self.comm
    }

    /// How it ended, if it has.
    pub fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Wait until its ledger says so; an error if it ends before, or takes longer.
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
        // Its own child, not yet waited for: the pid cannot be somebody else's.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
