//! What can whyslow observe on this kernel, and what does a missing capability cost? Each capability is tested by trying it, never by version.
//!
//! The list is for readers of a report that says "cannot tell". The test costs a few BPF loads (25 ms each) and one pass over kallsyms.

mod ask;
mod claim;
mod own;

use std::ffi::CStr;
use std::io::{self, BufReader, Read as _};
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

use whyslow_model::Missing;

use crate::budget::OwnBudget;
use crate::files::own_limits::OwnLimits;
use crate::pid_map::{OUTSIDE, Scope};
use crate::probes::{Entry, Kernel, KernelTypes, LentMaps, Start, Traced, registry};
use crate::rights::Rights;
use crate::speed::which;
use crate::{bpf, host};

/// One thing that whyslow can use.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Capability {
    /// Its name.
    pub what: &'static str,
    /// It is there and works.
    pub ok: bool,
    /// How that was found out.
    pub why: String,
    /// What is lost without it; empty where nothing is lost.
    pub lost: &'static str,
}

impl Capability {
    fn new(what: &'static str, lost: &'static str, found: Result<String, String>) -> Self {
        let ok = found.is_ok();
        Capability { what, ok, why: found.unwrap_or_else(|why| why), lost }
    }
}

/// The claim for the running kernel.
#[must_use]
pub fn claim() -> String {
    claim::of(&host::facts(Path::new("/")).kernel)
}

