//! The stacks of a recording, and the names that go with them.

use whyslow_model::Recording;
use whyslow_model::timeline::Stack;
use whyslow_model::wait::{IoAbout, Operation};

use super::LockName;
use super::io_files::IoFiles;
use super::lock_names::LockNames;
use super::wait::meaningful;
use crate::hashing::Table;
use crate::process_names::ProcessNames;

/// The stacks of a recording by id, with the names of its devices, processes and locks.
#[derive(Debug, Default)]
pub struct Stacks<'r> {
    /// With the functions that are not generic: many waits have one stack.
    rows: Table<u32, (&'r Stack, Box<[&'r str]>)>,
    devices: Table<&'r str, &'r str>,
    /// Name and process of threads.
    tasks: Table<u32, (&'r str, u32)>,
    locks: LockNames,
    names: ProcessNames<'r>,
    files: IoFiles,
}

impl<'r> Stacks<'r> {
    /// From these rows. Devices, tasks and locks without a row are reported by number.
    #[must_use]
    pub fn of(rows: &'r [Stack]) -> Self {
        Stacks {
            rows: rows.iter().map(|row| (row.id, (row, meaningful(&row.kernel).into()))).collect(),
            ..Stacks::default()
        }
    }

    /// From a recording, with its names of devices, processes and locks: each lock then has one name, from
    /// all its waiters.
    #[must_use]
    pub fn in_recording(recording: &'r Recording) -> Self {
        let tables = &recording.tables;
        let mut stacks = Stacks::of(tables.stacks.as_deref().unwrap_or_default());
        let disks = tables.disk.iter().flatten();
        stacks.devices = disks.map(|disk| (disk.dev.as_str(), disk.device.as_str())).collect();
        for span in tables.spans.iter().flatten() {
            stacks.tasks.insert(span.pid, (&span.comm, span.tgid));
        }
        for task in tables.tasks.iter().flatten() {
            stacks.tasks.insert(task.pid, (&task.comm, task.tgid));
        }
        stacks.names = ProcessNames::in_tables(tables);
        stacks.locks = LockNames::of(recording, &stacks);
        stacks.files = IoFiles::of(recording, &stacks);
        stacks
    }

    /// Kernel frames of a stack, innermost first; none if there is no such stack.
    #[must_use]
    pub fn kernel(&self, id: Option<u32>) -> &'r [String] {
        id.and_then(|id| self.rows.get(&id)).map_or(&[], |(stack, _)| &stack.kernel)
    }

    /// Functions of the kernel on a stack, innermost first, without generic and unknown ones.
    pub(super) fn functions(&self, id: Option<u32>) -> &[&'r str] {
        id.and_then(|id| self.rows.get(&id)).map_or(&[], |(_, functions)| functions)
    }

    /// User frames of a stack, innermost first.
    #[must_use]
    pub fn user(&self, id: Option<u32>) -> &'r [String] {
        id.and_then(|id| self.rows.get(&id)).map_or(&[], |(stack, _)| &stack.user)
    }

    /// The usual name of a block device: "vda", else "block device 254:0".
    #[must_use]
    pub fn device(&self, dev: &str) -> String {
        match self.devices.get(dev) {
            Some(name) if !name.is_empty() => (*name).to_owned(),
            _ => format!("block device {dev}"),
        }
    }

    /// What waits of a process for a device were about.
    pub(super) fn about(&self, tgid: u32, device: &str, operation: &Operation) -> Option<IoAbout> {
        self.files.about(tgid, device, operation)
    }

    /// Name of a process: its own, or that of its first thread.
    #[must_use]
    pub fn process(&self, tgid: u32) -> Option<&str> {
        self.names.process(tgid).or_else(|| self.comm(tgid))
    }

    /// Names that processes have beside the kernel's.
    pub(crate) fn names(&self) -> &ProcessNames<'r> {
        &self.names
    }

    /// Name of a thread, if it was seen.
    pub(crate) fn comm(&self, pid: u32) -> Option<&'r str> {
        self.tasks.get(&pid).map(|(comm, _)| *comm)
    }

    /// Process of a thread, if it was seen.
    #[must_use]
    pub fn tgid(&self, pid: u32) -> Option<u32> {
        self.tasks.get(&pid).map(|(_, tgid)| *tgid)
    }

    /// Whether any task is known.
    pub(crate) fn knows_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// The name of the lock at an address, from all its waiters.
    pub(crate) fn lock(&self, address: u64) -> Option<&LockName> {
        self.locks.at(address)
    }
}
