//! A cgroup as people call it: from its path to a systemd unit, a container, a pod.
//!
//! The path itself stays the id, as raw as the kernel gave it; what is unsafe to print is escaped by who prints.

use whyslow_model::table::Cgroup;
use whyslow_model::{Subject, SubjectKind};

/// Container ids are 64 hex digits; this many tell them apart, and fit in a line.
const ID_SHOWN: usize = 12;

/// What a path says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Known {
    unit: Option<String>,
    container: Option<String>,
    pod: Option<String>,
    /// What lies below the unit or container: "/init".
    below: String,
}

/// The cgroup as a victim.
#[must_use]
pub fn cgroup_subject(cgroup: &Cgroup) -> Subject {
    subject(&cgroup.path)
}

/// The cgroup at `path` (below its hierarchy's root) as a victim.
#[must_use]
pub fn subject(path: &str) -> Subject {
    let known = known(path);
    let container = match (&known.pod, &known.container) {
        (Some(pod), Some(id)) => Some(format!("pod {pod}, container {id}")),
        (Some(pod), None) => Some(format!("pod {pod}")),
        (None, id) => id.clone(),
    };
    let name = match container.as_ref().or(known.unit.as_ref()) {
        Some(name) => format!("{name}{}", known.below),
        None if path == "/" || path.is_empty() => "the root cgroup".to_owned(),
        None => path.to_owned(),
    };
    Subject { unit: known.unit, container, ..Subject::new(SubjectKind::Cgroup, path, name) }
}

/// Reads the path from its root down: what is named deeper wins, and slices count only if nothing else is known.
fn known(path: &str) -> Known {
    let mut known = Known::default();
    let mut slice = None;
    let mut above = "";
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if let Some(pod) = pod(part) {
            known = Known { pod: Some(pod), ..Known::default() };
        } else if let Some(container) = container(above, part) {
            known.container = Some(container);
            known.unit = None;
            known.below.clear();
        } else if part.ends_with(".slice") {
            if known.pod.is_none() {
                known = Known::default();
                slice = Some(unescaped(part));
            }
        } else if is_unit(part) && known.container.is_none() {
            known.unit = Some(unescaped(part));
            known.below.clear();
        } else if known != Known::default() {
            known.below = format!("{}/{part}", known.below);
        }
        above = part;
    }
    if known == Known::default() && path.ends_with(".slice") {
        known.unit = slice;
    }
    known
}

fn is_unit(part: &str) -> bool {
    [".service", ".scope", ".socket", ".mount", ".swap", ".timer"].iter().any(|kind| part.ends_with(kind))
}

/// `kubepods-burstable-pod<uid>.slice` (systemd driver; "_" for "-") or `pod<uid>` (cgroupfs driver).
fn pod(part: &str) -> Option<String> {
    let uid = match part.strip_suffix(".slice") {
        Some(slice) => slice.strip_prefix("kubepods")?.rsplit_once("-pod")?.1.replace('_', "-"),
        None => part.strip_prefix("pod")?.to_owned(),
    };
    let is_uid = uid.len() >= 32 && uid.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    is_uid.then_some(uid)
}

/// A container by its own name (`docker-<id>.scope`) or by the name and the folder above it (`/docker/<id>`).
fn container(above: &str, part: &str) -> Option<String> {
    const ENGINES: [(&str, &str); 9] = [
        ("docker-", "docker"),
        ("cri-containerd-", "containerd"),
        ("containerd-", "containerd"),
        ("nerdctl-", "containerd"),
        ("crio-conmon-", "cri-o monitor"),
        ("crio-", "cri-o"),
        ("libpod-conmon-", "podman monitor"),
        ("libpod-payload-", "podman"),
        ("libpod-", "podman"),
    ];
    let scope = part.strip_suffix(".scope").unwrap_or(part);
    let engine =
        ENGINES.iter().find_map(|(prefix, engine)| Some((*engine, short_id(scope.strip_prefix(prefix)?)?)));
    if let Some((engine, id)) = engine {
        return Some(format!("{engine} {id}"));
    }
    if let Some(machine) = part.strip_suffix(".scope").and_then(|p| p.strip_prefix("machine-")) {
        return Some(format!("machine {}", unescaped(machine)));
    }
    if let Some(name) = part.strip_prefix("lxc.payload.") {
        return Some(format!("lxc {name}"));
    }
    match above {
        "lxc" => Some(format!("lxc {part}")),
        "docker" | "kubepods" | "burstable" | "besteffort" => Some(format!("docker {}", short_id(part)?)),
        _ if pod(above).is_some() => short_id(part),
        // ECS: /ecs/<task>/<id>; others keep ids below folders of their own.
        _ => (part.len() == 64).then(|| short_id(part)).flatten(),
    }
}

