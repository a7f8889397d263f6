//! Writer of the archive format that the kernel unpacks as its first root: cpio "newc".
//!
//! Each entry is a header of 110 characters, the name with a zero, the content; name and content padded to four bytes.

const MAGIC: &str = "070701";
const LAST: &str = "TRAILER!!!";
const DIRECTORY: u32 = 0o040_755;
const REGULAR: u32 = 0o100_000;

/// An archive that is being written.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// A directory; its parent was added before.
    pub fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY, &[]);
    }

    /// A file with these permissions.
    pub fn file(&mut self, name: &str, permissions: u32, content: &[u8]) {
        self.entry(name, REGULAR | permissions, content);
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(LAST, 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries = self.entries.saturating_add(1);
        // A module or this binary has a few megabytes; the format ends at 4 GB.
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(name.len().saturating_add(1)).unwrap_or(u32::MAX);
        let (owner, group, links, time) = (0, 0, 1, 0);
        let (major, minor, of_major, of_minor, check) = (0, 0, 0, 0, 0);
        let inode = self.entries;
        self.bytes.extend(MAGIC.bytes());
        for field in
            [inode, mode, owner, group, links, time, size, major, minor, of_major, of_minor, name_size, check]
        {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Entry = (String, u32, Vec<u8>);

    /// What `cpio -t` would see.
    fn list(mut archive: &[u8]) -> Option<Vec<Entry>> {
        let mut found = Vec::new();
        let total = archive.len();
        loop {
            let field =
                |at: usize| u32::from_str_radix(std::str::from_utf8(archive.get(at..at + 8)?).ok()?, 16).ok();
            if archive.get(..6)? != MAGIC.as_bytes() {
                return None;
            }
            let (mode, size, name_size) = (field(14)?, field(54)? as usize, field(94)? as usize);
            let name = std::str::from_utf8(archive.get(110..110 + name_size - 1)?).ok()?.to_owned();
            let from =
                (total - archive.len() + 110 + name_size).next_multiple_of(4) - (total - archive.len());
            let content = archive.get(from..from + size)?.to_vec();
            if name == LAST {
                return Some(found);
            }
            found.push((name, mode, content));
            archive = archive.get((from + size).next_multiple_of(4)..)?;
        }
    }

    #[test]
    fn archive_lists_the_entries_that_were_written() {
        let mut archive = Archive::default();
        archive.directory("bin");
        archive.file("bin/init", 0o755, b"program");
        let read = list(&archive.finish()).expect("an archive");
        let expected = [
            ("bin".to_owned(), 0o40755, Vec::new()),
            ("bin/init".to_owned(), 0o100_755, b"program".to_vec()),
        ];
        assert_eq!(read, expected);
    }

    proptest! {
        #[test]
        fn round_trip(entries in proptest::collection::vec(("[a-z/.]{1,40}", proptest::collection::vec(any::<u8>(), 0..100)), 0..8)) {
            let mut archive = Archive::default();
            for (name, content) in &entries {
                archive.file(name, 0o644, content);
            }
            let read = list(&archive.finish()).expect("an archive");
            let plain: Vec<_> = read.into_iter().map(|(name, _, content)| (name, content)).collect();
            prop_assert_eq!(plain, entries);
        }
    }
}
