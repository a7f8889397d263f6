//! Whether a program on a tracepoint may fill a ring buffer on this kernel.
//!
//! Tracepoints run with preemption off, some of them under a run queue's lock. With PREEMPT_RT a `spinlock_t` sleeps, and
//! until 8b62645b09f8 (v6.12, CVE-2024-50138) that was the ring buffer's: such a program would stop the host.

use std::fs;
use std::sync::OnceLock;

use libbpf_rs::btf::types::Struct;
use libbpf_rs::btf::{Btf, BtfType};
use whyslow_model::Missing;

/// The reason that is reported for each probe that is not loaded.
const NEEDS: &str =
    "ring buffers whose lock does not sleep with PREEMPT_RT: Linux 6.12, or the fix of CVE-2024-50138";

/// Called before an object with such a program is loaded. `what`: the probe.
pub(crate) fn may_be_filled(what: &str) -> Result<(), Missing> {
    static SLEEPS: OnceLock<bool> = OnceLock::new();
    let sleeps = *SLEEPS.get_or_init(|| {
        let read = |file| fs::read_to_string(file).unwrap_or_default();
        sleeps(is_realtime(&read("/sys/kernel/realtime"), &read("/proc/version")), lock_type)
    });
    if !sleeps {
        return Ok(());
    }
    Err(Missing::NotInKernel { what: what.to_owned(), needs: NEEDS.to_owned() })
}

/// A lock whose type is not known counts as the old one.
fn sleeps(realtime: bool, lock_type: impl FnOnce() -> Option<String>) -> bool {
    realtime && lock_type().is_none_or(|name| name == "spinlock_t")
}

/// From /sys/kernel/realtime (the RT patches') and /proc/version ("#1 SMP PREEMPT_RT ...").
fn is_realtime(flag: &str, version: &str) -> bool {
    flag.trim() == "1" || version.contains("PREEMPT_RT") || version.contains("PREEMPT RT")
}

/// The type of the ring buffer's lock, by BTF. 25 ms, on real-time kernels only.
fn lock_type() -> Option<String> {
    let btf = Btf::from_vmlinux().ok()?;
    let ring = btf.type_by_name::<Struct<'_>>("bpf_ringbuf")?;
    let lock = ring.iter().find(|member| member.name.is_some_and(|name| name == "spinlock"))?;
    let named: BtfType<'_> = btf.type_by_id(lock.ty)?;
    named.name().map(|name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use libbpf_rs::btf::types::Typedef;

    use super::*;

    #[test]
    fn a_lock_that_sleeps_keeps_the_probe_away_and_any_other_does_not() {
        let of = |name: &str| Some(name.to_owned());
        assert!(sleeps(true, || of("spinlock_t")), "before the fix");
        assert!(!sleeps(true, || of("raw_spinlock_t")), "v6.12");
        assert!(!sleeps(true, || of("rqspinlock_t")), "v6.15");
        assert!(sleeps(true, || None), "not known");
        assert!(!sleeps(false, || unreachable!("types are read on real-time kernels only")));
    }

    #[test]
    fn a_realtime_kernel_says_so() {
        assert!(is_realtime("1\n", ""));
        assert!(is_realtime("", "Linux version 6.1.0-18-rt-amd64 (...) #1 SMP PREEMPT_RT Debian 6.1.76-1"));
        assert!(is_realtime("", "Linux version 4.19.0-6-rt-amd64 #1 SMP PREEMPT RT Debian 4.19.67"));
        assert!(!is_realtime("0\n", "Linux version 6.12.0 #1 SMP PREEMPT_DYNAMIC Debian"));
        assert!(!is_realtime("", "Linux version 6.12.0 #1 SMP PREEMPT Debian"));
    }

    #[test]
    fn this_kernels_ring_buffers_have_a_lock_of_a_known_type() {
        if let Ok(btf) = Btf::from_vmlinux()
            && btf.type_by_name::<Typedef<'_>>("raw_spinlock_t").is_some()
        {
            let name = lock_type().expect("struct bpf_ringbuf is in BTF");
            assert!(["spinlock_t", "raw_spinlock_t", "rqspinlock_t"].contains(&&*name), "{name}");
        }
    }
}
