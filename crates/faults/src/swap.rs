//! Swap that belongs to a test: one file or one zram device, removed with the test.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::{host, sys};

/// Name of the swap file in a test's directory.
pub const FILE: &str = "swap";
/// An empty file of this name and a number says that the zram device of that number belongs to the test.
pub const ZRAM_MARK: &str = "zram-";
/// Largest swap of a test.
pub const AT_MOST: u64 = 512 << 20;

const CONTROL: &str = "/sys/class/zram-control";
const PAGE: u64 = 4096;

/// Swap space in use until dropped.
pub struct SwapSpace {
    path: PathBuf,
    zram: Option<u32>,
    mark: PathBuf,
}

impl SwapSpace {
    /// Swap on a file in `dir`.
    pub fn on_file(dir: &Path, size: u64) -> io::Result<Self> {
        let path = dir.join(FILE);
        // Written completely: the kernel refuses swap files with holes.
        host::make_file(&path, size.min(AT_MOST))?;
        let space = SwapSpace { path, zram: None, mark: PathBuf::new() };
        space.begin(size.min(AT_MOST))?;
        Ok(space)
    }

    /// Swap on a new zram device, recorded in `dir`.
    pub fn on_zram(dir: &Path, size: u64) -> io::Result<Self> {
        // Reading hot_add makes a device and returns its number.
        let text = fs::read_to_string(format!("{CONTROL}/hot_add"))?;
        let id: u32 = text.trim().parse().map_err(io::Error::other)?;
        let mark = dir.join(format!("{ZRAM_MARK}{id}"));
        let path = PathBuf::from(format!("/dev/zram{id}"));
        let space = SwapSpace { path, zram: Some(id), mark };
        File::create(&space.mark)?;
        fs::write(format!("/sys/block/zram{id}/disksize"), size.min(AT_MOST).to_string())?;
        space.begin(size.min(AT_MOST))?;
        Ok(space)
    }

    /// Whether this kernel can make zram devices.
    #[must_use]
    pub fn has_zram() -> bool {
        Path::new(CONTROL).join("hot_add").exists()
    }

    /// The file or device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The header that mkswap writes (include/linux/swap.h, `union swap_header`), then swapon.
    fn begin(&self, size: u64) -> io::Result<()> {
        let mut page = vec![0_u8; PAGE as usize];
        page[1024..1028].copy_from_slice(&1_u32.to_ne_bytes());
        page[1028..1032].copy_from_slice(&((size / PAGE - 1) as u32).to_ne_bytes());
        page[4086..].copy_from_slice(b"SWAPSPACE2");
        let file = OpenOptions::new().write(true).open(&self.path)?;
        fs::set_permissions(&self.path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        file.write_all_at(&page, 0)?;
        file.sync_all()?;
        sys::swap_on(&self.path).map_err(|err| {
            io::Error::new(err.kind(), format!("cannot swap on {}: {err}", self.path.display()))
        })
    }
}

impl Drop for SwapSpace {
    fn drop(&mut self) {
        let _ = sys::swap_off(&self.path);
        match self.zram {
            Some(id) => remove_zram(id),
            None => drop(fs::remove_file(&self.path)),
        }
        let _ = fs::remove_file(&self.mark);
    }
}

/// Remove a zram device that a test made.
pub fn remove_zram(id: u32) {
    let _ = sys::swap_off(Path::new(&format!("/dev/zram{id}")));
    let _ = fs::write(format!("/sys/block/zram{id}/reset"), "1");
    let _ = fs::write(format!("{CONTROL}/hot_remove"), id.to_string());
}
