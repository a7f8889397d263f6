//! The stamp of an unpacked kernel, written last: a list of its files with sizes. If the stamp or a listed file is missing, the directory
//! is incomplete.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::Kernel;

const NAME: &str = "lab-stamp.json";

/// What an unpacked kernel consists of.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stamp {
    release: String,
    headers: bool,
    /// Essential files and their sizes.
    files: Vec<(PathBuf, u64)>,
}

impl Stamp {
    /// Record what was unpacked.
    pub fn write(root: &Path, release: &str) -> io::Result<Self> {
        let build = PathBuf::from(format!("usr/src/linux-headers-{release}/Module.symvers"));
        let headers = root.join(&build).is_file();
        let modules = PathBuf::from(format!("lib/modules/{release}"));
        let mut names = vec![PathBuf::from(format!("boot/vmlinuz-{release}"))];
        names.extend(["modules.dep", "modules.alias", "modules.builtin"].map(|name| modules.join(name)));
        names.extend(headers.then_some(build));
        let size = |name: PathBuf| Ok((name.clone(), fs::metadata(root.join(name))?.len()));
        let files = names.into_iter().map(size).collect::<io::Result<_>>()?;
        let stamp = Self { release: release.to_owned(), headers, files };
        fs::write(root.join(NAME), serde_json::to_vec(&stamp)?)?;
        Ok(stamp)
    }

    /// The stamp of a directory whose files are all there.
    pub fn read(root: &Path) -> Result<Self, String> {
        let text = fs::read(root.join(NAME)).map_err(|error| format!("{NAME}: {error}"))?;
        let stamp: Self = serde_json::from_slice(&text).map_err(|error| format!("{NAME}: {error}"))?;
        for (name, size) in &stamp.files {
            let found =
                fs::metadata(root.join(name)).map_err(|error| format!("{}: {error}", name.display()))?;
            if found.len() != *size {
                return Err(format!("{} has {} bytes, had {size}", name.display(), found.len()));
            }
        }
        Ok(stamp)
    }

    /// The kernel that is unpacked in `root`.
    pub fn kernel(&self, root: &Path, label: &str) -> Kernel {
        let release = &self.release;
        Kernel {
            label: label.to_owned(),
            release: release.clone(),
            image: root.join(format!("boot/vmlinuz-{release}")),
            modules: root.join(format!("lib/modules/{release}")),
            headers: self.headers.then(|| root.join(format!("usr/src/linux-headers-{release}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_directory_is_reported_from_a_whole_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let modules = dir.path().join("lib/modules/6.1.0-1-amd64");
        fs::create_dir_all(&modules).expect("directories");
        fs::create_dir_all(dir.path().join("boot")).expect("directories");
        let image = dir.path().join("boot/vmlinuz-6.1.0-1-amd64");
        for file in [
            &image,
            &modules.join("modules.dep"),
            &modules.join("modules.alias"),
            &modules.join("modules.builtin"),
        ] {
            fs::write(file, "text").expect("a file");
        }
        assert!(Stamp::read(dir.path()).is_err_and(|reason| reason.contains(NAME)));
        Stamp::write(dir.path(), "6.1.0-1-amd64").expect("a stamp");
        let kernel = Stamp::read(dir.path()).expect("whole").kernel(dir.path(), "6.1");
        assert_eq!((kernel.image.as_path(), kernel.headers), (image.as_path(), None));
        fs::write(&image, "te").expect("a file");
        assert!(Stamp::read(dir.path()).is_err_and(|reason| reason.contains("has 2 bytes, had 4")));
        fs::remove_file(&image).expect("a file");
        assert!(Stamp::read(dir.path()).is_err());
    }
}
