//! File names that are the kernel's own: no user can have chosen them.

/// The kernel's names for files that have no name in a file system.
const NAMELESS: [&str; 26] = [
    "pipe",
    "inotify",
    "socket",
    "unix socket",
    "[bpf-link]",
    "[bpf-map]",
    "[bpf-prog]",
    "[btf]",
    "[dma-buf]",
    "[eventfd]",
    "[eventpoll]",
    "[fanotify]",
    "[fscontext]",
    "[inotify]",
    "[io_uring]",
    "[kvm-vcpu]",
    "[kvm-vm]",
    "[mount]",
    "[other files]",
    "[perf_event]",
    "[pidfd]",
    "[pidfs]",
    "[secretmem]",
    "[signalfd]",
    "[timerfd]",
    "[userfaultfd]",
];

/// Files of /proc and /sys whose name alone identifies the lock that a read takes.
const TELLING: [&str; 15] = [
    "mountinfo",
    "mounts",
    "mountstats",
    "cpuinfo_cur_freq",
    "cpuinfo_max_freq",
    "cpuinfo_min_freq",
    "cpuinfo_transition_latency",
    "scaling_available_frequencies",
    "scaling_available_governors",
    "scaling_cur_freq",
    "scaling_driver",
    "scaling_governor",
    "scaling_max_freq",
    "scaling_min_freq",
    "scaling_setspeed",
];

/// Folders of /dev, /proc and /sys in which users choose the names: of folders, of links to them, and of files that users create.
const STRANGERS: [&str; 10] = [
    "/dev/shm/",
    "/dev/mqueue/",
    "/dev/hugepages/",
    "/dev/mapper/",
    "/dev/disk/",
    "/sys/fs/bpf/",
    "/sys/kernel/config/",
    "/sys/kernel/debug/",
    "/sys/kernel/tracing/",
    "/sys/fs/pstore/",
];

/// Entries of /proc/PID that lead out of /proc.
const LINKS: [&str; 5] = ["cwd", "root", "exe", "map_files", "fd"];

/// Whether a path is the kernel's own, or the kernel's name for a descriptor without a path.
pub fn is_kernels(path: &str) -> bool {
    let is_plain = |path: &str| path == "/dev" || path == "/proc" || path == "/sys" || path == "/dev/shm";
    let Some(first) = path.strip_prefix('/').and_then(|rest| rest.split('/').next()) else {
        return NAMELESS.contains(&path);
    };
    if is_plain(path) {
        return true;
    }
    let is_strange = is_detour(path) || STRANGERS.iter().any(|folder| path.starts_with(folder));
    let mut parts = path.split('/').skip(2);
    match first {
        _ if is_strange => false,
        "sys" => true,
        "proc" => !parts.any(|part| LINKS.contains(&part)),
        // A single name, or a folder of numbered devices. Other folders of /dev may be volume groups, which users name.
        "dev" => {
            path.matches('/').count() == 2
                || parts
                    .next()
                    .is_some_and(|folder| matches!(folder, "pts" | "cpu" | "dri" | "input" | "net" | "vfio"))
        }
        _ => false,
    }
}

/// Whether a path contains "..".
pub fn is_detour(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

/// Whether the last part of a path, for a file of this kind, can only be the kernel's own name.
pub fn is_kernels_last(kind: &str, name: &str) -> bool {
    let is_terminal = || {
        let begin = name.trim_end_matches(|c: char| c.is_ascii_digit());
        matches!(begin, "" | "tty" | "ttyS" | "ttyUSB" | "ttyAMA" | "pts" | "hvc")
    };
    name.is_empty()
        || kind == "socket"
        || NAMELESS.contains(&name)
        || TELLING.contains(&name)
        || (kind == "chr" && is_terminal())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_names_are_recognized() {
        for path in [
            "pipe",
            "[eventpoll]",
            "/proc/7/stat",
            "/proc/meminfo",
            "/dev/null",
            "/dev",
            "/dev/pts/3",
            "/sys/block/vda/stat",
        ] {
            assert!(is_kernels(path), "{path}");
        }
        for (kind, name) in [
            ("file", "mountinfo"),
            ("socket", "inet"),
            ("chr", "3"),
            ("chr", "ttyS0"),
            ("anon", "[eventfd]"),
            ("dir", ""),
        ] {
            assert!(is_kernels_last(kind, name), "{kind} {name}");
        }
    }

    #[test]
    fn names_that_users_can_choose_are_not_kernel_names() {
        for path in [
            "/dev/shm/secret",
            "/dev/mapper/vg-secret",
            "/dev/vg/secret",
            "/process",
            "/proc/7/root/srv/secret",
            "/proc/self/cwd/secret",
            "/proc/../srv/secret",
            "/sys/fs/bpf/secret",
            "[...]/srv/secret",
            "[secret]",
            "secret",
            "",
        ] {
            assert!(!is_kernels(path), "{path}");
        }
        for (kind, name) in [
            ("file", "secret"),
            ("anon", "[secret].txt"),
            ("pipe", "secret"),
            ("chr", "tty-secret"),
            ("file", "7"),
        ] {
            assert!(!is_kernels_last(kind, name), "{kind} {name}");
        }
    }
}
