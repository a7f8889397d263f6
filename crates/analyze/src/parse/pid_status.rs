//! A task, in words: `/proc/PID/status`.
//!
//! ```text
//! Name:       cat
//! State:      R (running)
//! Tgid:       13560
//! Cpus_allowed_list:  0-1
//! VmSwap:            0 kB
//! ```
//!
//! The kernel escapes newlines and backslashes in the name, so each line is one field. Kernel threads have no Vm lines.

use std::collections::BTreeMap;

use super::{Bad, cpulist, number};

/// The fields of one task by name, as printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PidStatus(BTreeMap<String, String>);

impl PidStatus {
    /// A field, trimmed.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A number ("Threads", "voluntary_ctxt_switches"), or an amount of memory in bytes ("VmRSS").
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        let mut fields = self.field(name)?.split_ascii_whitespace();
        let value: u64 = fields.next()?.parse().ok()?;
        Some(if fields.next() == Some("kB") { value.saturating_mul(1024) } else { value })
    }

    /// CPUs that the task may use.
    #[must_use]
    pub fn allowed(&self) -> Option<cpulist::CpuList> {
        cpulist::parse(self.field("Cpus_allowed_list")?).ok()
    }
}

/// Parse the file.
pub fn parse(text: &str) -> Result<PidStatus, Bad> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let fields: BTreeMap<String, String> = lines.map(|(n, v)| (n.to_owned(), v.trim().to_owned())).collect();
    number::<u32>(fields.get("Pid").map(String::as_str), "a line \"Pid: <number>\"", text)?;
    Ok(PidStatus(fields))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const HERE: &str = "Name:\tcat\nUmask:\t0022\nState:\tR (running)\nTgid:\t13560\nNgid:\t0\nPid:\t13560\nPPid:\t13550\nVmRSS:\t    1672 kB\n\
        VmSwap:\t       0 kB\nThreads:\t1\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\nvoluntary_ctxt_switches:\t0\n";
    /// A kernel thread of Linux 5.10.
    const KTHREAD: &str = "Name:\tmigration/0\nState:\tS (sleeping)\nTgid:\t12\nPid:\t12\nPPid:\t2\nThreads:\t1\nCpus_allowed_list:\t0\n";

    #[test]
    fn reads_numbers_memory_and_cpus() {
        let here = parse(HERE).unwrap();
        assert_eq!((here.field("State"), here.number("VmRSS")), (Some("R (running)"), Some(1672 << 10)));
        assert_eq!(here.allowed().unwrap().count(), 2);
        let kthread = parse(KTHREAD).unwrap();
        assert_eq!(kthread.number("VmRSS"), None);
    }

    #[test]
    fn a_name_with_a_colon_stays_whole() {
        assert_eq!(parse("Name:\ta: b\\n\nPid:\t1\n").unwrap().field("Name"), Some("a: b\\n"));
    }

    #[test]
    fn a_torn_file_is_bad() {
        assert!(parse("Name:\tcat\nUmas").is_err());
    }
}
