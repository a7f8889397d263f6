//! Things that are made once and kept: the name contains a hash of the inputs, and a thing is put in place only when it is complete.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io, process};

use tempfile::TempDir;

/// How many versions of one thing are kept: sources change, names are drawn.
const KEPT: usize = 12;
/// Prefix of incomplete entries; the pid of the process that works on it follows.
const PART: &str = "part-";

/// A name for the product of these files' contents and these words.
pub fn name_of(files: &[PathBuf], words: &[&str]) -> io::Result<String> {
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    for file in files {
        file.file_name().hash(&mut hasher);
        fs::read(file)?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// The directory `name` in `shelf`: the existing one, or a new one that `fill` completes before it is put there.
pub fn directory<E: From<io::Error>>(
    shelf: &Path,
    name: &str,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<PathBuf, E> {
    let place = shelf.join(name);
    if place.is_dir() {
        return Ok(place);
    }
    trim(shelf)?;
    let work = workroom(shelf)?;
    let made = work.path().join("made");
    fs::create_dir(&made)?;
    fill(&made)?;
    match fs::rename(&made, &place) {
        // Another driver was faster: it made the same.
        Err(_) if place.is_dir() => {}
        renamed => renamed?,
    }
    Ok(place)
}

/// A directory to work in, on the shelf's file system; removed when it is dropped. Directories of killed drivers are removed here.
pub fn workroom(shelf: &Path) -> io::Result<TempDir> {
    let owner =
        |path: &Path| path.file_name()?.to_str()?.strip_prefix(PART)?.split('-').next()?.parse::<u32>().ok();
    for old in fs::read_dir(shelf)?.flatten().map(|entry| entry.path()) {
        if owner(&old).is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            fs::remove_dir_all(old)?;
        }
    }
    TempDir::with_prefix_in(format!("{PART}{}-", process::id()), shelf)
}

/// Remove the oldest entries, so that one more fits.
fn trim(shelf: &Path) -> io::Result<()> {
    let whole =
        |path: &PathBuf| path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with(PART));
    let dirs = fs::read_dir(shelf)?.flatten().map(|entry| entry.path()).filter(whole);
    let mut dirs: Vec<(SystemTime, PathBuf)> =
        dirs.filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path))).collect();
    dirs.sort();
    dirs.iter().rev().skip(KEPT.saturating_sub(1)).try_for_each(|(_, old)| fs::remove_dir_all(old))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_directory_is_not_made_again_and_a_failed_one_leaves_nothing() {
        let shelf = tempfile::tempdir().expect("a directory");
        let make = |name: &str, text: &str| {
            directory(shelf.path(), name, |dir| fs::write(dir.join("file"), text)).expect("a directory")
        };
        let first = make("a", "one");
        assert_eq!(make("a", "two"), first);
        assert_eq!(fs::read_to_string(first.join("file")).expect("a file"), "one");
        let failed: io::Result<_> = directory(shelf.path(), "b", |_| Err(io::Error::other("no")));
        assert!(failed.is_err());
        for number in 0..2 * KEPT {
            make(&number.to_string(), "");
        }
        assert_eq!(fs::read_dir(shelf.path()).expect("entries").count(), KEPT);
    }

    #[test]
    fn workroom_of_a_killed_driver_is_removed() {
        let shelf = tempfile::tempdir().expect("a directory");
        // Above the highest pid that a kernel gives.
        let dead = shelf.path().join(format!("{PART}4194305-x"));
        let alive = shelf.path().join(format!("{PART}{}-x", process::id()));
        fs::create_dir(&dead).expect("a directory");
        fs::create_dir(&alive).expect("a directory");
        let room = workroom(shelf.path()).expect("a directory");
        assert!(!dead.exists() && alive.exists() && room.path().exists());
    }

    #[test]
    fn a_name_tells_contents_and_words_apart() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("x.c");
        fs::write(&file, "one").expect("a file");
        let name = |word: &str| name_of(std::slice::from_ref(&file), &[word]).expect("a name");
        let before = name("6.1");
        assert_eq!(before, name("6.1"));
        assert_ne!(before, name("6.12"));
        fs::write(&file, "two").expect("a file");
        assert_ne!(before, name("6.1"));
    }
}
