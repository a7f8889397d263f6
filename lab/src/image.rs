//! The initramfs of a guest: this binary as its /init, and the modules that it needs to mount the host's root.

use std::path::Path;
use std::{env, fs};

use crate::Trouble;
use crate::guest_modules::{self, Index};
use crate::kernels::Kernel;

mod newc;

/// In the image: the modules in loading order, one name per line.
pub const ORDER: &str = "modules/order";
/// In the image: where the host's root and the share are mounted at first.
pub const HOST: &str = "host";
/// ... and the share.
pub const SHARE: &str = "share";
/// ... and directories of the host that a tmpfs would hide.
pub const KEEP: &str = "keep";

/// Modules for a root and a share over virtio.
const ALWAYS: [&str; 3] = ["virtio_pci", "9pnet_virtio", "9p"];
/// Modules for a scratch disk. ext4 requests its checksum modules by name when no loader is available yet.
const DISK: [&str; 3] = ["virtio_blk", "crypto-crc32c", "ext4"];

/// The image for that kernel. Not compressed: under emulation unpacking costs more than it saves.
pub fn build(kernel: &Kernel, disk: bool) -> Result<Vec<u8>, Trouble> {
    let what = format!("build an initramfs for Linux {}", kernel.release);
    let index = Index::read(&kernel.modules).map_err(|reason| Trouble::new(&what, reason))?;
    let mut archive = newc::Archive::default();
    for dir in ["dev", "proc", "sys", "modules", HOST, SHARE, KEEP] {
        archive.directory(dir);
    }
    let mut order = Vec::new();
    for wanted in ALWAYS.iter().chain(if disk { &DISK[..] } else { &[] }) {
        for name in index.resolve(wanted).map_err(|reason| Trouble::new(&what, reason))? {
            if !order.contains(&name) {
                order.push(name);
            }
        }
    }
    for name in &order {
        let file = index.file(name).ok_or_else(|| Trouble::new(&what, format!("{name} has no file")))?;
        let bytes = guest_modules::bytes(&file).map_err(|error| Trouble::new(&what, error))?;
        archive.file(&format!("modules/{name}.ko"), 0o644, &bytes);
    }
    archive.file(ORDER, 0o644, order.join("\n").as_bytes());
    archive.file("init", 0o755, &own_binary().map_err(|reason| Trouble::new(&what, reason))?);
    Ok(archive.finish())
}

fn own_binary() -> Result<Vec<u8>, String> {
    let path = env::current_exe().map_err(|error| error.to_string())?;
    fs::read(&path).map_err(|error| format!("{}: {error}", Path::new(&path).display()))
}
