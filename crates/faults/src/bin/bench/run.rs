//! One run of a load, alone or with a tool.

use std::fs::{self, File};
use std::io;
use std::os::fd::FromRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::loads::{self, Load};
use crate::tools::{Looks, Started, Tool};

/// Longest time from the start of a tool until it observes the host.
const PATIENCE: Duration = Duration::from_secs(30);

/// Cost of a run, in seconds of CPU time.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    /// CPU time of the load, by its own account.
    pub load: f64,
    /// CPU time of the tool, by its own account.
    pub tool: Option<OwnCost>,
}

/// The cost of whyslow that a report states.
#[derive(Debug, Clone, Copy)]
pub struct OwnCost {
    /// CPU time of the tool's processes.
    pub cpu: f64,
    /// Run time of its BPF programs; `None`: the window did not reach its sampled part.
    pub bpf: Option<f64>,
}

/// The load alone.
pub fn alone(load: &Load, size: u64) -> io::Result<Took> {
    let output = scratch()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--be", load.name, &size.to_string()]).stdout(output.try_clone()?);
    let status = tied(&mut command).status()?;
    took(load.name, status, &text(&output)?)
}

/// The load with a tool. `program` is the path of the tool.
pub fn with(tool: &Tool, program: &std::path::Path, load: &Load, size: u64) -> io::Result<Took> {
    match tool.started {
        Started::Beside(looks) => {
            let session = Session::start(program, tool.args, looks)?;
            let took = alone(load, size);
            let reported = session.stop()?;
            Ok(Took { tool: own_cost(&reported), ..took? })
        }
        Started::Before => {
            let output = scratch()?;
            let mut command = Command::new(program);
            command.args(tool.args).arg(std::env::current_exe()?);
            command.args(["--be", load.name, &size.to_string()]);
            command.stdout(output.try_clone()?).stderr(Stdio::null());
            let status = tied(&mut command).status()?;
            let reported = text(&output)?;
            Ok(Took { tool: own_cost(&reported), ..took(tool.name, status, &reported)? })
        }
    }
}

fn took(who: &str, status: ExitStatus, reported: &str) -> io::Result<Took> {
    match loads::reported(reported) {
        Some(load) if status.success() => Ok(Took { load, tool: None }),
        _ => Err(io::Error::other(format!("{who} ended with {status}, and the load reported no time"))),
    }
}

fn own_cost(reported: &str) -> Option<OwnCost> {
    // The report follows the output of the load if the tool started the load.
    let from = reported.rfind("{\"schema\"").or_else(|| reported.find('{'))?;
    let document: Value = serde_json::from_str(reported.get(from..)?.trim()).ok()?;
    let cost = document.get("own_cost")?;
    Some(OwnCost { cpu: cost.get("cpu_s")?.as_f64()?, bpf: cost.get("bpf_s").and_then(Value::as_f64) })
}

/// A running tool that observes the whole host.
pub struct Session {
    child: Child,
    output: File,
    began: Instant,
    /// Time from its start until it observes, in seconds.
    pub until_looking: f64,
}

impl Session {
    /// Start a tool and wait until it observes.
    pub fn start(program: &std::path::Path, args: &[&str], looks: Looks) -> io::Result<Session> {
        let began = Instant::now();
        let (output, progress) = (scratch()?, scratch()?);
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(progress.try_clone()?);
        let child = tied(&mut command).spawn()?;
        let mut session = Session { child, output, began, until_looking: 0.0 };
        session.await_look(looks, progress)?;
        session.until_looking = session.began.elapsed().as_secs_f64();
        Ok(session)
    }

    fn await_look(&mut self, looks: Looks, progress: File) -> io::Result<()> {
        let mut links = 0;
        while self.began.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                let said = text(&progress)?;
                let said = said.lines().next_back().unwrap_or("").trim();
                return Err(io::Error::other(format!("it ended before it observed, with {status}: {said}")));
            }
            match looks {
                Looks::Says(words) if text(&progress)?.contains(words) => return Ok(()),
                Looks::Says(_) => thread::sleep(Duration::from_millis(1)),
                Looks::Links => {
                    let now = self.links();
                    if now > 0 && now == links {
                        return Ok(());
                    }
                    links = now;
                    thread::sleep(Duration::from_millis(200));
                }
            }
        }
        Err(io::Error::other(format!("it did not observe within {PATIENCE:?}")))
    }

    /// Number of BPF links and perf events that the tool holds open, which are attached programs.
    fn links(&self) -> usize {
        let Ok(open) = fs::read_dir(format!("/proc/{}/fd", self.child.id())) else { return 0 };
        let targets = open.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
        let attached = ["anon_inode:bpf_link", "anon_inode:bpf-link", "anon_inode:[perf_event]"];
        targets.filter(|to| attached.iter().any(|name| to.as_os_str() == *name)).count()
    }

    /// End the tool's window now. Returns its output.
    pub fn stop(self) -> io::Result<String> {
        // Not SIGINT: a shell makes its background jobs ignore SIGINT. SAFETY: the signal goes to a child that has not been waited for, so
        // the pid is still its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        Ok(self.wait()?.0)
    }

    /// Wait for the tool's answer. Returns its output and the wall time since its start.
    pub fn wait(mut self) -> io::Result<(String, f64)> {
        let status = self.child.wait()?;
        let wall = self.began.elapsed().as_secs_f64();
        // Status 1: a cause was found. Other tools may end by the signal.
        if status.code().is_some_and(|code| code > 1) && status.signal().is_none() {
            return Err(io::Error::other(format!("it ended with {status}")));
        }
        Ok((text(&self.output)?, wall))
    }
}

/// Make the kernel kill the child when this process dies.
fn tied(command: &mut Command) -> &mut Command {
    // SAFETY: prctl is async-signal-safe and takes numbers.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    }
}

/// A file in memory: a pipe without a reader would fill up.
fn scratch() -> io::Result<File> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"bench".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened for us, and no other code has it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// The content so far. Reads by position: the writer of the file shares our file offset.
fn text(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    let got = file.read_at(&mut bytes, 0)?;
    bytes.truncate(got);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cost_is_found_in_a_report_alone_and_after_the_output_of_a_load() {
        let alone =
            own_cost("{\n \"schema\": 0,\n \"own_cost\": {\"cpu_s\": 0.5, \"bpf_s\": null}}\n").unwrap();
        assert_eq!((alone.cpu, alone.bpf), (0.5, None));
        let after =
            own_cost("{x\ncpu seconds: 1\n{\"schema\":0,\"own_cost\":{\"cpu_s\":2,\"bpf_s\":0.25}}\n")
                .unwrap();
        assert_eq!((after.cpu, after.bpf), (2.0, Some(0.25)));
        for text in ["", "{", "cpu seconds: 1", "{\"schema\": 0}"] {
            assert!(own_cost(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_file_in_memory_can_be_read_while_it_is_written() {
        let file = scratch().unwrap();
        let echo = |word| Command::new("echo").arg(word).stdout(file.try_clone().unwrap()).status().unwrap();
        echo("one");
        assert_eq!(text(&file).unwrap(), "one\n");
        echo("two");
        assert_eq!(text(&file).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn a_session_that_ends_before_it_looks_is_an_error() {
        let program = std::path::Path::new("/bin/false");
        let err = Session::start(program, &[], Looks::Says("looking")).err().unwrap();
        assert!(err.to_string().contains("ended before it observed"), "{err}");
    }
}
