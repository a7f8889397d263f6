//! The acts of this case.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::clock;

use super::super::actor::Pen;
use super::super::sys;

/// Slabs with one object each: to walk them takes 10 to 40 ms.
const SLABS: u64 = 350_000;
/// Objects of 256 bytes in a slab of 4 KiB.
const OBJECTS: u64 = 16;
/// A message and its head of 48 bytes (include/linux/msg.h) are such an object.
const MESSAGE: usize = 160;
/// Multicast addresses of one device. The kernel walks all of them again, with bottom halves off, each time its buffer is too small: about ten
/// passes for each read, of 8 to 35 ms.
const ADDRESSES: u32 = 60_000;
/// An address takes about 300 bytes, the file 46.
const ADDRESS_BYTES: u64 = 512;
const LEAVE_FREE: u64 = 256 << 20;

/// A file that is made of a long list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum List {
    /// The objects in partial slabs of messages: mm/slub.c counts them with the lock of the node and interrupts off (`count_partial`).
    /// Messages have slabs of their own since v6.11, 734bbc1c97ea ("ipc, msg: Use dedicated slab buckets for alloc_msg()").
    #[serde(rename = "objects_partial")]
    Slabs,
    /// The multicast addresses of a device: net/core/net-procfs.c prints them all with its lock, and bottom halves off (`dev_mc_seq_show`).
    #[serde(rename = "dev_mcast")]
    Addresses,
}

impl List {
    /// Memory that the list takes.
    pub fn memory(self) -> u64 {
        let list = match self {
            List::Slabs => SLABS * 4096,
            List::Addresses => u64::from(ADDRESSES) * ADDRESS_BYTES,
        };
        list.saturating_mul(5) / 4 + LEAVE_FREE
    }

    /// The file that takes long, and one beside it that does not. `pid`: a process in the network namespace of the device.
    pub fn paths(self, pid: u32) -> [PathBuf; 2] {
        match self {
            List::Slabs => ["objects_partial", "partial"]
                .map(|name| Path::new("/sys/kernel/slab/msg_msg-256").join(name)),
            List::Addresses => {
                ["dev_mcast", "dev"].map(|name| PathBuf::from(format!("/proc/{pid}/net/{name}")))
            }
        }
    }
}

/// Makes the list, and keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hoard {
    pub list: List,
    /// Device of the addresses.
    pub device: String,
}

/// Reads a file at moments that others share, and records how long that took: the slow one while its mode is not 0.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Glance {
    pub slow: PathBuf,
    pub quick: PathBuf,
    pub every_ns: u64,
    pub phase_ns: u64,
}

/// Computes for a while at these moments, and records when it ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Before {
    pub every_ns: u64,
    pub for_ns: u64,
}

impl Hoard {
    pub fn live(&self, pen: &Pen) -> io::Result<()> {
        match self.list {
            List::Slabs => sparse_slabs()?,
            List::Addresses => sys::join_groups(&self.device, ADDRESSES)?,
        }
        pen.ready();
        loop {
            std::thread::sleep(Duration::from_secs(60));
        }
    }
}

/// Fill slabs with messages of two queues, and remove one of these: the other one has a message in each slab. They disappear with this
/// process's namespace.
fn sparse_slabs() -> io::Result<()> {
    sys::unshare(libc::CLONE_NEWIPC)?;
    fs::write("/proc/sys/kernel/msgmnb", i32::MAX.to_string())?;
    let [kept, removed] = [sys::message_queue()?, sys::message_queue()?];
    for at in 0..SLABS * OBJECTS {
        sys::send_message::<MESSAGE>(if at % OBJECTS == 0 { kept } else { removed })?;
    }
    sys::remove_queue(removed)
}

impl Glance {
    pub fn live(&self, mut pen: Pen) -> io::Result<()> {
        pen.ready();
        pen.at_each_phase(self.every_ns, self.phase_ns, |pen| {
            let file = if pen.mode() == 0 { &self.quick } else { &self.slow };
            let began = clock::now();
            fs::read(file)?;
            pen.note(began, clock::now().saturating_sub(began));
            pen.did_one();
            Ok(())
        })
    }
}

impl Before {
    pub fn live(&self, mut pen: Pen) -> io::Result<()> {
        pen.ready();
        pen.at_each_phase(self.every_ns, 0, |pen| {
            let began = clock::now();
            while clock::now() < began.saturating_add(self.for_ns) {
                std::hint::spin_loop();
            }
            pen.note(began, clock::now());
            pen.did_one();
            Ok(())
        })
    }
}
