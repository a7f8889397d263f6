//! Why the kernel does not let whyslow observe, and the way out: capabilities, user namespaces, seccomp, lockdown and
//! perf_event_paranoid all refuse with the same EPERM or EACCES.

use std::fs;
use std::path::Path;

/// What a process may do, by /proc and securityfs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rights {
    /// Effective capabilities; `None`: not known.
    capabilities: Option<u64>,
    /// Root of its own user namespace only: BPF needs capabilities in the initial one.
    in_user_namespace: bool,
    /// A seccomp filter is set.
    filtered: bool,
    /// "none", "integrity", "confidentiality"; "": no such file.
    lockdown: String,
    /// kernel.perf_event_paranoid.
    paranoid: Option<i32>,
}

/// include/uapi/linux/capability.h
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// From this level on Debian's kernels refuse perf_event_open(2) without CAP_SYS_ADMIN; Ubuntu's from 3 or 4. The kernel itself
/// knows nothing above 2.
const MORE_THAN_PERFMON: i32 = 3;

/// The map of the initial user namespace: every id maps to itself.
const ALL_IDS: [&str; 3] = ["0", "0", "4294967295"];

impl Rights {
    /// The rights of this process.
    #[must_use]
    pub fn own() -> Self {
        Rights::of(Path::new("/"))
    }

