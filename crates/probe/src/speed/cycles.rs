//! The frequency at which a CPU runs while it is not idle: cycles by cycles at the reference frequency.
//!
//! The registers APERF and MPERF count in C0 only. They, or the counters of the performance unit, are read by a thread that
//! runs on that CPU: perf then needs no other CPU (`__perf_event_read_cpu`); from another CPU it would send an interrupt.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::perf_event::{self, Attr};

/// Which events: (type, cycles, reference cycles).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Events {
    kind: u32,
    cycles: u64,
    reference: u64,
}

const PERF_TYPE_HARDWARE: u32 = 0;
const HARDWARE: Events = Events { kind: PERF_TYPE_HARDWARE, cycles: 0, reference: 9 };

impl Events {
    /// The registers, where the kernel offers both, else the counters of the performance unit, which may be absent.
    pub fn of(root: &Path) -> Events {
        Self::registers(&root.join("sys/bus/event_source/devices/msr")).unwrap_or(HARDWARE)
    }

    fn registers(device: &Path) -> Option<Events> {
        let word = |name: &str| std::fs::read_to_string(device.join(name)).ok();
        let kind = word("type")?.trim().parse().ok()?;
        let config = |name| config(&word(name)?);
        Some(Events { kind, cycles: config("events/aperf")?, reference: config("events/mperf")? })
    }
}

/// "event=0x01".
fn config(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim().strip_prefix("event=0x")?, 16).ok()
}

/// The two counters of one CPU, opened and read on it.
pub struct Cycles {
    leader: File,
    _reference: File,
}

impl Cycles {
    /// Start counting on this CPU.
    pub fn open(events: Events, cpu: u32) -> std::io::Result<Self> {
        let leader = open(events.kind, events.cycles, cpu, -1)?;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&leader);
        let reference = open(events.kind, events.reference, cpu, fd)?;
        Ok(Cycles { leader, _reference: reference })
    }

    /// (cycles, reference cycles) so far.
    pub fn read(&mut self) -> Option<(u64, u64)> {
        let mut bytes = [0u8; 24]; // how many, then their values
        self.leader.read_exact(&mut bytes).ok()?;
        let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some((word(8)?, word(16)?))
    }
}

fn open(kind: u32, config: u64, cpu: u32, group: i32) -> std::io::Result<File> {
    const GROUP: u64 = 1 << 3;
    perf_event::open(Attr { kind, config, read_format: GROUP, ..Attr::default() }, cpu, group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_the_kernel_prints_them() {
        assert_eq!((config("event=0x01\n"), config("event=0x1f")), (Some(1), Some(31)));
        for torn in ["", "event=", "event=0xzz", "config=0x1"] {
            assert_eq!(config(torn), None, "{torn}");
        }
        assert_eq!(Events::of(Path::new("/nonexistent")), HARDWARE);
    }

    #[test]
    fn root_counters_count_or_say_why_not() {
        match Cycles::open(Events::of(Path::new("/")), 0) {
            Ok(mut cycles) => {
                let (first, _) = cycles.read().expect("an open counter is read");
                std::hint::black_box((0..1_000_000u64).fold(0, |a, b| a ^ b));
                assert!(cycles.read().expect("again").0 >= first);
            }
            Err(why) => println!("none here: {why}"),
        }
    }
}
