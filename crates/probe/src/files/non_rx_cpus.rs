//! CPUs that serve no receive queue of a network device: where the disposable child runs.
//!
//! A read that holds a CPU in the kernel keeps the softirqs of that CPU waiting (on kernels without full preemption),
//! and a packet's softirq runs where its interrupt came in. These CPUs are known from the device's MSI vectors, else from the names
//! in /proc/interrupts. Not known: queues steered by RPS.

use std::collections::BTreeSet;
use std::ffi::CString;

use super::devices::Devices;
use super::root::{Reads, Root};

/// The CPUs of `allowed` that serve no receive queue; empty if there is none, or nothing is known.
pub(super) fn cpus(root: &Root, devices: &Devices, allowed: &BTreeSet<u32>) -> BTreeSet<u32> {
    if !root.live {
        return BTreeSet::new();
    }
    let nics: Vec<String> = devices.get("nic").into_iter().flatten().map(|nic| nic.name.clone()).collect();
    let mut lines = BTreeSet::new();
    for nic in &nics {
        for above in ["device/msi_irqs", "device/../msi_irqs"] {
            let Ok(path) = CString::new(format!("sys/class/net/{nic}/{above}")) else { continue };
            let _ = root.list(&path, |name, _| {
                lines.extend(std::str::from_utf8(name).ok().and_then(|n| n.parse::<u32>().ok()));
                lines.len() < 4096
            });
        }
    }
    let mut text = Vec::new();
    if root.read(c"proc/interrupts", super::table::HUGE, &mut text).is_ok() {
        let interrupts = String::from_utf8_lossy(&text);
        if lines.is_empty() {
            lines = named(&interrupts, |action| belongs(action, &nics));
        }
        let sends = named(&interrupts, only_sends);
        lines.retain(|line| !sends.contains(line));
    }
    let mut busy = BTreeSet::new();
    for line in lines {
        for file in ["effective_affinity_list", "smp_affinity_list"] {
            let Ok(path) = CString::new(format!("proc/irq/{line}/{file}")) else { continue };
            if root.read(&path, 4096, &mut text).is_ok() {
                busy.extend(list(&String::from_utf8_lossy(&text)));
                break;
            }
        }
    }
    allowed.difference(&busy).copied().collect()
}

/// Interrupt lines by the last word of their description, the action's name.
fn named(interrupts: &str, is_it: impl Fn(&str) -> bool) -> BTreeSet<u32> {
    let line = |text: &str| {
        let (number, rest) = text.split_once(':')?;
        if is_it(rest.split_ascii_whitespace().last()?) { number.trim().parse().ok() } else { None }
    };
    interrupts.lines().filter_map(line).collect()
}

/// The action names a NIC, or is a virtio network queue ("virtio1-input.0").
fn belongs(action: &str, nics: &[String]) -> bool {
    let is_nic = |nic: &String| nic != "lo" && action.contains(nic.as_str());
    nics.iter().any(is_nic)
        || action.starts_with("virtio") && (action.contains("-input.") || action.contains("-output."))
}

/// Completed sends and configuration changes can wait; incoming packets cannot. On a small machine every CPU
/// serves one or the other.
fn only_sends(action: &str) -> bool {
    let action = action.to_ascii_lowercase();
    let sends = action.contains("-output") || action.contains("-tx-") || action.ends_with("-tx");
    sends || action.ends_with("-config")
}

/// A list of CPUs: "0-3,8".
fn list(text: &str) -> BTreeSet<u32> {
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(low), Ok(high)) = (low.parse::<u32>(), high.parse::<u32>()) {
            cpus.extend(low..=high.min(low.saturating_add(8191)));
        }
    }
    cpus
}

/// The CPUs that this process may use.
pub(super) fn allowed() -> BTreeSet<u32> {
    let mut set = std::mem::MaybeUninit::<[u64; 128]>::zeroed(); // 8192 CPUs, the most that x86 and arm64 can have
    // SAFETY: `set` is as long as we say; the call writes no more.
    let got = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, 1024, set.as_mut_ptr()) };
    // SAFETY: all bit patterns are numbers.
    let set = unsafe { set.assume_init() };
    let bytes = usize::try_from(got).unwrap_or(0);
    (0..(bytes * 8) as u32).filter(|cpu| set[*cpu as usize / 64] >> (cpu % 64) & 1 == 1).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INTERRUPTS: &str = "           CPU0       CPU1
  0:         37          0   IO-APIC   2-edge      timer
 24:          0     129837   PCI-MSI 49152-edge      virtio0-req.0
 26:      92130          0   PCI-MSI 65537-edge      virtio1-input.0
 27:          0       3314   PCI-MSI 65538-edge      virtio1-output.0
 31:          3         12   PCI-MSI 81920-edge      mlx5_comp0@pci eth0-rx-0
NMI:          0          0   Non-maskable interrupts";

    #[test]
    fn queues_of_nics_are_known_by_name() {
        let nics = ["lo".to_owned(), "eth0".to_owned()];
        assert_eq!(named(INTERRUPTS, |action| belongs(action, &nics)), BTreeSet::from([26, 27, 31]));
        assert_eq!(named(INTERRUPTS, only_sends), BTreeSet::from([27]));
        assert!(!only_sends("i40e-eth0-TxRx-3") && only_sends("eth0-tx-3"));
    }

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(list("0-2,8\n"), BTreeSet::from([0, 1, 2, 8]));
        assert_eq!(list("\n"), BTreeSet::new());
        assert!(!allowed().is_empty());
    }

    #[test]
    fn root_the_quiet_cpus_are_some_of_ours_and_serve_no_nic() {
        let root = Root::open(std::path::Path::new("/"));
        let most = super::super::devices::Most { cpus: 512, disks: 1, nics: 64 };
        let devices = super::super::devices::discover(&root, &most, |_, _, _| ());
        let (quiet, ours) = (cpus(&root, &devices, &allowed()), allowed());
        println!("quiet: {quiet:?} of {ours:?}");
        assert!(quiet.is_subset(&ours));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[0-9a-z:, -]*") {
            list(&text);
            named(&text, |action| belongs(action, &["e".to_owned()]));
        }
    }
}
