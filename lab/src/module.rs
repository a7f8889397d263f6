//! Builds the fault module, lab/module, against a kernel's headers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use crate::kernels::Kernel;
use crate::{Trouble, cache, child, place};

/// Its name, unless a name is drawn.
pub const NAME: &str = "folio";
/// The compiler of the kernels' distribution; it builds for all of them, also for the older one.
const COMPILER: &str = "gcc-12";
/// Some seconds on an idle host.
const BUILD: Duration = Duration::from_secs(300);

/// The module's file, named `name`: from the cache, or built.
pub fn build(kernel: &Kernel, name: &str) -> Result<PathBuf, Trouble> {
    build_from(&place::project()?.join("lab/module"), kernel, name)
}

/// The same for any directory whose Makefile knows KDIR, OUT, MODNAME and KCC.
pub fn build_from(sources: &Path, kernel: &Kernel, name: &str) -> Result<PathBuf, Trouble> {
    let what = format!("build the module {name} for Linux {}", kernel.release);
    let trouble = |error: io::Error| Trouble::new(&what, error);
    let headers =
        kernel.headers.as_ref().ok_or_else(|| Trouble::new(&what, "its headers could not be had"))?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
        return Err(Trouble::new(&what, "a module's name has letters only"));
    }
    let version = cache::name_of(&files(sources).map_err(trouble)?, &[name, COMPILER]).map_err(trouble)?;
    let shelf = place::cache(&format!("modules/{}", kernel.release))?;
    let file = format!("{name}.ko");
    let built = cache::directory(&shelf, &version, |dir| {
        let work = cache::workroom(&shelf).map_err(trouble)?;
        let mut make = Command::new("make");
        make.arg("-C").arg(sources).args([&format!("MODNAME={name}"), &format!("KCC={COMPILER}")]);
        make.arg(format!("KDIR={}", headers.display())).arg(format!("OUT={}", work.path().display()));
        // A make that runs this one must not pass on its flags and its jobs.
        make.env_remove("MAKEFLAGS").env_remove("MFLAGS").env_remove("MAKELEVEL");
        child::output(&what, &mut make, BUILD).map_err(|trouble| {
            trouble.or("its sources are in lab/module; make proof-setup installs what builds it")
        })?;
        fs::copy(work.path().join(&file), dir.join(&file)).map_err(trouble)?;
        Ok::<(), Trouble>(())
    })?;
    Ok(built.join(file))
}

/// The sources, in a fixed order.
fn files(sources: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(sources)?.flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    found.sort();
    Ok(found)
}
