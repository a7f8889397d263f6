//! The emulator's command line, and the two files that it gets: without names, so that nothing is left behind.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Hardware, clock};
use crate::kernels::Kernel;
use crate::{Trouble, acpi, child, place};

/// The emulator.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// An empty file system of some GB takes a second.
const MAKE_DISK: Duration = Duration::from_secs(60);

/// The initramfs and the scratch disk: open files without a name. They disappear with the last process that has them open.
pub struct Parts {
    image: File,
    disk: Option<File>,
}

impl Parts {
    /// Write the image, and make the disk if one is wanted.
    pub fn make(what: &str, hardware: &Hardware, image: &[u8]) -> Result<Self, Trouble> {
        // SAFETY: a name that ends in zero. Without CLOEXEC: the emulator opens it by its number.
        let fd = unsafe { libc::memfd_create(c"initramfs".as_ptr(), 0) };
        if fd < 0 {
            return Err(Trouble::new(what, std::io::Error::last_os_error()));
        }
        // SAFETY: it was just opened, and no other code has it.
        let mut file = unsafe { File::from_raw_fd(fd) };
        file.write_all(image).map_err(|error| Trouble::new(what, error))?;
        let disk = hardware.disk_mib.map(|mib| disk(what, mib)).transpose()?;
        Ok(Self { image: file, disk })
    }
}

/// Made completely on the host: a guest would spend minutes of emulation on zeroing tables.
fn disk(what: &str, mib: u64) -> Result<File, Trouble> {
    let trouble =
        |error: std::io::Error| Trouble::new(what, error).or("the scratch disk needs room below target/");
    let file = tempfile::tempfile_in(place::cache("")?).map_err(trouble)?;
    file.set_len(mib.saturating_mul(1 << 20)).map_err(trouble)?;
    // SAFETY: plain fcntl on a descriptor that is open; it clears CLOEXEC, for mke2fs and the emulator open it by number.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
    let mut format = Command::new("mke2fs");
    format.args([
        "-q",
        "-F",
        "-t",
        "ext4",
        "-E",
        "lazy_itable_init=0,lazy_journal_init=0",
        &by_number(&file),
    ]);
    child::output("make a scratch disk", &mut format, MAKE_DISK)?;
    Ok(file)
}

fn by_number(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// The whole command.
pub fn command(
    what: &str,
    kernel: &Kernel,
    hardware: &Hardware,
    share: &Path,
    parts: &Parts,
) -> Result<Command, Trouble> {
    check(what, hardware)?;
    let mut qemu = Command::new(PROGRAM);
    // No network card: its boot program takes seconds.
    qemu.args(["-nodefaults", "-display", "none", "-no-reboot", "-net", "none"]);
    qemu.args(["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]);
    match hardware.icount_shift {
        Some(shift) => {
            qemu.args(["-accel", "tcg,thread=single", "-icount", &format!("shift={shift},sleep=off")]);
        }
        None => {
            qemu.args(["-accel", "tcg,thread=multi"]);
        }
    }
    qemu.args(["-cpu", hardware.cpu_model.as_deref().unwrap_or("max")]);
    qemu.args(["-smp", &hardware.vcpus.to_string(), "-m", &hardware.memory_mib.to_string()]);
    if hardware.numa {
        nodes(&mut qemu, hardware);
    }
    qemu.arg("-kernel").arg(&kernel.image).args(["-initrd", &by_number(&parts.image)]);
    qemu.args(["-append", &words(hardware)]);
    file_system(what, &mut qemu, "host", Path::new("/"), ",readonly=on,multidevs=remap")?;
    file_system(what, &mut qemu, "share", share, "")?;
    if let Some(disk) = &parts.disk {
        qemu.args(["-drive", &format!("file={},format=raw,if=virtio,cache=unsafe", by_number(disk))]);
    }
    for table in &hardware.acpi_tables {
        qemu.arg("-acpitable").arg(format!("file={}", plain(what, &acpi::table(table)?)?));
    }
    qemu.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(qemu)
}

fn check(what: &str, hardware: &Hardware) -> Result<(), Trouble> {
    if hardware.icount_shift.is_some() && hardware.vcpus != 1 {
        return Err(Trouble::new(what, "counted instructions need a machine of one CPU: more of them hang"));
    }
    if hardware.numa && hardware.vcpus != 2 {
        return Err(Trouble::new(what, "two nodes of one CPU each need a machine of two CPUs"));
    }
    Ok(())
}

fn nodes(qemu: &mut Command, hardware: &Hardware) {
    let half = hardware.memory_mib / 2;
    let sizes = [half, hardware.memory_mib.saturating_sub(half)];
    for (node, size) in sizes.iter().enumerate() {
        qemu.args(["-object", &format!("memory-backend-ram,id=node{node},size={size}M")]);
        qemu.args(["-numa", &format!("node,nodeid={node},cpus={node},memdev=node{node}")]);
    }
}

/// The kernel's command line. A boot on a busy host measures its clock wrongly, so the command line gives the counter's frequency. With
/// counted instructions the counter counts instructions, and the measurement is exact.
fn words(hardware: &Hardware) -> String {
    let clock = match hardware.icount_shift {
        Some(_) => String::new(),
        None => format!(" tsc=reliable tsc_early_khz={}", clock::tsc_khz()),
    };
    format!("console=ttyS0 quiet panic=-1 no_timer_check{clock} {}", hardware.append).trim_end().to_owned()
}

fn file_system(what: &str, qemu: &mut Command, tag: &str, path: &Path, options: &str) -> Result<(), Trouble> {
    let path = plain(what, path)?;
    qemu.args(["-fsdev", &format!("local,id={tag},path={path},security_model=none{options}")]);
    qemu.args(["-device", &format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}")]);
    Ok(())
}

/// A path in an option: a comma would end it.
fn plain<'a>(what: &str, path: &'a Path) -> Result<&'a str, Trouble> {
    path.to_str()
        .filter(|text| !text.contains(','))
        .ok_or_else(|| Trouble::new(what, format!("{}: a comma, or no text, in the path", path.display())))
}
