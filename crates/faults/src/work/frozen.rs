//! A file system that another process freezes (fsfreeze(8)). It is mounted in a mount namespace of this process, and disappears with it;
//! other processes reach it through `/proc/PID/root`.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;

use super::Worker;
use crate::ledger::Word;
use crate::sys;

/// How soon this process notices that it should freeze or thaw the file system.
const NOTICE_US: u64 = 5_000;

/// Mount it. `Word::Mode` 1: freeze it. A task that waits for the thaw cannot be killed: a child thaws the file system when this process
/// has ended.
pub fn run<'l>(ready: impl FnOnce() -> Worker<'l>, image: &Path, dir: &Path) -> io::Result<()> {
    sys::new_mounts()?;
    let mount = Command::new("mount").args(["-o", "loop"]).args([image, dir]).status()?;
    if !mount.success() {
        return Err(io::Error::other(format!("cannot mount {}: {mount}", image.display())));
    }
    let top = File::open(dir)?;
    thaw_at_end(&top)?;
    let worker = ready();
    let mut frozen = false;
    while worker.goes_on() {
        let mode = worker.word(Word::Mode) == 1;
        if mode != frozen {
            sys::freeze(&top, mode)?;
            frozen = mode;
        }
        sys::sleep_us(NOTICE_US);
    }
    Ok(())
}

fn thaw_at_end(top: &File) -> io::Result<()> {
    let [read, write] = sys::kernel::pipe()?;
    if sys::fork()? {
        drop(write);
        leave_groups();
        let _ = sys::kernel::read_byte(&read);
        let _ = sys::freeze(top, false);
        sys::leave(0);
    }
    // The pipe stays open until this process has ended.
    std::mem::forget(write);
    Ok(())
}

/// The kill of all processes in the test's groups must not reach this process: the file system would stay frozen.
fn leave_groups() {
    const TOP: &str = "/sys/fs/cgroup";
    let has_one_tree = Path::new(TOP).join("cgroup.controllers").exists();
    let trees = fs::read_dir(TOP).into_iter().flatten().flatten().map(|tree| tree.path());
    let trees = trees.filter(|_| !has_one_tree).chain([Path::new(TOP).to_owned()]);
    trees.for_each(|tree| drop(fs::write(tree.join("cgroup.procs"), "0")));
}
