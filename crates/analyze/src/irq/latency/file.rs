//! The file that a process read while it waited for CPUs, as far as calls or stacks show it.

use std::collections::BTreeMap;

use whyslow_model::Recording;

use crate::stacks::doing::{asks_cpus, doing};
use crate::stacks::symbol;

/// Kernel functions behind one file, without the file's name in their own. arch/x86/kernel/cpu/proc.c, msr.c, cpuid.c.
const FILES: [(&str, &str); 6] = [
    ("show_cpuinfo", "/proc/cpuinfo"),
    ("c_start", "/proc/cpuinfo"),
    ("cpuinfo_open", "/proc/cpuinfo"),
    ("msr_read", "/dev/cpu/*/msr"),
    ("msr_write", "/dev/cpu/*/msr"),
    ("cpuid_read", "/dev/cpu/*/cpuid"),
];

/// The file on which thread `pid` of process `tgid` spent most time in the kernel while it called other CPUs.
pub(crate) fn asked_through(rec: &Recording, pid: u32, tgid: u32) -> Option<String> {
    let by_stack = by_stack(rec, pid);
    let calls = rec.tables.calls.iter().flatten().filter(|call| call.tgid == tgid && call.path.is_some());
    let costliest = calls.max_by_key(|call| call.split.running_ns).filter(|call| call.split.running_ns > 0);
    let Some(path) = costliest.and_then(|call| call.path.clone()) else { return by_stack };
    // A path of this process that the stack does not show may belong to another of its threads.
    match &by_stack {
        Some(name) if !path.ends_with(name.as_str()) => by_stack,
        _ => Some(path),
    }
}

/// The kernel function in which thread `pid` spun most until the other CPUs had answered.
pub(crate) fn spun_in(rec: &Recording, pid: u32) -> Option<String> {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for sample in rec.tables.samples.iter().flatten().filter(|sample| sample.pid == pid && asks_cpus(sample))
    {
        if let Some(function) = doing(sample).function() {
            let count = seen.entry(function.to_owned()).or_default();
            *count = count.saturating_add(sample.count);
        }
    }
    seen.into_iter().max_by_key(|(_, count)| *count).map(|(function, _)| function)
}

/// The file, by the function that shows it: a file of sysfs has the name of its function.
fn by_stack(rec: &Recording, pid: u32) -> Option<String> {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for sample in rec.tables.samples.iter().flatten().filter(|sample| sample.pid == pid && asks_cpus(sample))
    {
        if let Some(file) = sample.kernel.iter().find_map(|frame| shown_by(symbol(frame))) {
            let count = seen.entry(file).or_default();
            *count = count.saturating_add(sample.count);
        }
    }
    seen.into_iter().max_by_key(|(_, count)| *count).map(|(file, _)| file.to_owned())
}

fn shown_by(function: &str) -> Option<&str> {
    if let Some((_, file)) = FILES.iter().find(|(name, _)| *name == function) {
        return Some(file);
    }
    let name = function.strip_prefix("show_").or_else(|| function.strip_suffix("_show"))?;
    // These functions show any file of sysfs.
    (!["dev_attr", "kobj_attr", "drv_attr", "bus_attr", "class_attr", "seq"].contains(&name)).then_some(name)
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::{Call, Sample};
    use whyslow_model::timeline::StateTimes;

    use super::super::fixture::host;
    use super::*;

    fn asking(frames: &[&str]) -> Recording {
        let mut rec = host();
        let kernel = frames.iter().map(|f| (*f).to_owned()).collect();
        rec.tables.samples = Some(vec![Sample { pid: 7, tgid: 7, count: 5, kernel, ..Sample::default() }]);
        rec
    }

    const READ: [&str; 6] = [
        "smp_call_function_single",
        "get_cur_freq_on_cpu",
        "show_cpuinfo_cur_freq",
        "show",
        "dev_attr_show",
        "vfs_read",
    ];

    #[test]
    fn a_file_of_sysfs_has_the_name_of_its_function() {
        assert_eq!(asked_through(&asking(&READ), 7, 7).as_deref(), Some("cpuinfo_cur_freq"));
        assert_eq!(
            asked_through(&asking(&["smp_call_function_single", "a", "c_start"]), 7, 7).as_deref(),
            Some("/proc/cpuinfo")
        );
        assert_eq!(asked_through(&asking(&["smp_call_function_single", "dev_attr_show"]), 7, 7), None);
        assert_eq!(asked_through(&asking(&["msleep", "show_cpuinfo"]), 7, 7), None, "it calls no CPU");
        assert_eq!(asked_through(&asking(&READ), 8, 8), None);
    }

    #[test]
    fn spin_function_is_read_from_samples_of_threads_that_call_other_cpus() {
        assert_eq!(spun_in(&asking(&READ), 7).as_deref(), Some("smp_call_function_single"));
        assert_eq!(spun_in(&asking(&READ), 8), None);
        assert_eq!(spun_in(&asking(&["msleep", "show_cpuinfo"]), 7), None);
    }

    #[test]
    fn a_path_is_better_than_a_name() {
        let mut rec = asking(&READ);
        let call = |path: &str, running_ns| Call {
            tgid: 7,
            path: Some(path.into()),
            split: StateTimes { running_ns, ..StateTimes::default() },
            ..Call::default()
        };
        let path = "/sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_cur_freq";
        rec.tables.calls = Some(vec![call("/etc/passwd", 1), call(path, 9)]);
        assert_eq!(asked_through(&rec, 7, 7).as_deref(), Some(path));
        rec.tables.calls = Some(vec![call("/etc/passwd", 10), call(path, 9)]);
        assert_eq!(asked_through(&rec, 7, 7).as_deref(), Some("cpuinfo_cur_freq"), "the stack knows better");
    }
}