    /// The rights of the process that reads /proc below `root`.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
        Rights::from_texts(
            &read("proc/self/status"),
            &read("proc/self/uid_map"),
            &read("sys/kernel/security/lockdown"),
            &read("proc/sys/kernel/perf_event_paranoid"),
        )
    }

    fn from_texts(status: &str, uid_map: &str, lockdown: &str, paranoid: &str) -> Self {
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let ids: Vec<&str> = uid_map.split_ascii_whitespace().collect();
        // "none [integrity] confidentiality": the one in brackets is set.
        let set = lockdown.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        Rights {
            capabilities: line("CapEff:").and_then(|hex| u64::from_str_radix(hex, 16).ok()),
            in_user_namespace: !ids.is_empty() && ids != ALL_IDS,
            filtered: line("Seccomp:") == Some("2"),
            lockdown: set.map_or(String::new(), |(level, _)| level.to_owned()),
            paranoid: paranoid.trim().parse().ok(),
        }
    }

    /// A seccomp filter is set: container runtimes make it refuse bpf(2) and perf_event_open(2).
    #[must_use]
    pub fn is_filtered(&self) -> bool {
        self.filtered
    }

    fn has(&self, bit: u32) -> bool {
        self.capabilities.is_some_and(|mask| mask >> bit & 1 == 1)
    }

    /// The way out after bpf(2) was refused.
    #[must_use]
    pub fn way_out_for_bpf(&self) -> String {
        if self.is_confidential() {
            return self.confidential();
        }
        let enough = self.has(SYS_ADMIN) || self.has(BPF) && self.has(PERFMON);
        match self.shut_in().filter(|_| enough || self.capabilities.is_none()) {
            Some(why) => why,
            None => "run as root, or grant CAP_BPF and CAP_PERFMON".to_owned(),
        }
    }

    /// The way out after perf_event_open(2) was refused.
    #[must_use]
    pub fn way_out_for_perf(&self) -> String {
        let strict = self.paranoid.filter(|level| *level >= MORE_THAN_PERFMON);
        match (self.has(SYS_ADMIN), self.has(PERFMON), strict) {
            (true, ..) => self.shut_in().unwrap_or_else(|| "run as root".to_owned()),
            (_, _, Some(level)) => format!(
                "run as root, or grant CAP_SYS_ADMIN: with kernel.perf_event_paranoid at {level} some distributions' kernels do \
                 not accept CAP_PERFMON (at 2 they do)"
            ),
            (_, true, None) => self.shut_in().unwrap_or_else(|| "run as root".to_owned()),
            _ => "run as root, or grant CAP_PERFMON".to_owned(),
        }
    }

    /// Whether BPF programs may not read kernel memory: nearly all of ours do.
    #[must_use]
    pub fn is_confidential(&self) -> bool {
        self.lockdown == "confidentiality"
    }

    /// The way out on a host that is locked down.
    #[must_use]
    pub fn confidential(&self) -> String {
        "the kernel is locked down (lockdown=confidentiality): no process may read its memory, not even root; boot with \
         lockdown=integrity, which is enough for Secure Boot"
            .to_owned()
    }

    /// Why capabilities do not help.
    fn shut_in(&self) -> Option<String> {
        if self.in_user_namespace {
            return Some(
                "this is root in a user namespace only: run whyslow as root of the host (containers: without user namespaces, \
                 --userns=host)"
                    .to_owned(),
            );
        }
        self.filtered.then(|| {
            "a seccomp filter may refuse it: run whyslow outside the container, or start the container with \
             --security-opt seccomp=unconfined"
                .to_owned()
        })
    }

    /// The obstacle beside missing capabilities; `None`: there is none.
    #[must_use]
    pub fn obstacle(&self) -> Option<String> {
        let lockdown = self.is_confidential().then(|| self.confidential());
        lockdown.or_else(|| self.shut_in().filter(|_| self.in_user_namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "CapEff:\t000001ffffffffff\nSeccomp:\t0\n";
    const HALF: &str = "CapEff:\t000000c000000000\nSeccomp:\t0\n"; // CAP_PERFMON and CAP_BPF
    const NOBODY: &str = "CapEff:\t0000000000000000\nSeccomp:\t0\n";
    const INITIAL: &str = "         0          0 4294967295\n";

    fn rights(status: &str, paranoid: &str) -> Rights {
        Rights::from_texts(status, INITIAL, "none [integrity] confidentiality\n", paranoid)
    }

    #[test]
    fn a_user_without_capabilities_is_reported_which_are_asked_for() {
        let nobody = rights(NOBODY, "2\n");
        assert_eq!(nobody.way_out_for_bpf(), "run as root, or grant CAP_BPF and CAP_PERFMON");
        assert_eq!(nobody.way_out_for_perf(), "run as root, or grant CAP_PERFMON");
        assert_eq!(nobody.obstacle(), None);
    }

    #[test]
    fn where_the_kernel_is_paranoid_cap_perfmon_is_not_the_way_out() {
        for (status, level) in [(HALF, "3\n"), (NOBODY, "4\n")] {
            let reported = rights(status, level).way_out_for_perf();
            assert!(reported.contains("CAP_SYS_ADMIN") && reported.contains(level.trim()), "{reported}");
        }
        assert!(!rights(HALF, "2\n").way_out_for_perf().contains("CAP_SYS_ADMIN"));
    }

    #[test]
    fn a_locked_down_kernel_is_no_lack_of_capabilities() {
        let reported = Rights::from_texts(ROOT, INITIAL, "none integrity [confidentiality]\n", "2\n");
        assert!(reported.way_out_for_bpf().contains("lockdown=confidentiality"), "{reported:?}");
        assert!(reported.obstacle().is_some_and(|why| why.contains("lockdown=integrity")));
        assert_eq!(rights(ROOT, "2\n").obstacle(), None, "integrity allows it");
    }

    #[test]
    fn root_of_a_container_is_reported_what_holds_it() {
        let inside = Rights::from_texts(ROOT, "0 100000 65536\n", "", "2\n");
        assert!(inside.way_out_for_bpf().contains("user namespace") && inside.obstacle().is_some());
        let filtered = rights("CapEff:\t000001ffffffffff\nSeccomp:\t2\n", "2\n");
        assert!(
            filtered.way_out_for_bpf().contains("seccomp") && filtered.way_out_for_perf().contains("seccomp")
        );
        assert_eq!(filtered.obstacle(), None, "a filter may allow our calls");
    }

    #[test]
    fn no_text_says_nothing_and_none_makes_it_panic() {
        assert_eq!(Rights::from_texts("", "", "", ""), Rights::default());
        for torn in ["CapEff:", "CapEff: zz", "[", "]", "none [", "0 0"] {
            let reported = Rights::from_texts(torn, torn, torn, torn);
            assert!(!reported.way_out_for_bpf().is_empty() && !reported.way_out_for_perf().is_empty());
        }
    }
}
