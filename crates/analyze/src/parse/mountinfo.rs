//! Mounts: `/proc/PID/mountinfo`.
//!
//! ```text
//! 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//! ```
//!
//! id, parent, device, root within the file system, mount point, options, any number of optional fields, "-", type, source,
//! options of the file system. Blanks, tabs, newlines and backslashes in names are octal escapes (`\040`).

use super::Bad;

/// One mount.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mount {
    /// Device number "major:minor".
    pub dev: String,
    /// The folder of the file system that is mounted.
    pub root: String,
    /// The mount point.
    pub point: String,
    /// Options of this mount.
    pub options: String,
    /// "ext4", "cgroup2", "nfs4".
    pub kind: String,
    /// "/dev/vda", "server:/export".
    pub source: String,
    /// Options of the file system.
    pub fs_options: String,
}

/// Parse the file.
pub fn parse(text: &str) -> Result<Vec<Mount>, Bad> {
    text.lines().filter(|line| !line.trim().is_empty()).map(mount).collect()
}

fn mount(line: &str) -> Result<Mount, Bad> {
    const WANTED: &str = "six columns, \" - \", type, source, options";
    let (before, after) = line.split_once(" - ").ok_or_else(|| Bad::new(WANTED, line))?;
    let before: Vec<&str> = before.split(' ').collect();
    // A source may be empty (mount -t tmpfs "" /mnt): two blanks then.
    let after: Vec<&str> = after.splitn(3, ' ').collect();
    let (&[_, _, dev, root, point, options, ..], &[kind, source, fs_options]) = (&before[..], &after[..])
    else {
        return Err(Bad::new(WANTED, line));
    };
    Ok(Mount {
        dev: dev.to_owned(),
        root: unescaped(root),
        point: unescaped(point),
        options: options.to_owned(),
        kind: kind.to_owned(),
        source: unescaped(source),
        fs_options: fs_options.to_owned(),
    })
}

/// `\040` becomes a blank. Anything but an octal escape stays as it is.
fn unescaped(name: &str) -> String {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let octal = match (byte, after) {
            (b'\\', &[a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        out.push(octal.unwrap_or(byte));
        rest = if octal.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const HERE: &str = "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
        29 23 0:26 / /sys/fs/cgroup/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu\n";
    /// Linux 5.10: a bind mount with two optional fields and a blank in its name.
    pub const ESCAPED: &str = "36 35 98:0 /srv /mnt/my\\040disk rw,noatime shared:2 master:1 - ext4 /dev/vda1 rw\n\
        40 35 0:44 / /mnt/empty rw -  tmpfs  rw\n";
    /// Linux 6.1.
    const NFS: &str = "50 27 0:50 / /home rw,relatime - nfs4 10.0.0.1:/home rw,vers=4.2,hard\n";

    #[test]
    fn reads_what_is_mounted_where() {
        let here = parse(HERE).unwrap();
        assert_eq!((here[1].point.as_str(), here[1].fs_options.as_str()), ("/sys/fs/cgroup/cpu", "rw,cpu"));
        assert_eq!(parse(NFS).unwrap()[0].source, "10.0.0.1:/home");
    }

    #[test]
    fn names_lose_their_escapes() {
        assert_eq!(parse(ESCAPED).unwrap()[0].point, "/mnt/my disk");
        assert_eq!(unescaped(r"a\134b\q\04"), r"a\b\q\04");
        assert_eq!(unescaped(r"\377"), "\u{fffd}", "names need not be UTF-8");
    }

    #[test]
    fn a_torn_line_is_bad() {
        assert!(parse("22 27 0:21 / /proc rw,relatime - pro").is_err());
        assert!(parse("22 27 0:21 - proc proc rw").is_err());
    }
}