/// Test every capability on this host.
#[must_use]
pub fn doctor(step: &mut dyn FnMut(&'static CStr)) -> Vec<Capability> {
    bpf::silence_libbpf();
    crate::open_files::raise_limit();
    let root = Path::new("/");
    let mut capabilities = vec![privilege(read(root, "proc/self/status")), btf(root)];
    capabilities.push(pid_namespace(Scope::of(root)));
    // Probes are loaded with tables of the size that a window would use: whole tables may not fit into our memory limit.
    let limits = OwnLimits::read();
    bpf::map_sizes::halve(OwnBudget::halvings(&limits).unwrap_or(bpf::map_sizes::MOST_HALVINGS));
    capabilities.extend(objects(step));
    capabilities.push(Capability::new(
        "perf event cpu-clock",
        "on-CPU stacks: which function uses the CPU",
        ask::cpu_clock()
            .map(|()| "can be opened on CPU 0".to_owned())
            .map_err(|why| format!("{why}; {}", Rights::own().way_out_for_perf())),
    ));
    capabilities.push(Capability::new(
        "BPF run time statistics",
        "the run time of BPF programs, of whyslow and of others",
        ask::bpf_stats().map(|()| "can be switched on during the window".to_owned()),
    ));
    step(c"reading what the kernel reports");
    capabilities.push(pressure(read(root, "proc/pressure/io")));
    capabilities.push(schedstat(read(root, "proc/schedstat")));
    capabilities.extend(symbols(root));
    capabilities.push(ask::cgroups(&root.join("sys/fs/cgroup")));
    capabilities.extend(own::limits(&limits));
    capabilities.extend(optional(root));
    step(c"measuring CPUs");
    capabilities.extend(speed());
    capabilities
}

fn scheduler(types: &KernelTypes) -> Result<(), Missing> {
    use bpf::sched::{Budget, Sched};
    let mut slot = MaybeUninit::uninit();
    Sched::load(&mut slot, types.layout, Budget::of(1, false))?.begin()
}

/// Whether processes can be named by the ids that the user knows.
fn pid_namespace(scope: Scope) -> Capability {
    let found = match scope {
        Scope::Initial => Ok("the host's own: the ids are those that BPF reports".to_owned()),
        Scope::Own { above } => bpf::pidns::PidNamespace::start(&mut MaybeUninit::uninit(), above)
            .map(|_| format!("one of its own: ids are translated; tasks outside get {OUTSIDE} plus their id on the host"))
            .map_err(|why| why.to_string()),
    };
    Capability::new(
        "pid namespace",
        "the processes that `run` and `attach` follow, and the ids of processes",
        found,
    )
}

/// Every BPF object: loaded and attached once, then released.
fn objects(step: &mut dyn FnMut(&'static CStr)) -> Vec<Capability> {
    let mut capabilities = Vec::new();
    step(c"trying the probes");
    let kernel = Kernel::default();
    let mut object = |what, lost, started: Result<(), Missing>| {
        let found = started.map(|()| "loads and attaches".to_owned()).map_err(|why| why.to_string());
        capabilities.push(Capability::new(what, lost, found));
        step(c"trying the probes");
    };
    object(
        "BPF: task list",
        "which task waits for what: nearly every cause",
        bpf::tasks::Tasks::start(&mut MaybeUninit::uninit()).map(drop),
    );
    object(
        "BPF: own memory limits",
        "memory limits that a container does not show: there each table may have a sixteenth of its rows",
        bpf::own_memory::groups().map(drop),
    );
    object("BPF: scheduler", "run queue waits, sleeps and their stacks", scheduler(kernel.types()));
    let cpus = which::unisolated(Path::new("/"));
    let mut start = Start {
        cpus: &cpus,
        follow: None,
        shared: None,
        watches_packets: false,
        lent: LentMaps::default(),
        kernel: &kernel,
    };
    for entry in registry::ALL {
        object(entry.capability, entry.lost, works(entry, &mut start));
    }
    capabilities
}

/// Whether a probe starts, runs, and returns data.
fn works(entry: &Entry, start: &mut Start<'_>) -> Result<(), Missing> {
    let mut slot = MaybeUninit::uninit();
    let Some(mut probe) = (entry.start)(&mut slot, start)? else { return Ok(()) };
    probe.may_interrupt(start.cpus)?;
    probe.lend(&mut start.lent);
    probe.begin()?;
    // Missing notes that come here are about this very moment: they are dropped.
    Traced::default().take(probe.as_mut(), Duration::ZERO, &mut Vec::new())
}

fn speed() -> [Capability; 2] {
    let (speed, cycles) = crate::speed::ask();
    [
        Capability::new(crate::speed::WHAT, "whether a CPU is slow", speed),
        Capability::new(
            crate::speed::CYCLES,
            "the frequency of busy CPUs; loops of known length measure it as well, except on an emulator",
            cycles,
        ),
    ]
}

fn read(root: &Path, name: &str) -> io::Result<String> {
    let mut text = String::new();
    // No file read here is longer; with a wrong root the read must end.
    std::fs::File::open(root.join(name))?.take(1 << 20).read_to_string(&mut text)?;
    Ok(text)
}

/// (name, bit, what it is for), from include/uapi/linux/capability.h: the numbers never change.
const CAPABILITIES: [(&str, u32); 5] =
    [("CAP_SYS_PTRACE", 19), ("CAP_SYS_ADMIN", 21), ("CAP_SYSLOG", 34), ("CAP_PERFMON", 38), ("CAP_BPF", 39)];

fn privilege(status: io::Result<String>) -> Capability {
    let found = match (status, Rights::own().obstacle()) {
        (Err(err), _) => Err(format!("cannot read /proc/self/status: {err}")),
        (Ok(_), Some(obstacle)) => Err(obstacle),
        (Ok(text), None) => held(&text),
    };
    Capability::new("privilege", "BPF, and the files of other users' processes", found)
}

fn held(status: &str) -> Result<String, String> {
    let mask = status
        .lines()
        .find_map(|l| l.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .ok_or_else(|| "expected CapEff:<hex> in /proc/self/status".to_owned())?;
    let lacking: Vec<_> =
        CAPABILITIES.iter().filter(|(_, bit)| mask >> bit & 1 == 0).map(|(name, _)| *name).collect();
    if lacking.is_empty() {
        return Ok("all capabilities that matter".to_owned());
    }
    Err(format!("lacks {}; run as root", lacking.join(", ")))
}

fn btf(root: &Path) -> Capability {
    let at = root.join("sys/kernel/btf/vmlinux");
    let found = std::fs::File::open(&at)
        .map(|_| "/sys/kernel/btf/vmlinux is readable".to_owned())
        .map_err(|err| format!("cannot read /sys/kernel/btf/vmlinux: {err}; it needs CONFIG_DEBUG_INFO_BTF"));
    Capability::new("kernel types (BTF)", "all BPF probes: only kernel files are left", found)
}

/// "Absent" and "refused" differ: with `psi=0` on the command line the files exist, and reading them may fail.
fn pressure(text: io::Result<String>) -> Capability {
    let found = match text {
        Ok(text) if text.contains("total=") => Ok("/proc/pressure is readable".to_owned()),
        Ok(_) => Err("/proc/pressure/io holds no total".to_owned()),
        Err(err) if err.kind() == io::ErrorKind::NotFound => {
            Err("this kernel has no /proc/pressure; it needs CONFIG_PSI and not psi=0".to_owned())
        }
        Err(err) if err.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Err("/proc/pressure refuses to be read: PSI is off; boot with psi=1".to_owned())
        }
        Err(err) => Err(format!("cannot read /proc/pressure/io: {err}")),
    };
    Capability::new("pressure (PSI)", "a second measurement of waits; no cause depends on it", found)
}

fn schedstat(text: io::Result<String>) -> Capability {
    let found = match text {
        Ok(_) => Ok("/proc/schedstat is readable".to_owned()),
        Err(err) if err.kind() == io::ErrorKind::NotFound => {
            Err("this kernel has no /proc/schedstat; it needs CONFIG_SCHEDSTATS".to_owned())
        }
        Err(err) => Err(format!("cannot read /proc/schedstat: {err}")),
    };
    Capability::new("schedstat", "per-CPU run queue totals; BPF measures the same per task", found)
}

fn symbols(root: &Path) -> [Capability; 2] {
    let seen = std::fs::File::open(root.join("proc/kallsyms"))
        .and_then(|file| kallsyms(BufReader::new(file)))
        .map_err(|err| format!("cannot read /proc/kallsyms: {err}"));
    let functions = match &seen {
        Ok(seen) if seen.addresses => Ok("/proc/kallsyms shows addresses".to_owned()),
        Ok(_) => Err("/proc/kallsyms hides addresses; run as root, or set kernel.kptr_restrict=1".to_owned()),
        Err(err) => Err(err.clone()),
    };
    let data = match seen {
        Ok(seen) if seen.data => Ok("/proc/kallsyms names data".to_owned()),
        Ok(_) => Err("/proc/kallsyms names functions only; data needs CONFIG_KALLSYMS_ALL".to_owned()),
        Err(err) => Err(err),
    };
    [
        Capability::new("kernel function names", "names in kernel stacks", functions),
        Capability::new(
            "kernel data names",
            "names of locks: they are inferred from the tasks that wait",
            data,
        ),
    ]
}

struct Symbols {
    addresses: bool,
    data: bool,
}

fn kallsyms(text: impl io::BufRead) -> io::Result<Symbols> {
    let mut seen = Symbols { addresses: false, data: false };
    for line in text.lines() {
        let line = line?;
        let mut fields = line.split(' ');
        seen.addresses |=
            fields.next().is_some_and(|hex| u64::from_str_radix(hex, 16).is_ok_and(|at| at != 0));
        // Letters of nm: d and b are data. Without KALLSYMS_ALL only text symbols are listed, and a few data symbols that lie in text.
        seen.data |= fields.next() == Some("d") || line.ends_with(" cgroup_mutex");
        if seen.addresses && seen.data {
            break;
        }
    }
    Ok(seen)
}

fn optional(root: &Path) -> [Capability; 3] {
    let there = |name: &str, needs: &str| {
        let at = root.join(name);
        if at.exists() {
            Ok(format!("/{name} is there"))
        } else {
            Err(format!("no /{name}; it needs {needs}"))
        }
    };
    [
        Capability::new(
            "tracefs",
            "",
            there("sys/kernel/tracing/events", "CONFIG_FTRACE and tracefs mounted"),
        ),
        Capability::new("kprobes", "", there("sys/bus/event_source/devices/kprobe", "CONFIG_KPROBES")),
        Capability::new(
            "function tracing (fentry)",
            "",
            there(
                "sys/kernel/tracing/available_filter_functions",
                "CONFIG_DYNAMIC_FTRACE and tracefs mounted",
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_pressure_and_refusing_pressure_are_reported_apart() {
        let absent = pressure(Err(io::ErrorKind::NotFound.into()));
        assert!(!absent.ok && absent.why.contains("has no /proc/pressure"), "{absent:?}");
        let refusing = pressure(Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)));
        assert!(!refusing.ok && refusing.why.contains("psi=1"), "{refusing:?}");
        assert!(pressure(Ok("some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n".into())).ok);
        assert!(!pressure(Ok(String::new())).ok);
    }

    #[test]
    fn lacking_capabilities_are_named() {
        assert!(held("Name:\tx\nCapEff:\t000001ffffffffff\n").is_ok());
        let why = held("CapEff:\t0000004000000000\n").unwrap_err();
        assert!(why.contains("CAP_BPF") && !why.contains("CAP_PERFMON"), "{why}");
        for torn in ["", "CapEff:", "CapEff: zz"] {
            assert!(held(torn).unwrap_err().starts_with("expected CapEff"));
        }
    }

    #[test]
    fn hidden_addresses_and_absent_data_names_are_seen() {
        let shown = kallsyms(&b"ffffffff81000000 T _text\nffffffff82000000 d cgroup_mutex\n"[..]).unwrap();
        assert!(shown.addresses && shown.data);
        let hidden = kallsyms(&b"0000000000000000 T _text\n\ngarbage"[..]).unwrap();
        assert!(!hidden.data && !hidden.addresses);
        assert!(kallsyms(&b"0000000000000000 T _text\n"[..]).is_ok_and(|s| !s.addresses));
    }

    #[test]
    fn an_empty_folder_is_a_host_without_capabilities() {
        let nowhere = Path::new("/nonexistent");
        assert!(!btf(nowhere).ok && symbols(nowhere).iter().chain(&optional(nowhere)).all(|r| !r.ok));
    }

    #[test]
    fn root_doctor_finds_privilege_types_and_the_task_list() {
        let capabilities = doctor(&mut |_| ());
        for what in ["privilege", "kernel types (BTF)", "BPF: task list", "perf event cpu-clock"] {
            let capability = capabilities.iter().find(|r| r.what == what).expect("the capability is listed");
            assert!(capability.ok, "{capability:?}");
        }
    }
}
