//! Kernels of the distribution, unpacked in the cache: fetched once through apt, later used without a network.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fmt, fs, io};

use crate::{Trouble, cache, child, place};

mod apt;
mod known;
mod stamp;
mod text;

use known::Known;
pub use known::{LABELS, is_optional};
use stamp::Stamp;

/// Unpacking or indexing takes seconds; a disk that takes longer than this is stuck.
const UNPACK: Duration = Duration::from_secs(300);

/// A kernel that can be booted.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// "6.1".
    pub label: String,
    /// The release that uname prints.
    pub release: String,
    /// vmlinuz.
    pub image: PathBuf,
    /// The directory with modules.dep and kernel/.
    pub modules: PathBuf,
    /// The headers for building modules, if they were available.
    pub headers: Option<PathBuf>,
}

/// Why a kernel is unavailable: its result is then "not run", never "passed".
#[derive(Debug, Clone)]
pub struct NotHere {
    /// In words.
    pub reason: String,
}

impl fmt::Display for NotHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl From<Trouble> for NotHere {
    fn from(trouble: Trouble) -> Self {
        Self { reason: trouble.to_string() }
    }
}

/// The newest kernel of that version: from the cache, else from the archive.
pub fn fetch(label: &str) -> Result<Kernel, NotHere> {
    let unknown = || NotHere { reason: format!("there is no kernel {label}; known: {}", LABELS.join(", ")) };
    let known = known::called(label).ok_or_else(unknown)?;
    let cache = place::fetched("kernels")?;
    match cached(&cache, known) {
        Some(kernel) => Ok(kernel),
        None => Ok(from_archive(&cache, known)?),
    }
}

/// A complete kernel in the cache. An incomplete one is removed, and the caller fetches it again.
fn cached(cache: &Path, known: &Known) -> Option<Kernel> {
    let dirs = fs::read_dir(cache).ok()?.flatten().map(|entry| entry.path());
    let mut found: Vec<(Vec<u64>, Kernel)> = Vec::new();
    for dir in dirs {
        let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(order) = text::order(&name, known) else { continue };
        match Stamp::read(&dir) {
            Ok(stamp) => found.push((order, stamp.kernel(&dir, known.label))),
            Err(reason) => {
                eprintln!("lab: {name} in the cache is torn ({reason}): it is fetched anew");
                let _ = fs::remove_dir_all(&dir);
            }
        }
    }
    found.into_iter().max_by(|a, b| a.0.cmp(&b.0)).map(|(_, kernel)| kernel)
}

fn from_archive(cache: &Path, known: &Known) -> Result<Kernel, Trouble> {
    let archive = apt::Archive::of(known)?;
    let release = archive.newest(known)?;
    eprintln!("lab: fetches Linux {release}");
    // On the same file system as the cache, so that the whole of it can be renamed into place.
    let what = format!("unpack Linux {release}");
    let trouble = |error: io::Error| Trouble::new(&what, error).or("the lab needs 2 GB in ~/.cache");
    let work = cache::workroom(cache).map_err(trouble)?;
    let root = work.path().join("root");
    for package in archive.download(known, &release, work.path())? {
        let mut unpack = Command::new("dpkg-deb");
        child::output(&what, unpack.arg("-x").arg(&package).arg(&root), UNPACK)?;
        fs::remove_file(&package).map_err(trouble)?;
    }
    relocate(&root, &release).map_err(trouble)?;
    // The archive's packages leave this to their installation.
    let mut depmod = Command::new("depmod");
    child::output(&what, depmod.arg("-b").arg(&root).arg(&release), UNPACK)?;
    let stamp = Stamp::write(&root, &release).map_err(trouble)?;
    let place = cache.join(&release);
    match fs::rename(&root, &place) {
        // Another driver was faster: its copy is as good.
        Err(_) if Stamp::read(&place).is_ok() => {}
        renamed => renamed.map_err(trouble)?,
    }
    Ok(stamp.kernel(&place, known.label))
}

/// Everything where the rest of the lab expects it.
fn relocate(root: &Path, release: &str) -> io::Result<()> {
    // Since Debian 13 modules are in usr/lib, to which lib is a link on a host.
    let merged = root.join("usr/lib/modules");
    if merged.is_dir() {
        fs::create_dir_all(root.join("lib"))?;
        fs::rename(merged, root.join("lib/modules"))?;
    }
    // The headers' Makefile includes another by its installed place; here it is beside it.
    let makefile = root.join(format!("usr/src/linux-headers-{release}/Makefile"));
    if !makefile.exists() {
        return Ok(());
    }
    let text = fs::read_to_string(&makefile)?;
    fs::write(makefile, text.replace("/usr/src/", "$(dir $(lastword $(MAKEFILE_LIST)))../"))
}
