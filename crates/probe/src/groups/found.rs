//! What runtimes write about a container: from the text of their files to names. No I/O.
//!
//! Each file says which container it belongs to, and is believed only if that is the requested one.

use std::collections::HashMap;

use serde::Deserialize;

/// Longer texts are no names: Kubernetes has at most 253 bytes, image references hardly more.
const LONGEST: usize = 512;

/// What is known about a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    pub runtime: &'static str,
    pub container: Option<String>,
    pub image: Option<String>,
    pub pod: Option<String>,
    pub namespace: Option<String>,
    pub pod_uid: Option<String>,
}

/// A valid name, or `None`.
pub fn name(text: &str) -> Option<String> {
    (!text.is_empty() && text.len() <= LONGEST).then(|| text.to_owned())
}

type Labels = HashMap<String, String>;

fn of(labels: &Labels, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|key| name(labels.get(*key)?))
}

/// An OCI bundle's config.json: the fields that are used.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Bundle {
    annotations: Option<Labels>,
    linux: Option<Linux>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Linux {
    cgroups_path: Option<String>,
}

/// config.json of container `id`: containerd (CRI, nerdctl), CRI-O.
pub fn bundle(text: &str, id: &str) -> Option<Found> {
    let bundle: Bundle = serde_json::from_str(text).ok()?;
    let labels = bundle.annotations?;
    let own = bundle.linux.and_then(|linux| linux.cgroups_path);
    let is_other = |said: Option<&String>| said.is_some_and(|said| said != id);
    if own.is_some_and(|path| !path.contains(id)) || is_other(labels.get("io.kubernetes.cri-o.ContainerID")) {
        return None;
    }
    let has = |prefix: &str| labels.keys().any(|key| key.starts_with(prefix));
    let kind = of(&labels, &["io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"]);
    // The container that only holds the pod's namespaces has no name of its own.
    let is_sandbox = kind.as_deref() == Some("sandbox");
    let sandbox = || is_sandbox.then(|| "sandbox".to_owned());
    if has("io.kubernetes.cri-o.") {
        return Some(Found {
            runtime: "cri-o",
            container: sandbox().or_else(|| of(&labels, &["io.kubernetes.container.name"])),
            image: of(&labels, &["io.kubernetes.cri-o.ImageName", "io.kubernetes.cri-o.Image"]),
            ..pod(&labels)
        });
    }
    has("io.kubernetes.cri.")
        .then(|| Found {
            runtime: "containerd",
            container: sandbox().or_else(|| of(&labels, &["io.kubernetes.cri.container-name"])),
            image: of(&labels, &["io.kubernetes.cri.image-name"]),
            pod: of(&labels, &["io.kubernetes.cri.sandbox-name"]),
            namespace: of(&labels, &["io.kubernetes.cri.sandbox-namespace"]),
            pod_uid: of(&labels, &["io.kubernetes.cri.sandbox-uid"]),
        })
        .or_else(|| {
            let container = of(&labels, &["nerdctl/name"]);
            container.is_some().then(|| Found { runtime: "containerd", container, ..Found::default() })
        })
}

/// Labels that kubelet sets (pkg/kubelet/types/labels.go).
fn pod(labels: &Labels) -> Found {
    Found {
        pod: of(labels, &["io.kubernetes.pod.name"]),
        namespace: of(labels, &["io.kubernetes.pod.namespace"]),
        pod_uid: of(labels, &["io.kubernetes.pod.uid"]),
        ..Found::default()
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Docker {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "Config")]
    config: Option<DockerConfig>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct DockerConfig {
    image: Option<String>,
    labels: Option<Labels>,
}

/// Docker's config.v2.json of container `id`.
pub fn docker(text: &str, id: &str) -> Option<Found> {
    let said: Docker = serde_json::from_str(text).ok().filter(|said: &Docker| said.id == id)?;
    let config = said.config.unwrap_or_default();
    let labels = config.labels.unwrap_or_default();
    let is_sandbox = labels.get("io.kubernetes.docker.type").is_some_and(|kind| kind == "podsandbox");
    let of_pod =
        if is_sandbox { Some("sandbox".to_owned()) } else { of(&labels, &["io.kubernetes.container.name"]) };
    Some(Found {
        runtime: "docker",
        container: of_pod.or_else(|| name(said.name.trim_start_matches('/'))),
        image: config.image.as_deref().and_then(name),
        ..pod(&labels)
    })
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Stored {
    id: String,
    names: Option<Vec<String>>,
    metadata: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct Metadata {
    image_name: Option<String>,
    /// Only pods have it (CRI-O).
    pod_name: Option<String>,
}

/// containers.json of containers/storage: names of Podman's containers, by id. CRI-O's containers are named by their own files.
pub fn stored(text: &str) -> HashMap<String, Found> {
    let all: Vec<Stored> = serde_json::from_str(text).unwrap_or_default();
    let one = |stored: Stored| {
        let said: Metadata =
            stored.metadata.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        if said.pod_name.is_some_and(|pod| !pod.is_empty()) {
            return None;
        }
        let container = stored.names.iter().flatten().find_map(|text| name(text))?;
        let image = said.image_name.as_deref().and_then(name);
        Some((stored.id, Found { runtime: "podman", container: Some(container), image, ..Found::default() }))
    };
    all.into_iter().filter_map(one).collect()
}

/// A pod's folder of logs, `<namespace>_<pod>_<uid>` (pkg/kubelet/kuberuntime/helpers.go, BuildPodLogsDirectory): none of the
/// three can contain a "_".
pub fn pod_logs(folder: &str) -> Option<Found> {
    let mut parts = folder.split('_').map(name);
    let (namespace, pod, uid) = (parts.next()??, parts.next()??, parts.next()??);
    let found = Found { namespace: Some(namespace), pod: Some(pod), pod_uid: Some(uid), ..Found::default() };
    parts.next().is_none().then_some(found)
}

/// A container's link to its log, `<pod>_<namespace>_<container>-<id>.log`: the id, and the names.
pub fn container_log(file: &str) -> Option<(String, Found)> {
    let (rest, id) = file.strip_suffix(".log")?.rsplit_once('-')?;
    let is_id = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
    let mut parts = rest.split('_').map(name);
    let (pod, namespace, container) = (parts.next()??, parts.next()??, parts.next()??);
    let found =
        Found { container: Some(container), namespace: Some(namespace), pod: Some(pod), ..Found::default() };
    (is_id && parts.next().is_none()).then(|| (id.to_owned(), found))
}