fn short_id(id: &str) -> Option<String> {
    let is_id = id.len() >= ID_SHOWN && id.bytes().all(|b| b.is_ascii_hexdigit());
    if is_id { id.get(..ID_SHOWN).map(str::to_owned) } else { None }
}

/// systemd writes bytes that it cannot have in a unit's name as `\x2d`. What is no such escape stays.
fn unescaped(name: &str) -> String {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("\\x") {
        let (before, escape) = rest.split_at(at);
        out.extend_from_slice(before.as_bytes());
        match escape.get(2..4).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = escape.get(4..).unwrap_or_default();
            }
            None => {
                out.extend_from_slice(b"\\x");
                rest = escape.get(2..).unwrap_or_default();
            }
        }
    }
    out.extend_from_slice(rest.as_bytes());
    String::from_utf8(out).unwrap_or_else(|_| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn named(path: &str) -> (String, Option<String>, Option<String>) {
        let subject = subject(path);
        assert_eq!(subject.id, path, "the id stays the path");
        (subject.name, subject.unit, subject.container)
    }

    fn unit(path: &str, want: &str) {
        assert_eq!(named(path), (want.to_owned(), Some(want.to_owned()), None), "{path}");
    }

    fn container(path: &str, want: &str) {
        assert_eq!(named(path), (want.to_owned(), None, Some(want.to_owned())), "{path}");
    }

    #[test]
    fn units_of_the_system_and_of_users() {
        unit("/system.slice/nginx.service", "nginx.service");
        unit("/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service");
        unit("/user.slice/user-1000.slice/session-5.scope", "session-5.scope");
        unit(
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-firefox.service",
            "app-firefox.service",
        );
        unit("/user.slice/user-1000.slice", "user-1000.slice");
        unit(r"/system.slice/dev-disk-by\x2dlabel-SWAP.swap", "dev-disk-by-label-SWAP.swap");
        assert_eq!(named("/system.slice/ssh.service/inner").0, "ssh.service/inner");
    }

    #[test]
    fn containers_of_every_engine() {
        container(&format!("/system.slice/docker-{ID}.scope"), "docker 0123456789ab");
        container(&format!("/docker/{ID}"), "docker 0123456789ab");
        container(&format!("/machine.slice/libpod-{ID}.scope"), "podman 0123456789ab");
        container(&format!("/system.slice/crio-{ID}.scope"), "cri-o 0123456789ab");
        container(r"/machine.slice/machine-qemu\x2d1\x2dweb.scope", "machine qemu-1-web");
        container("/lxc/web1", "lxc web1");
        container("/lxc.payload.web1", "lxc web1");
        container(&format!("/ecs/3c1f/{ID}"), "0123456789ab");
        assert_eq!(named(&format!("/docker/{ID}/init")).0, "docker 0123456789ab/init");
        let nested = format!("/system.slice/docker-{ID}.scope/system.slice/nginx.service");
        assert_eq!(named(&nested).1.as_deref(), Some("nginx.service"), "a container that runs systemd");
    }

    #[test]
    fn pods_of_both_drivers() {
        let uid = "11111111_2222_3333_4444_555555555555";
        let pod = "11111111-2222-3333-4444-555555555555";
        let systemd = format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice");
        container(&systemd, &format!("pod {pod}"));
        let full = format!("pod {pod}, container containerd 0123456789ab");
        container(&format!("{systemd}/cri-containerd-{ID}.scope"), &full);
        let cgroupfs = format!("/kubepods/burstable/pod{pod}/{ID}");
        container(&cgroupfs, &format!("pod {pod}, container 0123456789ab"));
    }

    #[test]
    fn other_paths_are_their_own_names() {
        for path in ["/web", "/jobs/a b", "/podcast", "/docker/not-an-id", "/a\nb\x1b[31m"] {
            assert_eq!(named(path), (path.to_owned(), None, None));
        }
        assert_eq!(named("/").0, "the root cgroup");
    }

    #[test]
    fn escapes_that_are_none_stay() {
        assert_eq!(unescaped(r"a\x2"), r"a\x2");
        assert_eq!(unescaped(r"a\xzz\x2db"), r"a\xzz-b");
        assert_eq!(unescaped(r"\xff"), r"\xff", "half a character is no name");
        assert_eq!(unescaped("\\x\u{e9}x"), "\\x\u{e9}x");
    }
}
