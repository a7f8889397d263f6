//! One guest: boot it, run one command in it, remove it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;
use whyslow_faults::host::Calm;

use crate::child::{Owned, Waited};
use crate::kernels::Kernel;
use crate::orders::{self, Orders, Outcome};
use crate::{Trouble, child, image, module, place};

mod clock;
mod console;
mod qemu;

use console::Console;

/// The hardware of the guest.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hardware {
    /// CPUs.
    pub vcpus: u32,
    /// Memory.
    pub memory_mib: u32,
    /// A CPU model that QEMU knows; otherwise the largest that emulation supports. acpi-cpufreq refuses that one; of the models that it
    /// accepts, only Intel's (Skylake-Server) keep the counter as the clock.
    pub cpu_model: Option<String>,
    /// Time is the count of instructions, each 2^shift ns. One CPU only: with more the guest hangs. An idle CPU jumps to its next timer, so
    /// the first read of a file of the host may take seconds of the guest's clock.
    pub icount_shift: Option<u8>,
    /// Two nodes of one CPU each.
    pub numa: bool,
    /// Tables to add to the machine's own: compiled tables, or sources by their names in lab/acpi ("io.dsl").
    pub acpi_tables: Vec<PathBuf>,
    /// An ext4 disk of that size in the place of /var/tmp.
    pub disk_mib: Option<u64>,
    /// The old cgroup hierarchies.
    pub cgroup_v1: bool,
    /// More words for the kernel's command line.
    pub append: String,
}

impl Default for Hardware {
    fn default() -> Self {
        Self {
            vcpus: 2,
            memory_mib: 2048,
            cpu_model: None,
            icount_shift: None,
            numa: false,
            acpi_tables: Vec::new(),
            disk_mib: None,
            cgroup_v1: false,
            append: String::new(),
        }
    }
}

/// If other processes use more than this share of the CPUs, timings in a guest prove nothing: its timers come from a thread of the emulator
/// that waits for a CPU like any other. On an idle host others use 0 %; with 16 % one in ten slowed CPUs was not slow while it was
/// measured.
const CROWDED: f64 = 0.05;
/// The emulator's nice value: other work on the host must not delay the guest's timers.
const FIRST: libc::c_int = -10;

/// The kernel's words for a breakpoint of its own that it has already removed.
const STALE_BREAKPOINT: &str = "Oops: int3:";

/// The result of a guest.
#[derive(Debug, Clone)]
pub struct Ran {
    /// How the command ended, or why it did not.
    pub status: Ended,
    /// Output of the console: the kernel's, and the command's.
    pub console: String,
    /// Lines in which the kernel reports an error of its own, and the lab's complaint about its clock.
    pub complaints: Vec<String>,
    /// Seconds on the host's clock, from the start of the emulator to its end.
    pub seconds: f64,
    /// Seconds on the guest's clock since its boot, at the end of the command.
    pub guest_seconds: f64,
    /// Guest seconds per second of the host while the command ran; `None` if it was too short to measure.
    pub clock_ratio: Option<f64>,
    /// Other processes used much of the host's CPUs meanwhile, or the host had less CPU time than it believes.
    pub crowded: Option<String>,
}

impl Ran {
    /// Whether the emulator killed the guest. Then nothing was tested: start again with a new share.
    ///
    /// A kernel that switches a static key or attaches a probe stores a breakpoint first. Under QEMU (seen with 7.2 and 10.0) another CPU
    /// may meet the breakpoint long after its removal, and a 6.12 dies of it. A busier host makes it more frequent; it is impossible with
    /// one CPU.
    pub fn emulator_broke(&self) -> bool {
        self.complaints.iter().any(|line| line.contains(STALE_BREAKPOINT))
    }
}

/// How a guest ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The command ended with that status, and the guest powered off properly.
    Exited(i32),
    /// The limit was reached first.
    TimedOut,
    /// The guest was gone without an answer: a panic, or a failure of the emulator.
    Died(String),
}

