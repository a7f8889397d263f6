//! What a cgroup's path says by itself: its pod, its container, its unit. Names that only files know are in [`crate::table::Group`].

/// Container ids are 64 hex digits; so many tell them apart, and fit in a line.
pub const ID_SHOWN: usize = 12;

/// A container, as its cgroup is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contained {
    /// "docker", "containerd", "cri-o", "podman", "lxc", "machine"; `None`: the path does not tell.
    pub engine: Option<&'static str>,
    /// The whole id (64 hex digits), or the name of a machine.
    pub id: String,
    /// It is not the container, but who watches it (conmon).
    pub is_monitor: bool,
}

/// What a path says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupPath {
    /// The systemd unit, without systemd's escapes; beside a container one of the systemd in it.
    pub unit: Option<String>,
    /// ... as its file is called.
    pub unit_file: Option<String>,
    /// The innermost container.
    pub container: Option<Contained>,
    /// The pod's uid.
    pub pod: Option<String>,
    /// The user whose slice it is in, on the host itself.
    pub uid: Option<u32>,
    /// The unit is one of that user's own systemd.
    pub of_user: bool,
    /// What lies below the unit or container: "/init".
    pub below: String,
}

impl CgroupPath {
    /// Reads the path from its root down: what is named deeper wins, and slices count only if nothing else is known.
    #[must_use]
    pub fn of(path: &str) -> Self {
        let mut known = CgroupPath::default();
        let (mut slice, mut uid, mut of_user, mut has_systemd) = (None, None, false, false);
        let mut above = "";
        for part in path.split('/').filter(|part| !part.is_empty()) {
            if known.container.is_none() && known.pod.is_none() {
                uid = uid.or_else(|| user_of(part));
                of_user |= part.starts_with("user@") && part.ends_with(".service");
            }
            if let Some((pod, container)) = colons(part) {
                known = CgroupPath { pod: Some(pod), container: Some(container), ..CgroupPath::default() };
            } else if let Some(pod) = pod(part) {
                known = CgroupPath { pod: Some(pod), ..CgroupPath::default() };
            } else if let Some(container) = container(above, part) {
                known = CgroupPath { pod: known.pod, container: Some(container), ..CgroupPath::default() };
            } else if part.ends_with(".slice") {
                has_systemd = known.container.is_some();
                if has_systemd {
                    known.below.clear();
                } else if known.pod.is_none() {
                    known = CgroupPath::default();
                    slice = Some(part);
                }
            } else if is_unit(part) && (known.container.is_none() || has_systemd) {
                known.unit = Some(unescaped(part));
                known.unit_file = Some(part.to_owned());
                known.below.clear();
            } else if known != CgroupPath::default() {
                known.below = format!("{}/{part}", known.below);
            }
            above = part;
        }
        if known == CgroupPath::default() && path.ends_with(".slice") {
            known.unit = slice.map(unescaped);
            known.unit_file = slice.map(str::to_owned);
        }
        let own = known.unit_file.as_ref().is_some_and(|unit| unit.starts_with("user@"));
        CgroupPath { uid, of_user: of_user && !own, ..known }
    }
}

impl Contained {
    /// An id, short enough for a line.
    #[must_use]
    pub fn short(&self) -> &str {
        if is_id(&self.id) { self.id.get(..ID_SHOWN).unwrap_or(&self.id) } else { &self.id }
    }
}

fn is_unit(part: &str) -> bool {
    [".service", ".scope", ".socket", ".mount", ".swap", ".timer"].iter().any(|kind| part.ends_with(kind))
}

