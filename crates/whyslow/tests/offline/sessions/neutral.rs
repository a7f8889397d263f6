//! The recordings of sessions are examples: they contain nothing of the machine on which they were made.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;

use whyslow::store;

use crate::sessions::print::place;

/// The host of all examples.
const HOST: &str = "web-1";
/// Cgroups that an example may have.
const GROUPS: [&str; 4] =
    ["/", "/system.slice", "/system.slice/checkout.service", "/system.slice/render.service"];
/// The kernel is that of a guest of the lab.
const KERNEL: &str = "+deb";
/// Names of a build, of a test, of a user's folder.
const STRANGE: [&str; 4] = ["whyslow-test-", "cargo", "/root/", "/home/"];
/// Largest size of a recording: it is a part of the source.
const LARGEST: u64 = 100_000;

fn recordings() -> Vec<PathBuf> {
    let entries = fs::read_dir(place()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|end| end == "why")).collect()
}

/// Its members, with their names.
fn unpacked(file: &PathBuf) -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(zstd::Decoder::new(fs::File::open(file).unwrap()).unwrap());
    let member = |entry: std::io::Result<tar::Entry<'_, zstd::Decoder<'_, _>>>| {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (entry.path().unwrap().display().to_string(), String::from_utf8_lossy(&bytes).into_owned())
    };
    archive.entries().unwrap().map(member).collect()
}

#[test]
fn recordings_of_sessions_hold_nothing_of_another_machine() {
    let all = recordings();
    assert!(all.len() >= 3, "{all:?}");
    for file in all {
        let size = fs::metadata(&file).unwrap().len();
        assert!(size < LARGEST, "{}: {size} bytes", file.display());
        let recording = store::open(&file).unwrap();
        assert_eq!(recording.meta.host, HOST, "{}", file.display());
        assert!(recording.meta.kernel.contains(KERNEL), "{}: {}", file.display(), recording.meta.kernel);
        let groups = recording.tables.cgroups.iter().flatten().map(|group| group.path.as_str());
        let strangers: Vec<&str> = groups.filter(|path| !GROUPS.contains(path)).collect();
        assert!(strangers.is_empty(), "{}: cgroups {strangers:?}", file.display());
        for (name, text) in unpacked(&file) {
            let strange = STRANGE.iter().find(|word| name.contains(*word) || text.contains(*word));
            assert_eq!(strange, None, "{}: {name}", file.display());
        }
    }
}