/// Boot `kernel`, run `command` with `share` as its /mnt, wait until the guest is off.
///
/// The host's root is the guest's root, read-only; /tmp, /run and /var/tmp are the guest's own, and empty.
pub fn run(
    kernel: &Kernel,
    hardware: &Hardware,
    share: &Path,
    command: &[OsString],
    limit: Duration,
) -> Result<Ran, Trouble> {
    let what = format!("boot Linux {}", kernel.release);
    give_orders(kernel, hardware, share, command).map_err(|error| Trouble::new(&what, error))?;
    let parts = qemu::Parts::make(&what, hardware, &image::build(kernel, hardware.disk_mib.is_some())?)?;
    let began = Instant::now();
    let io = |error| Trouble::new(&what, error);
    let (calm, used) = (Calm::watch(None).map_err(io)?, child::used());
    let mut guest = Owned::spawn(first_in_line(&mut qemu::command(&what, kernel, hardware, share, &parts)?))
        .map_err(|error| {
            Trouble::new(&what, format!("{}: {error}", qemu::PROGRAM)).or("install it: make lab-setup")
        })?;
    let console = Console::read(guest.child());
    let waited = guest.wait(limit).map_err(|error| Trouble::new(&what, error))?;
    drop(guest);
    let used = child::used().saturating_sub(used);
    let crowded = calm.crowded(None, used, CROWDED).map_err(io)?;
    let seconds = began.elapsed().as_secs_f64();
    let said = console.finish();
    let dir = share.join(orders::DIR);
    fs::write(dir.join(orders::CONSOLE), &said.text).map_err(|error| Trouble::new(&what, error))?;
    let outcome = fs::read(dir.join(orders::OUTCOME))
        .ok()
        .and_then(|text| serde_json::from_slice::<Outcome>(&text).ok());
    let status = match (waited, outcome) {
        (Waited::Interrupted, _) => return Err(Trouble::new(&what, "interrupted")),
        (_, Some(Outcome { status })) => Ended::Exited(status),
        (Waited::TimedOut, None) => Ended::TimedOut,
        (Waited::Ended(_), None) => Ended::Died(said.last_words()),
    };
    let clock_ratio = said.clock_ratio();
    let mut complaints = console::complaints(&said.text);
    complaints.extend(clock::complaint(clock_ratio).filter(|_| hardware.icount_shift.is_none()));
    Ok(Ran {
        status,
        complaints,
        seconds,
        guest_seconds: said.guest_seconds(),
        clock_ratio,
        crowded,
        console: said.text,
    })
}

/// Give the emulator a high priority; where that is not allowed, the default.
fn first_in_line(qemu: &mut Command) -> &mut Command {
    // SAFETY: setpriority is async-signal-safe and is given plain numbers.
    unsafe {
        qemu.pre_exec(|| {
            libc::setpriority(libc::PRIO_PROCESS, 0, FIRST);
            Ok(())
        })
    }
}

fn give_orders(
    kernel: &Kernel,
    hardware: &Hardware,
    share: &Path,
    command: &[OsString],
) -> std::io::Result<()> {
    let io = |trouble: Trouble| std::io::Error::other(trouble.to_string());
    let project = place::project().map_err(io)?;
    let here = std::env::current_dir()?;
    let orders = Orders {
        command: command.iter().map(|word| word.as_bytes().to_vec()).collect(),
        hostname: hostname()?,
        // A folder outside the project may be hidden in the guest.
        directory: if here.starts_with(&project) { here } else { project.clone() },
        keep: vec![project, kernel.modules.clone()],
        modules: kernel.modules.clone(),
        lab: place::lab().map_err(io)?,
        mend: (hardware.vcpus > 1).then(|| mend(kernel)).flatten(),
        disk: hardware.disk_mib.is_some(),
        cgroup_v1: hardware.cgroup_v1,
    };
    let dir = share.join(orders::DIR);
    fs::create_dir_all(&dir)?;
    let _ = fs::remove_file(dir.join(orders::OUTCOME));
    fs::write(dir.join(orders::ORDERS), serde_json::to_vec(&orders)?)
}

/// The module that lets the kernel survive `Ran::emulator_broke`, if it can be built; without it the guest dies now and then.
fn mend(kernel: &Kernel) -> Option<PathBuf> {
    let sources = place::project().ok()?.join("lab/mend");
    module::build_from(&sources, kernel, "mend").inspect_err(|trouble| eprintln!("lab: {trouble}")).ok()
}

/// Another name for each guest: no test may depend on the name.
fn hostname() -> std::io::Result<String> {
    let drawn = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Ok(format!("h{}", drawn.split('-').next().unwrap_or_default()))
}