/// `user-1000.slice`, `user@1000.service`.
fn user_of(part: &str) -> Option<u32> {
    let slice = || part.strip_prefix("user-")?.strip_suffix(".slice");
    let service = || part.strip_prefix("user@")?.strip_suffix(".service");
    slice().or_else(service)?.parse().ok()
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

/// `kubepods-burstable-pod<uid>.slice:cri-containerd:<id>`: where kubelet writes for systemd and the runtime makes groups itself.
fn colons(part: &str) -> Option<(String, Contained)> {
    let (slice, rest) = part.split_once(':')?;
    let (prefix, id) = rest.split_once(':')?;
    let engine = ENGINES.iter().find(|(name, ..)| name.strip_suffix('-') == Some(prefix))?.1;
    let id = is_id(id).then(|| id.to_owned())?;
    Some((pod(slice)?, Contained { engine: Some(engine), id, is_monitor: false }))
}

/// What scopes of containers begin with, and whether it is that of their monitor.
const ENGINES: [(&str, &str, bool); 9] = [
    ("docker-", "docker", false),
    ("cri-containerd-", "containerd", false),
    ("containerd-", "containerd", false),
    ("nerdctl-", "containerd", false),
    ("crio-conmon-", "cri-o", true),
    ("crio-", "cri-o", false),
    ("libpod-conmon-", "podman", true),
    ("libpod-payload-", "podman", false),
    ("libpod-", "podman", false),
];

/// A container by its own name (`docker-<id>.scope`) or by the name and the folder above it (`/docker/<id>`).
fn container(above: &str, part: &str) -> Option<Contained> {
    let named = |engine, id: String| Some(Contained { engine, id, is_monitor: false });
    let by_id = |engine| named(engine, is_id(part).then(|| part.to_owned())?);
    let scope = part.strip_suffix(".scope").unwrap_or(part);
    let engine = ENGINES.iter().find_map(|(prefix, engine, is_monitor)| {
        let id = scope.strip_prefix(prefix).filter(|id| is_id(id))?.to_owned();
        Some(Contained { engine: Some(*engine), id, is_monitor: *is_monitor })
    });
    if engine.is_some() {
        return engine;
    }
    if let Some(machine) = part.strip_suffix(".scope").and_then(|p| p.strip_prefix("machine-")) {
        return named(Some("machine"), unescaped(machine));
    }
    if let Some(name) = part.strip_prefix("lxc.payload.") {
        return named(Some("lxc"), name.to_owned());
    }
    match above {
        "lxc" => named(Some("lxc"), part.to_owned()),
        "docker" | "kubepods" | "burstable" | "besteffort" => by_id(Some("docker")),
        _ if pod(above).is_some() => by_id(None),
        // ECS: /ecs/<task>/<id>; others keep ids below folders of their own.
        _ if part.len() == 64 => by_id(None),
        _ => None,
    }
}

fn is_id(id: &str) -> bool {
    id.len() >= ID_SHOWN && id.bytes().all(|b| b.is_ascii_hexdigit())
}

/// systemd writes bytes that it cannot have in a unit's name as `\x2d`. What is no such escape stays.
#[must_use]
pub fn unescaped(name: &str) -> String {
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

    #[test]
    fn users_and_their_own_units_are_known() {
        let of = |path: &str| {
            let known = CgroupPath::of(path);
            (known.uid, known.of_user, known.unit_file)
        };
        let session = "/user.slice/user-1000.slice/session-5.scope";
        assert_eq!(of(session), (Some(1000), false, Some("session-5.scope".into())));
        let app = "/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.service";
        assert_eq!(of(app), (Some(1000), true, Some("app-x.service".into())));
        let own = "/user.slice/user-1000.slice/user@1000.service";
        assert_eq!(of(own), (Some(1000), false, Some("user@1000.service".into())));
        let nested = format!("/system.slice/docker-{ID}.scope/system.slice/nginx.service");
        let known = CgroupPath::of(&nested);
        assert_eq!(
            (known.unit.as_deref(), known.container.unwrap().id.as_str()),
            (Some("nginx.service"), ID)
        );
        let inner = format!("/docker/{ID}/user.slice/user-7.slice/session-1.scope");
        assert_eq!(of(&inner).0, None, "a user of a container is none of the host");
    }

    #[test]
    fn a_path_with_colons_is_a_pod_and_a_container() {
        let path = format!(
            "/system.slice/containerd.service/kubepods-burstable-pod{}.slice:cri-containerd:{ID}",
            &ID[..32]
        );
        let known = CgroupPath::of(&path);
        assert_eq!((known.pod.as_deref(), known.container.unwrap().id.as_str()), (Some(&ID[..32]), ID));
        assert_eq!(CgroupPath::of("/a:b:c"), CgroupPath::default());
    }

    #[test]
    fn escapes_that_are_none_stay() {
        assert_eq!(unescaped(r"a\x2"), r"a\x2");
        assert_eq!(unescaped(r"a\xzz\x2db"), r"a\xzz-b");
        assert_eq!(unescaped(r"\xff"), r"\xff", "half a character is no name");
        assert_eq!(unescaped("\\x\u{e9}x"), "\\x\u{e9}x");
    }
}
