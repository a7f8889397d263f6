//! Paths: the project's directory, the lab's files in it (below target/lab), and the fetched files.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use crate::Trouble;

/// Number of failed runs that are kept for debugging.
const KEPT: usize = 10;

/// The project's directory: the nearest one above the binary, or above the working directory, that contains a lab.
pub fn project() -> Result<PathBuf, Trouble> {
    let what = "find the project's directory";
    let exe = lab()?;
    let here = env::current_dir().and_then(fs::canonicalize).map_err(|error| Trouble::new(what, error))?;
    let is_it = |dir: &&Path| dir.join("lab/Cargo.toml").is_file() && dir.join("Cargo.lock").is_file();
    exe.ancestors().chain(here.ancestors()).find(is_it).map(Path::to_path_buf).ok_or_else(|| {
        Trouble::new(what, "no lab/Cargo.toml above the binary nor above the working directory")
            .or("run the binary that make lab builds")
    })
}

/// A directory of the lab, made if it is not there.
pub fn cache(name: &str) -> Result<PathBuf, Trouble> {
    let dir = project()?.join("target/lab").join(name);
    fs::create_dir_all(&dir).map_err(|error| Trouble::new(format!("make {}", dir.display()), error))?;
    Ok(dir)
}

/// A directory for fetched files, which outlives a clone: in ~/.cache/whyslow-lab, where that can be made.
pub fn fetched(name: &str) -> Result<PathBuf, Trouble> {
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let bases = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).into_iter().chain(home);
    let dirs = bases.filter(|base| base.is_absolute()).map(|base| base.join("whyslow-lab").join(name));
    match dirs.into_iter().find(|dir| fs::create_dir_all(dir).is_ok()) {
        Some(dir) => Ok(dir),
        None => cache(name),
    }
}

/// This binary: the guest sees it under the same name.
pub fn lab() -> Result<PathBuf, Trouble> {
    env::current_exe()
        .and_then(fs::canonicalize)
        .map_err(|error| Trouble::new("find the lab's binary", error))
}

/// The program under test: the one that was built beside this one.
pub fn whyslow() -> Result<PathBuf, Trouble> {
    let beside = lab()?.with_file_name("whyslow");
    if beside.is_file() {
        return Ok(beside);
    }
    Err(Trouble::new("find whyslow", format!("there is no {}", beside.display())).or("run make build"))
}

/// The directory of one run in a guest: its share. Removed when it is dropped, unless `keep` was called.
pub struct Run {
    dir: PathBuf,
    kept: bool,
}

impl Run {
    /// A new, empty one.
    pub fn new() -> Result<Self, Trouble> {
        let runs = cache("runs")?;
        let trouble =
            |error: io::Error| Trouble::new(format!("make a directory in {}", runs.display()), error);
        let numbers = numbers(&runs);
        for (_, old) in numbers.iter().rev().skip(KEPT.saturating_sub(1)) {
            fs::remove_dir_all(old).map_err(trouble)?;
        }
        let mut number = numbers.last().map_or(0, |(number, _)| *number);
        loop {
            number = number.saturating_add(1);
            let dir = runs.join(number.to_string());
            match fs::create_dir(&dir) {
                Ok(()) => return Ok(Self { dir, kept: false }),
                // Another driver was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(trouble(error)),
            }
        }
    }

    /// What the guest sees as /mnt.
    pub fn share(&self) -> &Path {
        &self.dir
    }

    /// Keep the directory for debugging.
    pub fn keep(&mut self) -> &Path {
        self.kept = true;
        &self.dir
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.kept {
            // An error is ignored: later runs remove the directory.
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// The existing runs, oldest first.
fn numbers(runs: &Path) -> Vec<(u64, PathBuf)> {
    let entries = fs::read_dir(runs).into_iter().flatten().flatten();
    let mut found: Vec<_> =
        entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path()))).collect();
    found.sort();
    found
}
