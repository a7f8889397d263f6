//! Names of members. A snapshot's name comes from the host (a cgroup may have any name), a member's name from the author of
//! the file: neither is trusted.
//!
//! A snapshot's name becomes a member's name by escaping: printable ASCII stays, all else (and "%") becomes `%XX`.
//! The member's name need not give the snapshot's name back: `snapshots.ndjson` holds that.

use std::collections::{HashMap, HashSet};

use super::shown;

/// Folders that hold kernel files under their own names.
const ROOTS: [&str; 4] = ["proc/", "sys/", "netns/", "dev/"];
/// Folder of the kernel files that are in none of these folders.
const OTHER: &str = "other/";
/// Folder of all snapshots of a file but the latest: `earlier/<milliseconds>/<name>`.
pub const EARLIER: &str = "earlier/";
/// Longest part of a path: file systems allow 255 bytes, and a number may be appended.
const LONGEST_PART: usize = 200;
/// Longest path: the kernel allows 4095 bytes, and these include the path of the folder that a recording is unpacked to.
const LONGEST: usize = 1000;

/// Whether the member holds a kernel file.
pub fn is_snapshot(member: &str) -> bool {
    ROOTS.iter().chain(&[OTHER, EARLIER]).any(|root| member.starts_with(root))
}

/// For a member without a line in `snapshots.ndjson`: the name of its kernel file, and the milliseconds if it is an earlier snapshot.
pub fn snapshot_of(member: &str) -> (&str, Option<u64>) {
    let earlier = member.strip_prefix(EARLIER).and_then(|rest| rest.split_once('/'));
    match earlier.and_then(|(at, name)| Some((name, at.parse().ok()?))) {
        Some((name, at)) => (name, Some(at)),
        None => (member, None),
    }
}

/// A member name for a snapshot of the file `name`; not yet unique.
fn escaped(name: &str, earlier: Option<u128>) -> String {
    let mut out = earlier.map_or_else(String::new, |ms| format!("{EARLIER}{ms:07}/"));
    if !ROOTS.iter().any(|root| name.starts_with(root)) {
        out.push_str(OTHER);
    }
    for (i, part) in name.split('/').enumerate() {
        if i > 0 {
            out.push('/');
        }
        out.push_str(&escaped_part(part));
    }
    if out.len() > LONGEST {
        out.truncate(out.floor_char_boundary(LONGEST));
        out.truncate(out.trim_end_matches(['/', '.']).len());
        // After the cut the last part may be "." or empty.
        out.push_str("/%");
    }
    out
}

fn escaped_part(part: &str) -> String {
    if part.bytes().all(|b| b == b'.') {
        return format!("%{}", "2E%".repeat(part.len().min(16)));
    }
    let mut out = String::new();
    for byte in part.bytes() {
        match byte {
            b'%' | 0..b' ' | 0x7f.. => out.push_str(&format!("%{byte:02X}")),
            plain => out.push(char::from(plain)),
        }
        if out.len() > LONGEST_PART {
            break;
        }
    }
    out
}

/// Member names for snapshots (file, milliseconds if it is an earlier snapshot). All names differ, and none is the folder of another.
pub fn members<'n>(snapshots: impl Iterator<Item = (&'n str, Option<u128>)>) -> Vec<String> {
    let mut names: Vec<String> = snapshots.map(|(name, earlier)| escaped(name, earlier)).collect();
    let mut taken: HashSet<String> = HashSet::new();
    for name in &names {
        for (i, _) in name.match_indices('/') {
            taken.insert(name[..i].to_owned());
        }
    }
    let mut copies: HashMap<String, u32> = HashMap::new();
    for name in &mut names {
        let plain = name.clone();
        while !taken.insert(name.clone()) {
            let copy = copies.entry(plain.clone()).or_default();
            *copy = copy.saturating_add(1);
            *name = format!("{plain}%{copy}");
        }
    }
    names
}

/// The path of a member as a tar gives it, below the root and without "." parts. `Err`: the reason why it is refused.
pub fn checked(path: &[u8]) -> Result<String, String> {
    let path = str::from_utf8(path).map_err(|_| "its name is not UTF-8".to_owned())?;
    let refuse = |why: &str| Err(format!("member {} {why}", shown(path)));
    if path.starts_with('/') {
        return refuse("has an absolute path");
    }
    if path.chars().any(char::is_control) {
        return refuse("has control characters in its name");
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return refuse("leads out of the recording");
    }
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(name: &str) -> String {
        members([(name, None)].into_iter()).remove(0)
    }

    #[test]
    fn a_kernel_file_keeps_its_name() {
        assert_eq!(one("proc/pressure/io"), "proc/pressure/io");
        let two = [("proc/stat", Some(0)), ("proc/stat", None)];
        assert_eq!(members(two.into_iter()), ["earlier/0000000/proc/stat", "proc/stat"]);
    }

    #[test]
    fn odd_names_are_escaped() {
        assert_eq!(one("sys/fs/cgroup/50%\n/cpu.max"), "sys/fs/cgroup/50%25%0A/cpu.max");
        assert_eq!(one("sys/../../etc/passwd"), "sys/%2E%2E%/%2E%2E%/etc/passwd");
        assert_eq!(one("/etc/passwd"), "other/%/etc/passwd");
        assert_eq!(one("tables/tasks.ndjson"), "other/tables/tasks.ndjson");
        assert_eq!(one("sys/gr\u{fc}n"), "sys/gr%C3%BCn");
    }

    #[test]
    fn the_same_name_twice_and_a_file_that_is_a_folder_get_numbers() {
        let odd = [("proc/a", None), ("proc/a", None), ("proc/a/b", None)];
        assert_eq!(members(odd.into_iter()), ["proc/a%1", "proc/a%2", "proc/a/b"]);
    }

    #[test]
    fn the_file_of_a_member_is_known_without_an_index() {
        assert_eq!(snapshot_of("proc/stat"), ("proc/stat", None));
        assert_eq!(snapshot_of("earlier/0001500/proc/stat"), ("proc/stat", Some(1500)));
        assert_eq!(snapshot_of("earlier/x/proc/stat"), ("earlier/x/proc/stat", None));
    }

    #[test]
    fn paths_that_lead_out_are_refused() {
        assert_eq!(checked(b"./proc//stat").as_deref(), Ok("proc/stat"));
        assert_eq!(checked(b"proc/../../x").unwrap_err(), "member proc/../../x leads out of the recording");
        assert_eq!(checked(b"/etc/passwd").unwrap_err(), "member /etc/passwd has an absolute path");
        assert!(checked(b"proc/\x1b[2J").unwrap_err().contains("control characters"));
        assert!(checked(b"proc/\xff").is_err());
    }

    proptest! {
        #[test]
        fn every_name_becomes_a_member_that_is_accepted_and_its_own(
            names in prop::collection::vec("(proc/|sys/|/|)[a./%\\n\u{202e}\u{fc}]{0,300}", 1..8)
        ) {
            let members = members(names.iter().map(|n| (n.as_str(), None)));
            for (i, member) in members.iter().enumerate() {
                prop_assert_eq!(checked(member.as_bytes()), Ok(member.clone()));
                prop_assert!(is_snapshot(member));
                prop_assert!(member.len() < 1100 && member.split('/').all(|part| part.len() < 255));
                for other in &members[i + 1..] {
                    prop_assert!(member != other);
                    let (one, two) = (format!("{member}/"), format!("{other}/"));
                    prop_assert!(!two.starts_with(&one) && !one.starts_with(&two));
                }
            }
        }
    }
}
