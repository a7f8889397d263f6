//! Names of processes as their users know them: one name for each process in a report.
//!
//! A server shows what it does in its title, and for an interpreter the script matters. For all others the kernel's name is enough.

mod interpreters;
mod own_name;

use std::rc::Rc;

use whyslow_model::table::{Tables, Task};

use crate::hashing::Table;

/// A process with a name of its own.
#[derive(Debug)]
struct Named<'r> {
    /// The kernel's name of its first thread: a thread with that name has the process's name.
    comm: &'r str,
    /// `None`: two processes had this id.
    name: Option<Rc<str>>,
    /// As `name`, for several that are alike: without the numbers of a title.
    key: Rc<str>,
}

/// Processes by id, and their threads.
#[derive(Debug, Default)]
pub(crate) struct ProcessNames<'r> {
    processes: Table<u32, Named<'r>>,
    /// Names of block devices, by number: "254:0".
    devices: Table<&'r str, &'r str>,
    /// Threads other than the first, by process.
    threads: Table<u32, u32>,
}

/// The name of a thread or process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Called {
    /// Its own name.
    pub name: String,
    /// The common name of all that are alike.
    pub key: String,
}

impl<'r> ProcessNames<'r> {
    /// The names in a recording.
    pub fn in_tables(tables: &'r Tables) -> Self {
        let devices = tables.disk.iter().flatten().filter(|disk| !disk.device.is_empty());
        let devices = devices.map(|disk| (disk.dev.as_str(), disk.device.as_str())).collect();
        ProcessNames { devices, ..Self::of(tables.tasks.as_deref().unwrap_or_default()) }
    }

    /// The names of these tasks.
    pub fn of(tasks: &'r [Task]) -> Self {
        let mut names = ProcessNames::default();
        for task in tasks.iter().filter(|task| task.pid == task.tgid && task.folded == 0) {
            let Some(own) = own_name::of(task) else { continue };
            let (name, key) = (Rc::from(own.name.as_str()), Rc::from(own.key.as_str()));
            let fresh = Named { comm: &task.comm, name: Some(name), key };
            let named = names.processes.entry(task.pid).or_insert(fresh);
            if named.name.as_deref() != Some(own.name.as_str()) || named.comm != task.comm {
                named.name = None;
            }
        }
        let others = tasks.iter().filter(|task| task.pid != task.tgid);
        let of_named = others.filter(|task| names.processes.contains_key(&task.tgid));
        names.threads = of_named.map(|task| (task.pid, task.tgid)).collect();
        names
    }

    /// The name of the thread `pid`, which the kernel called `comm`; `None`: it has just that name. Before execve a process had
    /// another name, and ran another program.
    pub fn called(&self, pid: u32, comm: &str) -> Option<Called> {
        if let Some(name) = self.flusher(comm) {
            return Some(Called { key: name.clone(), name });
        }
        let thread_of = self.threads.get(&pid);
        let process = self.processes.get(thread_of.unwrap_or(&pid))?;
        let name = process.name.as_deref()?;
        let called = |name: &str, key: &str| Called { name: name.to_owned(), key: key.to_owned() };
        match thread_of {
            _ if process.comm == comm => Some(called(name, &process.key)),
            Some(_) => Some(called(
                &format!("{name} ({comm})"),
                &format!("{} ({})", process.key, own_name::without_numbers(comm)),
            )),
            None => None,
        }
    }

    /// "kworker/u8:3+flush-254:0": a worker that writes dirty pages of a device (mm/backing-dev.c, bdi_init).
    fn flusher(&self, comm: &str) -> Option<String> {
        let (worker, device) = comm.split_once("flush-")?;
        let is_number = device
            .split_once(':')
            .is_some_and(|(major, minor)| [major, minor].iter().all(|part| part.parse::<u32>().is_ok()));
        let name = self.devices.get(device).copied().unwrap_or(device);
        (worker.starts_with("kworker/") && is_number).then(|| format!("flush of {name}"))
    }

    /// The name in a report; the kernel's if there is no other.
    pub fn shown(&self, pid: u32, comm: &str) -> String {
        self.called(pid, comm).map_or_else(|| comm.to_owned(), |own| own.name)
    }

    /// The same for all that are alike.
    pub fn together(&self, pid: u32, comm: &str) -> String {
        self.called(pid, comm).map_or_else(|| comm.to_owned(), |own| own.key)
    }

    /// The name that a process has beside the kernel's.
    pub fn process(&self, tgid: u32) -> Option<&str> {
        self.processes.get(&tgid)?.name.as_deref()
    }
}

/// The whole command line of an interpreter that runs a script: two processes with the same line are copies of each other.
pub(crate) fn script_line(task: &Task) -> Option<&str> {
    let line = task.cmdline.as_deref().filter(|_| !task.kthread)?;
    own_name::runs_script(line).then_some(line)
}

/// Whether a program of this name is a shell.
pub(crate) fn is_shell(comm: &str) -> bool {
    interpreters::Interpreter::called(comm).is_some_and(interpreters::Interpreter::is_shell)
}

/// The name of the process with this first thread, or of the thread itself.
pub(crate) fn of_row(task: &Task) -> String {
    own_name::of(task).filter(|_| task.pid == task.tgid).map_or_else(|| task.comm.clone(), |own| own.name)
}

/// The subject of a trace, as the user gave it: the ids of processes get their names.
pub(crate) fn subject(tasks: &[Task], subject: &str) -> String {
    let one = |word: &str| {
        let pid: Option<u32> = word.parse().ok();
        let first = pid.and_then(|pid| {
            tasks.iter().find(|task| task.pid == pid && task.tgid == pid && task.folded == 0)
        });
        first.map_or_else(|| word.to_owned(), |task| format!("{} (pid {word})", of_row(task)))
    };
    subject.split(", ").map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
