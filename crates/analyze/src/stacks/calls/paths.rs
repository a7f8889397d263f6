//! Paths folded: paths that differ only in the number of a CPU, process, descriptor or port count as one file.

use std::borrow::Cow;

/// Directories and files of /sys with numbers: "cpu3", "policy0". Documentation/ABI.
const NUMBERED: &[&str] = &[
    "cpu",
    "policy",
    "node",
    "index",
    "state",
    "hwmon",
    "thermal_zone",
    "cooling_device",
    "memory",
    "rx-",
    "tx-",
    "power",
    "trip_point_",
];
/// The kernel's default range of local ports begins here (net.ipv4.ip_local_port_range).
const EPHEMERAL: u16 = 32768;

/// A path with its numbers folded.
pub(super) fn folded(path: &str) -> String {
    if let Some(address) = path.strip_prefix("socket ") {
        return format!("socket {}", without_ephemeral_port(address));
    }
    let fold: fn(&str, &str) -> Option<String> = match path.split('/').nth(1) {
        Some("proc") => in_proc,
        Some("sys") => in_sys,
        _ => return path.to_owned(),
    };
    let mut above = "";
    let parts: Vec<Cow<'_, str>> = path
        .split('/')
        .map(|part| {
            let reported = fold(above, part).map_or(Cow::Borrowed(part), Cow::Owned);
            above = part;
            reported
        })
        .collect();
    parts.join("/")
}

fn is_number(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit())
}

/// Numbers of processes, threads, descriptors, interrupts; ranges of addresses in map_files.
fn in_proc(above: &str, part: &str) -> Option<String> {
    (is_number(part) || above == "map_files").then(|| "*".to_owned())
}

fn in_sys(above: &str, part: &str) -> Option<String> {
    if is_number(part) {
        return Some("*".to_owned());
    }
    let name = part.trim_end_matches(|c: char| c.is_ascii_digit());
    // A partition's folder is in its disk's: sda/sda1, nvme0n1/nvme0n1p2.
    let partition = !above.is_empty() && part.len() > above.len() && name.trim_end_matches('p') == above;
    let partition =
        partition || part.strip_prefix(above).is_some_and(|rest| !above.is_empty() && is_partition(rest));
    (name.len() < part.len() && (NUMBERED.contains(&name) || partition)).then(|| format!("{name}*"))
}

fn is_partition(rest: &str) -> bool {
    is_number(rest.strip_prefix('p').unwrap_or(rest))
}

/// "1.2.3.4:443" stays, "127.0.0.1:54321" becomes "127.0.0.1:*".
fn without_ephemeral_port(address: &str) -> String {
    match address.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok_and(|port| port >= EPHEMERAL) => format!("{host}:*"),
        _ => address.to_owned(),
    }
}

/// (directory, file) of a path whose directory may be reported as a whole. Each name below /proc, /sys and /dev has its own
/// meaning, and few are left after folding.
pub(super) fn split(path: &str) -> Option<(&str, &str)> {
    let (dir, file) = path.rsplit_once('/')?;
    let by_name = ["/proc", "/sys", "/dev"]
        .iter()
        .any(|root| dir.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    (path.starts_with('/') && !by_name && !file.is_empty()).then_some((dir, file))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_of_cpus_processes_and_descriptors_are_folded() {
        for (path, want) in [
            (
                "/sys/devices/system/cpu/cpu3/cpufreq/scaling_cur_freq",
                "/sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq",
            ),
            (
                "/sys/devices/system/cpu/cpufreq/policy11/scaling_cur_freq",
                "/sys/devices/system/cpu/cpufreq/policy*/scaling_cur_freq",
            ),
            ("/sys/devices/system/node/node0/meminfo", "/sys/devices/system/node/node*/meminfo"),
            (
                "/sys/devices/system/cpu/cpu0/cache/index2/size",
                "/sys/devices/system/cpu/cpu*/cache/index*/size",
            ),
            ("/sys/block/sda/sda12/stat", "/sys/block/sda/sda*/stat"),
            ("/sys/block/nvme0n1/nvme0n1p2/stat", "/sys/block/nvme0n1/nvme0n1p*/stat"),
            ("/sys/block/vda/mq/0/cpu_list", "/sys/block/vda/mq/*/cpu_list"),
            ("/proc/4242/stat", "/proc/*/stat"),
            ("/proc/4242/task/4243/stat", "/proc/*/task/*/stat"),
            ("/proc/self/fd/3", "/proc/self/fd/*"),
            ("/proc/1/map_files/7f00-7f01", "/proc/*/map_files/*"),
            ("/proc/irq/24/smp_affinity", "/proc/irq/*/smp_affinity"),
            ("socket 127.0.0.1:54321", "socket 127.0.0.1:*"),
            ("socket [::1]:40000", "socket [::1]:*"),
        ] {
            assert_eq!(folded(path), want);
        }
    }

    #[test]
    fn other_names_stay() {
        for path in [
            "/home/u/4242/cpu3",
            "/tmp/tmpab12cd",
            "/sys/fs/cgroup/web1/memory.stat",
            "/sys/class/net/eth0/mtu",
            "/sys/block/sda/stat",
            "/proc/net/tcp6",
            "socket 1.2.3.4:443",
            "socket /run/docker.sock",
            "pipe",
            "[eventpoll]",
            "",
        ] {
            assert_eq!(folded(path), path);
        }
    }

    #[test]
    fn only_plain_directories_are_reported_as_a_whole() {
        assert_eq!(split("/var/spool/a"), Some(("/var/spool", "a")));
        assert_eq!(split("/a"), Some(("", "a")));
        assert_eq!(split("/system/a"), Some(("/system", "a")));
        for path in ["/proc/stat", "/sys/a/b", "/dev/null", "pipe", "/", "/var/", "socket /run/a"] {
            assert_eq!(split(path), None, "{path}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn folding_is_stable(path in "(/|/proc/|/sys/|socket |)([a-z0-9*/:.\\[\\]-]|cpu|\\PC){0,30}") {
            let once = folded(&path);
            prop_assert_eq!(folded(&once), once.clone());
            split(&once);
        }
    }
}
