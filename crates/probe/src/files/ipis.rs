//! Does this kernel interrupt other CPUs when a process reads /proc/cpuinfo or scaling_cur_freq?
//!
//! On x86, Linux 4.13 to 5.17 sampled APERF and MPERF on reading: an IPI to each CPU, spinning until it answers
//! (`aperfmperf_snapshot_khz`, into a `struct aperfmperf_sample`). Since 5.18 the tick keeps the samples, and both names
//! are gone (f3eca381bd49, "x86/aperfmperf: Replace arch_freq_get_on_cpu()"). So the code looks for these names, never at the
//! version: a vendor kernel may have either. `arch_freq_prepare_all` proves nothing: its weak form is on every machine.
//! Other architectures never did it.

use super::root::{Reads, Root};

const WITNESSES: [&[u8]; 2] = [b"aperfmperf_sample", b"aperfmperf_snapshot_khz"];
/// BTF of a large distribution kernel is 6 MB.
const MOST_BTF: usize = 32 << 20;

/// What is known about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ipis {
    /// Reading interrupts no CPU.
    None,
    /// Reading interrupts other CPUs.
    Sent,
    /// Neither BTF nor kallsyms can be read: treated as `Sent`.
    Unknown,
}

/// Searches BTF, else the kernel's symbols. A folder never sends IPIs.
pub(super) fn on_reading_frequency(root: &Root) -> Ipis {
    if !root.live || !cfg!(any(target_arch = "x86", target_arch = "x86_64")) {
        return Ipis::None;
    }
    let mut names = Vec::new();
    for file in [c"sys/kernel/btf/vmlinux", c"proc/kallsyms"] {
        if matches!(root.read(file, MOST_BTF, &mut names), Ok(true)) {
            let known = judge(&names);
            if known != Ipis::Unknown {
                return known;
            }
        }
    }
    Ipis::Unknown
}

/// From a list of names, ended by NULs (BTF) or newlines (kallsyms).
fn judge(names: &[u8]) -> Ipis {
    // A list without a function that every kernel has is not a list of the kernel's names.
    if !contains_name(names, b"schedule") {
        return Ipis::Unknown;
    }
    if WITNESSES.iter().any(|name| contains_name(names, name)) { Ipis::Sent } else { Ipis::None }
}

fn contains_name(names: &[u8], name: &[u8]) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_none_or(|b| matches!(b, 0 | b'\n' | b' ' | b'\t'));
    let mut from = 0;
    while let Some(at) = find(names.get(from..).unwrap_or_default(), name).map(|at| at + from) {
        if is_end(at.checked_sub(1).and_then(|b| names.get(b))) && is_end(names.get(at + name.len())) {
            return true;
        }
        from = at + 1;
    }
    false
}

/// memmem: 6 MB in about 2 ms.
fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    // SAFETY: both pointers are good for their lengths; memmem reads no more.
    let at = unsafe { libc::memmem(hay.as_ptr().cast(), hay.len(), needle.as_ptr().cast(), needle.len()) };
    (!at.is_null()).then(|| (at as usize).saturating_sub(hay.as_ptr() as usize))
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn old_sampling_is_known_from_btf_and_from_symbols() {
        assert_eq!(judge(b"\0int\0schedule\0aperfmperf_sample\0"), Ipis::Sent);
        assert_eq!(judge(b"ff t schedule\nff t aperfmperf_snapshot_khz\n"), Ipis::Sent);
    }

    #[test]
    fn new_sampling_is_reported_from_old() {
        assert_eq!(judge(b"\0schedule\0aperfmperf\0ap_init_aperfmperf\0"), Ipis::None);
        assert_eq!(judge(b"ff t schedule\nff t not_aperfmperf_snapshot_khz\n"), Ipis::None);
    }

    #[test]
    fn names_that_are_not_the_kernels_tell_nothing() {
        assert_eq!(judge(b""), Ipis::Unknown);
        assert_eq!(judge(b"schedule_timeout\0"), Ipis::Unknown);
    }

    proptest::proptest! {
        #[test]
        fn no_names_make_it_panic(names in "(schedule|aperfmperf_sample|[a-z\0\n ]){0,20}") {
            judge(names.as_bytes());
        }
    }
}
