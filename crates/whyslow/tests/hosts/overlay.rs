//! Where the host of a case is. A file `base` in its folder names a host of `tests/bases`: its files are there, and of the case's own
//! `host` those that are different or more.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// The host of a case: a folder, or a packed recording.
pub struct Host {
    path: PathBuf,
    /// Both one over the other, until nobody needs them.
    _made: Option<tempfile::TempDir>,
}

impl Deref for Host {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

/// That of the case in the folder `case`.
pub fn host(case: &Path) -> Host {
    let packed = case.join("host.why");
    if packed.exists() {
        return Host { path: packed, _made: None };
    }
    let own = case.join("host");
    let Some(base) = base(case) else { return Host { path: own, _made: None } };
    let made = tempfile::tempdir().unwrap();
    let path = made.path().join("host");
    copy(&base, &path);
    copy(&own, &path);
    Host { path, _made: Some(made) }
}

/// The host that a case names.
pub fn base(case: &Path) -> Option<PathBuf> {
    let name = fs::read_to_string(case.join("base")).ok()?;
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bases").join(name.trim()).join("host");
    assert!(base.is_dir(), "{}: there is no base {name}", case.display());
    Some(base)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        match path.is_dir() {
            true => copy(&path, &target),
            false => fs::write(target, fs::read(&path).unwrap()).unwrap(),
        }
    }
}
