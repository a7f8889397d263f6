//! The mounts of the guest. Until `root` is done, the host's root is /host of the initramfs.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::image::{HOST, KEEP, SHARE};
use crate::orders::{self, Orders};

/// Packets of 256 KiB: with the default of 8 a program of some MB takes seconds to start.
const TRANSPORT: &str = "trans=virtio,version=9p2000.L,msize=262144";
/// The hierarchies of cgroup v1, as on older hosts. A kernel that lacks one works without it.
const HIERARCHIES: [&str; 8] =
    ["memory", "cpu,cpuacct", "cpuset", "blkio", "pids", "freezer", "devices", "net_cls,net_prio"];
/// Controllers that a service manager delegates in cgroup v2.
const CONTROLLERS: [&str; 5] = ["cpu", "memory", "io", "pids", "cpuset"];

/// Mounts that all later steps need.
pub fn first() -> io::Result<()> {
    mount("proc", "/proc", "proc", 0, "")?;
    mount("sysfs", "/sys", "sysfs", 0, "")?;
    mount("devtmpfs", "/dev", "devtmpfs", 0, "")
}

/// The host's root and the share; the orders are in the share.
pub fn shared() -> io::Result<Orders> {
    // The host's files do not change while a guest runs, so that they need be fetched only once.
    let cached = format!("{TRANSPORT},cache=loose");
    mount("host", in_image(HOST), "9p", libc::MS_RDONLY, &cached)?;
    mount("share", in_image(SHARE), "9p", 0, TRANSPORT)?;
    let text = fs::read(in_image(SHARE).join(orders::DIR).join(orders::ORDERS))?;
    Ok(serde_json::from_slice(&text)?)
}

/// Complete the host's root with what is the guest's own, and make it the root.
pub fn root(orders: &Orders) -> io::Result<()> {
    let host = in_image(HOST);
    let kept = keep(orders, &host)?;
    for dir in ["proc", "sys", "dev"] {
        move_mount(&Path::new("/").join(dir), &host.join(dir))?;
    }
    tmpfs(&host.join("tmp"), "mode=1777")?;
    tmpfs(&host.join("run"), "mode=755")?;
    if orders.disk {
        mount("/host/dev/vda", host.join("var/tmp"), "ext4", 0, "")?;
        fs::set_permissions(host.join("var/tmp"), fs::Permissions::from_mode(0o1777))?;
    } else {
        tmpfs(&host.join("var/tmp"), "mode=1777")?;
    }
    for (from, to) in kept {
        let to = host.join(to.strip_prefix("/").unwrap_or(&to));
        fs::create_dir_all(&to)?;
        move_mount(&from, &to)?;
    }
    move_mount(&in_image(SHARE), &host.join(orders::SHARE.trim_start_matches('/')))?;
    std::env::set_current_dir(&host)?;
    // The kernel's threads share this process's root: they find our module loader there.
    move_mount(Path::new("."), Path::new("/"))?;
    std::os::unix::fs::chroot(".")?;
    std::env::set_current_dir("/")?;
    kernel_files(orders.cgroup_v1)
}

/// Bind directories that a tmpfs is about to hide. Returns where they are now, and where they belong.
fn keep(orders: &Orders, host: &Path) -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let hidden = |dir: &&PathBuf| ["/tmp", "/run", "/var/tmp"].iter().any(|memory| dir.starts_with(memory));
    let mut kept = Vec::new();
    for (number, dir) in orders.keep.iter().filter(hidden).enumerate() {
        let at = in_image(KEEP).join(number.to_string());
        fs::create_dir(&at)?;
        let from = host.join(dir.strip_prefix("/").unwrap_or(dir));
        mount(from, &at, "", libc::MS_BIND, "")?;
        kept.push((at, dir.clone()));
    }
    Ok(kept)
}

fn kernel_files(cgroup_v1: bool) -> io::Result<()> {
    for (name, number) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        symlink(format!("/proc/self/fd{number}"), Path::new("/dev").join(name))?;
    }
    for dir in ["/dev/pts", "/dev/shm"] {
        fs::create_dir_all(dir)?;
    }
    mount("devpts", "/dev/pts", "devpts", 0, "mode=620,ptmxmode=666")?;
    tmpfs(Path::new("/dev/shm"), "mode=1777")?;
    mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, "")?;
    mount("debugfs", "/sys/kernel/debug", "debugfs", 0, "")?;
    mount("bpf", "/sys/fs/bpf", "bpf", 0, "")?;
    mount("securityfs", "/sys/kernel/security", "securityfs", 0, "")?;
    if cgroup_v1 { old_cgroups() } else { new_cgroups() }
}

fn new_cgroups() -> io::Result<()> {
    mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, "")?;
    let offered = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers")?;
    let have = CONTROLLERS.iter().filter(|name| offered.split_whitespace().any(|word| word == **name));
    let words: Vec<String> = have.map(|name| format!("+{name}")).collect();
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", words.join(" "))
}

fn old_cgroups() -> io::Result<()> {
    let top = Path::new("/sys/fs/cgroup");
    tmpfs(top, "mode=755")?;
    for controllers in HIERARCHIES {
        let dir = top.join(controllers);
        fs::create_dir(&dir)?;
        if mount("cgroup", &dir, "cgroup", 0, controllers).is_err() {
            println!("lab: this kernel has no cgroup v1 of {controllers}");
            fs::remove_dir(&dir)?;
        }
    }
    fs::create_dir(top.join("unified"))?;
    mount("cgroup2", top.join("unified"), "cgroup2", 0, "")
}

fn in_image(name: &str) -> PathBuf {
    Path::new("/").join(name)
}

fn tmpfs(at: &Path, options: &str) -> io::Result<()> {
    mount("tmpfs", at, "tmpfs", 0, options)
}

fn move_mount(from: &Path, to: &Path) -> io::Result<()> {
    mount(from, to, "", libc::MS_MOVE, "")
}

fn mount(
    what: impl AsRef<Path>,
    at: impl AsRef<Path>,
    kind: &str,
    flags: libc::c_ulong,
    options: &str,
) -> io::Result<()> {
    let (what, at) = (what.as_ref(), at.as_ref());
    let text = |bytes: &[u8]| CString::new(bytes);
    let (source, target) = (text(what.as_os_str().as_bytes())?, text(at.as_os_str().as_bytes())?);
    let (kind, options) = (text(kind.as_bytes())?, text(options.as_bytes())?);
    // SAFETY: four strings that end in zero and live until the call returns.
    let done = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
    };
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(io::Error::other(format!("cannot mount {} on {}: {error}", what.display(), at.display())))
}
