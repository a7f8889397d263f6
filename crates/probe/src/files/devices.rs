//! The devices that patterns stand for: CPUs, disks, NICs, cgroups; and the paths that a pattern gives with them.

use std::collections::BTreeMap;
use std::ffi::CString;

use super::name::printable;
use super::root::Root;

/// One file: where it is, and the name of its snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Name of the snapshot.
    pub name: String,
    /// Path below the root.
    pub path: CString,
}

/// A device or group: its bytes, and its printable name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    pub raw: Vec<u8>,
    pub name: String,
}

impl Device {
    pub fn new(raw: &[u8], live: bool) -> Device {
        Device { raw: raw.to_vec(), name: printable(raw, live) }
    }
}

/// Devices by their name in patterns ("cpu", "v1:memory:top").
pub(super) type Devices = BTreeMap<String, Vec<Device>>;

/// The most files of one directory for a `*`: idle states, nodes, policies, vulnerabilities.
const MOST_PER_STAR: usize = 1024;

/// The most CPUs, disks and NICs that are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Most {
    pub cpus: usize,
    pub disks: usize,
    pub nics: usize,
}

/// Finds CPUs, disks and NICs. Calls `skipped` for those beyond `most`: their kind, how many there are, how many are taken.
pub(super) fn discover(root: &Root, most: &Most, mut skipped: impl FnMut(&str, usize, usize)) -> Devices {
    let mut devices = Devices::new();
    for (kind, dir, most) in [
        ("cpu", c"sys/devices/system/cpu", most.cpus),
        ("disk", c"sys/block", most.disks),
        ("nic", c"sys/class/net", most.nics),
    ] {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let _ = root.list(dir, |name, _| {
            if kind != "cpu" || cpu_number(name).is_some() {
                names.push(name.to_vec());
            }
            true
        });
        names.sort_by_cached_key(|name| (rank(root, kind, name), cpu_number(name), name.clone()));
        if names.len() > most {
            skipped(kind, names.len(), most);
            names.truncate(most);
        }
        devices.insert(kind.to_owned(), names.iter().map(|name| Device::new(name, root.live)).collect());
    }
    devices
}

fn cpu_number(name: &[u8]) -> Option<u32> {
    std::str::from_utf8(name.strip_prefix(b"cpu")?).ok()?.parse().ok()
}

/// Real disks and NICs first: a host can have hundreds of loop devices or veth pairs, and those are left out first.
fn rank(root: &Root, kind: &str, name: &[u8]) -> u8 {
    match kind {
        "disk" => u8::from(name.starts_with(b"loop") || name.starts_with(b"ram")),
        "nic" => {
            let path = [b"sys/class/net/", name, b"/device"].concat();
            u8::from(!CString::new(path).is_ok_and(|path| root.exists(&path)))
        }
        _ => 0,
    }
}

/// All files of a pattern. Devices that are not known give none.
pub(super) fn places(root: &Root, pattern: &str, devices: &Devices) -> Vec<Place> {
    let mut begun = vec![(Vec::new(), String::new())];
    for part in pattern.split('/') {
        begun = if let Some(kind) = part.strip_prefix('{').and_then(|p| p.strip_suffix('}')) {
            let known = devices.get(kind).map_or(&[][..], Vec::as_slice);
            let pairs = begun.iter().flat_map(|before| known.iter().map(move |thing| (before, thing)));
            pairs.map(|(before, thing)| joined(before, &thing.raw, &thing.name)).collect()
        } else if part.contains('*') {
            begun.iter().flat_map(|before| starred(root, before, part)).collect()
        } else {
            begun.iter().map(|before| joined(before, part.as_bytes(), part)).collect()
        };
    }
    let place = |(path, name)| Some(Place { name, path: CString::new(path).ok()? });
    begun.into_iter().filter_map(place).collect()
}

type Begun = (Vec<u8>, String);

fn joined((path, name): &Begun, raw: &[u8], printed: &str) -> Begun {
    let (mut path, mut name) = (path.clone(), name.clone());
    if !path.is_empty() {
        path.push(b'/');
        name.push('/');
    }
    path.extend_from_slice(raw);
    name.push_str(printed);
    (path, name)
}

fn starred(root: &Root, before: &Begun, part: &str) -> Vec<Begun> {
    let (head, tail) = part.split_once('*').unwrap_or((part, ""));
    let Ok(dir) = CString::new(before.0.clone()) else { return Vec::new() };
    let mut found = Vec::new();
    let _ = root.list(&dir, |name, _| {
        let fits = name.len() >= head.len() + tail.len()
            && name.starts_with(head.as_bytes())
            && name.ends_with(tail.as_bytes());
        if fits {
            found.push(name.to_vec());
        }
        found.len() < MOST_PER_STAR
    });
    found.sort();
    found.iter().map(|raw| joined(before, raw, &printable(raw, root.live))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Most = Most { cpus: 512, disks: 4, nics: 4 };

    #[test]
    fn patterns_are_spelt_out_with_things_and_stars() {
        let dir = tempfile::tempdir().unwrap();
        for state in ["state0", "state1", "driver"] {
            std::fs::create_dir_all(dir.path().join("cpu0").join(state)).unwrap();
        }
        let root = Root::open(dir.path());
        let devices = Devices::from([("cpu".to_owned(), vec![Device::new(b"cpu0", false)])]);
        let names: Vec<_> =
            places(&root, "{cpu}/state*/time", &devices).into_iter().map(|place| place.name).collect();
        assert_eq!(names, ["cpu0/state0/time", "cpu0/state1/time"]);
        assert_eq!(places(&root, "{disk}/size", &devices), []);
    }

    #[test]
    fn of_4096_cpus_the_first_are_taken_and_the_rest_is_reported() {
        let dir = super::super::tests::roomy();
        let cpus = dir.path().join("sys/devices/system/cpu");
        std::fs::create_dir_all(cpus.join("cpufreq")).unwrap();
        for cpu in 0..4096 {
            std::fs::create_dir(cpus.join(format!("cpu{cpu}"))).unwrap();
        }
        let mut reported = Vec::new();
        let devices = discover(&Root::open(dir.path()), &MOST, |kind, all, taken| {
            reported.push((kind.to_owned(), all, taken));
        });
        assert_eq!(reported, [("cpu".to_owned(), 4096, 512)]);
        assert_eq!(devices["cpu"][511].name, "cpu511");
    }

    #[test]
    fn real_devices_go_before_loop_and_veth() {
        let dir = tempfile::tempdir().unwrap();
        for disk in ["loop0", "loop1", "loop2", "loop3", "vda"] {
            std::fs::create_dir_all(dir.path().join("sys/block").join(disk)).unwrap();
        }
        for nic in ["a0", "a1", "a2", "a3", "eth0/device"] {
            std::fs::create_dir_all(dir.path().join("sys/class/net").join(nic)).unwrap();
        }
        let devices = discover(&Root::open(dir.path()), &MOST, |_, _, _| ());
        assert_eq!((devices["disk"][0].name.as_str(), devices["disk"].len()), ("vda", 4));
        assert_eq!((devices["nic"][0].name.as_str(), devices["nic"].len()), ("eth0", 4));
    }
}
