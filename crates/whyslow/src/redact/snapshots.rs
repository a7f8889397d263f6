//! Names in kernel files.

use whyslow_model::Recording;

use super::log;
use super::words::Words;

/// Rewrites the files that contain names, and the names of the files.
pub fn redact(recording: &mut Recording, words: &mut Words) {
    for file in &mut recording.snapshots {
        let last = file.name.rsplit('/').next().unwrap_or_default();
        let of_process = file
            .name
            .strip_prefix("proc/")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let rewritten: Option<fn(&str, &mut Words) -> String> = match last {
            "mountinfo" => Some(mountinfo),
            "kmsg" => Some(log::redact),
            "stat" if of_process => Some(process_stat),
            "status" if of_process => Some(process_status),
            "cmdline" | "environ" | "comm" | "cgroup" | "maps" | "mounts" | "hostname" | "boot_id"
                if of_process || matches!(last, "hostname" | "boot_id") =>
            {
                Some(|_, _| String::new())
            }
            // Boot parameters may name disks and hosts: only parameters that the kernel itself reads stay.
            "cmdline" => Some(boot),
            "version" => Some(kernel_version),
            _ => None,
        };
        if let Some(rewritten) = rewritten {
            file.bytes = rewritten(&String::from_utf8_lossy(&file.bytes), words).into_bytes();
        }
        file.name = words.file(&file.name);
    }
}

/// "7 (comm) S 1 ...": the name ends with the last bracket.
fn process_stat(text: &str, words: &mut Words) -> String {
    match text.split_once(" (").and_then(|(pid, rest)| Some((pid, rest.rsplit_once(") ")?))) {
        Some((pid, (comm, rest))) => format!("{pid} ({}) {rest}", words.comm(comm)),
        None => String::new(),
    }
}

fn process_status(text: &str, words: &mut Words) -> String {
    let line = |line: &str| match line.strip_prefix("Name:\t") {
        Some(comm) => format!("Name:\t{}\n", words.comm(comm)),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// "Linux version 6.1.0 (builder@host) (gcc ...) #1 SMP ...": the builder is left out.
fn kernel_version(text: &str, _: &mut Words) -> String {
    match (text.split_once(" ("), text.split_once(" #")) {
        (Some((release, _)), Some((_, flags))) => format!("{release} #{flags}"),
        _ => String::new(),
    }
}

/// Leaves out parameters with a path, a host or an address, and all words after `--`, which are for init (kernel/params.c, parse_args).
fn boot(text: &str, _: &mut Words) -> String {
    let is_plain = |word: &&str| {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        !value.contains(['/', ':', '@', '"'])
            && !matches!(
                key,
                "root" | "ip" | "nfsroot" | "systemd.hostname" | "hostname" | "resume" | "BOOT_IMAGE"
            )
    };
    text.split_ascii_whitespace()
        .take_while(|word| *word != "--")
        .filter(is_plain)
        .collect::<Vec<_>>()
        .join(" ")
        + "\n"
}

/// The device and the type of a mount stay; made-up words replace the mount point and the root of the mount.
fn mountinfo(text: &str, words: &mut Words) -> String {
    text.lines().filter_map(|line| mount(line, words)).collect()
}

fn mount(line: &str, words: &mut Words) -> Option<String> {
    let (before, after) = line.split_once(" - ")?;
    let mut before: Vec<String> = before.split(' ').map(str::to_owned).collect();
    let mut after = after.split(' ');
    let (kind, source, options) = (after.next()?, after.next()?, after.next().unwrap_or_default());
    let is_cgroup = kind.starts_with("cgroup");
    let root = before.get_mut(3)?;
    *root = if is_cgroup { words.group(root) } else { words.path(root) };
    let point = before.get_mut(4)?;
    *point = words.path(point);
    let is_plain = source.starts_with("/dev/") && !source.starts_with("/dev/mapper/")
        || source == kind
        || source == "none";
    let source = if is_plain { source.to_owned() } else { words.path(source) };
    let keep = |option: &&str| {
        !option.contains(['/', ':', '.']) && !option.contains("addr") && !option.contains("user")
    };
    let options = options.split(',').filter(keep).collect::<Vec<_>>().join(",");
    Some(format!("{} - {kind} {source} {options}\n", before.join(" ")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn mounts_keep_their_devices() {
        let mut words = Words::of(&Recording::default(), BTreeSet::new());
        let text = "36 35 254:1 /sub /srv/secret rw - ext4 /dev/vda1 rw,user_xattr\n\
                    37 35 0:9 / /mnt/x rw - nfs4 filer.corp:/export rw,addr=10.0.0.7,vers=4\n\
                    38 35 0:5 /pod7 /sys/fs/cgroup/cpu rw shared:1 - cgroup cgroup rw,cpu\n\
                    39 35 0:6 / /tmp rw - tmpfs acme_scratch rw\nbroken\n";
        let expected = "36 35 254:1 path1 path2 rw - ext4 /dev/vda1 rw\n\
                        37 35 0:9 / path3 rw - nfs4 path4 rw,vers=4\n\
                        38 35 0:5 /g1 /sys/fs/cgroup/cpu rw shared:1 - cgroup cgroup rw,cpu\n\
                        39 35 0:6 / path5 rw - tmpfs path6 rw\n";
        assert_eq!(mountinfo(text, &mut words), expected);
    }

    #[test]
    fn of_processes_numbers_stay() {
        let mut words = Words::of(&Recording::default(), BTreeSet::new());
        assert_eq!(process_stat("7 (a) b) S 1 2\n", &mut words), "7 (task-a) S 1 2\n");
        assert_eq!(process_status("Name:\ta) b\nTgid:\t7\n", &mut words), "Name:\ttask-a\nTgid:\t7\n");
        assert_eq!(process_stat("torn (", &mut words), "");
        let line = "root=/dev/vda quiet nohz_full=1-3 ip=10.0.0.7::x -- token=7 --log secret";
        assert_eq!(boot(line, &mut words), "quiet nohz_full=1-3\n");
        let version = "Linux version 6.1.0-9 (joe@pc) (gcc (GCC) 12, GNU ld) #1 SMP PREEMPT_DYNAMIC x\n";
        assert_eq!(kernel_version(version, &mut words), "Linux version 6.1.0-9 #1 SMP PREEMPT_DYNAMIC x\n");
        assert_eq!(kernel_version("torn (", &mut words), "");
    }
}
