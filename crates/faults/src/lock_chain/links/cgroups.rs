//! `cgroup_mutex`: attaching a process holds it while it waits for an RCU grace period; mkdir wants it.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Object;
use crate::lock_chain::Plan;

/// Two groups between which the leaf moves, and a group that the waiter makes and removes.
pub struct Cgroups {
    homes: Vec<PathBuf>,
    moves: AtomicUsize,
    child: PathBuf,
    healthy: bool,
}

impl Cgroups {
    pub fn new(plan: &Plan) -> io::Result<Self> {
        let [first, _] = plan.homes.as_slice() else {
            return Err(io::Error::other("moving takes two cgroups"));
        };
        let child = first.with_file_name("child");
        Ok(Cgroups { homes: plan.homes.clone(), moves: AtomicUsize::new(0), child, healthy: plan.healthy })
    }
}

impl Object for Cgroups {
    fn want(&self) -> io::Result<()> {
        fs::create_dir(&self.child)?;
        if self.healthy { self.rest() } else { Ok(()) }
    }

    fn hold_for(&self, _: u64) -> io::Result<()> {
        let home = self.moves.fetch_add(1, Ordering::Relaxed) % 2;
        fs::write(&self.homes[home], "0")
    }

    fn rest(&self) -> io::Result<()> {
        fs::remove_dir(&self.child)
    }

    fn briefly(&self, act: &dyn Fn()) -> io::Result<()> {
        act();
        let other = self.child.with_file_name("other");
        fs::create_dir(&other)?;
        fs::remove_dir(other)
    }
}
