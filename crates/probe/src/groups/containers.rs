//! Where container runtimes keep their files, and which runtime's files are read for which cgroup.

use std::collections::HashMap;

use whyslow_model::cgroup_path::Contained;

use super::disk::Disk;
use super::found::{self, Found};
use super::login::{self, Account};
use super::{PendingGroup, Place, SMALL};

/// Bundles of containerd's shims (runtime/v2/bundle.go), by itself and as k3s, RKE2, k0s and MicroK8s set it up.
const BUNDLES: [&str; 4] = [
    "run/containerd/io.containerd.runtime.v2.task",
    "run/k3s/containerd/io.containerd.runtime.v2.task",
    "run/k0s/containerd/io.containerd.runtime.v2.task",
    "var/snap/microk8s/common/run/containerd/io.containerd.runtime.v2.task",
];
/// containers/storage: the folder for running containers, and the lasting folder.
const RUNS: &str = "run/containers/storage/overlay-containers";
const STAYS: &str = "var/lib/containers/storage/overlay-containers";
/// The list of all containers of a storage: 1 kB each.
const LISTS: usize = 16 << 20;
/// A container's files: they hold its environment and mounts.
const LARGE: usize = 4 << 20;

/// What was found, by the container's id.
#[derive(Default)]
pub struct Containers {
    known: HashMap<String, Found>,
    bundles: Option<Vec<String>>,
    machines: Option<HashMap<String, String>>,
}

impl Containers {
    /// Looks in one place for all containers that have no name yet.
    pub fn look(&mut self, disk: &Disk, place: Place, accounts: &[Account], asked: &mut [PendingGroup]) {
        if !asked
            .iter()
            .any(|one| one.known.container.is_some() || one.known.pod.is_some() || one.known.unit.is_some())
        {
            return;
        }
        if place == Place::Memory {
            self.machines(disk, asked);
        }
        let mut listed: HashMap<String, HashMap<String, Found>> = HashMap::new();
        for one in asked.iter() {
            let Some(container) = one.known.container.as_ref().filter(|container| is_id(container)) else {
                continue;
            };
            if self.known.contains_key(&container.id) {
                continue;
            }
            let home = || home_of(one.known.uid?, accounts);
            let found = match place {
                Place::Memory => self.in_memory(disk, &container.id),
                Place::Disk => on_disk(disk, &container.id, &mut listed),
                Place::Homes => home().and_then(|home| {
                    at_home(disk, home, one.known.uid.unwrap_or_default(), &container.id, &mut listed)
                }),
            };
            if let Some(found) = found {
                self.known.insert(container.id.clone(), found);
            }
        }
        let logs = if place == Place::Disk { logs(disk, asked, &mut self.known) } else { HashMap::new() };
        self.give(asked, &logs);
    }

    /// CRI, nerdctl and CRI-O write the whole specification into /run.
    fn in_memory(&mut self, disk: &Disk, id: &str) -> Option<Found> {
        let bundles = self.bundles.get_or_insert_with(|| {
            let below = |root: &&str| {
                disk.list(root).into_iter().map(|name| format!("{root}/{name}")).collect::<Vec<_>>()
            };
            BUNDLES.iter().flat_map(below).collect()
        });
        let files = bundles.iter().map(|bundle| format!("{bundle}/{id}/config.json"));
        let files = files.chain([format!("{RUNS}/{id}/userdata/config.json")]);
        files.into_iter().find_map(|file| found::bundle(&disk.read(&file, LARGE)?, id))
    }

    fn machines(&mut self, disk: &Disk, asked: &mut [PendingGroup]) {
        const FOLDER: &str = "run/systemd/machines";
        let machines = self.machines.get_or_insert_with(|| {
            // Other links lead from units to machines.
            let files = disk.list(FOLDER).into_iter().filter(|file| !file.contains(':'));
            files
                .filter_map(|file| login::machine(&disk.read(&format!("{FOLDER}/{file}"), SMALL)?, &file))
                .collect()
        });
        for one in asked {
            // The innermost machine; the host's files do not name machines inside a container.
            let inside =
                one.known.container.as_ref().is_some_and(|container| container.engine != Some("machine"));
            let machine = one.group.path.rsplit('/').find_map(|part| machines.get(part));
            one.group.machine = machine.filter(|_| !inside).cloned();
        }
    }

    /// Give each container its name. A pod without a name gets the name that its containers' files say.
    fn give(&self, asked: &mut [PendingGroup], logs: &HashMap<String, Found>) {
        let mut pods: HashMap<String, Found> = logs.clone();
        for one in asked.iter_mut() {
            let Some(container) = &one.known.container else { continue };
            let Some(found) = self.known.get(&container.id).filter(|found| is_in_pod(one, found)) else {
                continue;
            };
            let engine = container.engine.unwrap_or_default();
            let runtime = if found.runtime.is_empty() { engine } else { found.runtime };
            let group = &mut one.group;
            group.runtime = found::name(runtime);
            group.container_id = Some(container.id.clone());
            group.container.clone_from(&found.container);
            group.image.clone_from(&found.image);
            group.pod.clone_from(&found.pod);
            group.namespace.clone_from(&found.namespace);
            group.pod_uid = one.known.pod.clone().or_else(|| found.pod_uid.clone());
            if let Some(uid) = one.known.pod.as_ref().filter(|_| found.pod.is_some()) {
                pods.entry(uid.clone()).or_insert_with(|| found.clone());
            }
        }
        for one in asked.iter_mut().filter(|one| one.group.pod.is_none()) {
            let Some(uid) = &one.known.pod else { continue };
            if let Some(found) = pods.get(uid) {
                one.group.pod.clone_from(&found.pod);
                one.group.namespace.clone_from(&found.namespace);
                one.group.pod_uid = Some(uid.clone());
            }
        }
    }
}

/// A container whose file names another pod than its cgroup does is not believed.
fn is_in_pod(one: &PendingGroup, found: &Found) -> bool {
    match (&one.known.pod, &found.pod_uid) {
        (Some(is), Some(said)) => is == said,
        _ => true,
    }
}

/// Machines and LXC containers have names instead.
fn is_id(container: &Contained) -> bool {
    !matches!(container.engine, Some("machine" | "lxc"))
}

type Listed = HashMap<String, HashMap<String, Found>>;

fn on_disk(disk: &Disk, id: &str, listed: &mut Listed) -> Option<Found> {
    let docker =
        || found::docker(&disk.read(&format!("var/lib/docker/containers/{id}/config.v2.json"), LARGE)?, id);
    let bundle = || found::bundle(&disk.read(&format!("{STAYS}/{id}/userdata/config.json"), LARGE)?, id);
    docker().or_else(bundle).or_else(|| in_storage(disk, &[STAYS, RUNS], id, listed))
}

/// Containers that a user runs without root.
fn at_home(disk: &Disk, home: &str, uid: u32, id: &str, listed: &mut Listed) -> Option<Found> {
    let share = format!("{home}/.local/share");
    let docker = format!("{share}/docker/containers/{id}/config.v2.json");
    let docker = || found::docker(&disk.read(&docker, LARGE)?, id);
    let stays = format!("{share}/containers/storage/overlay-containers");
    let runs = format!("run/user/{uid}/containers/overlay-containers");
    in_storage(disk, &[&stays, &runs], id, listed).or_else(docker)
}

/// Podman's names are in the lists of its storage: containers that do not outlive the boot are in the second list.
fn in_storage(disk: &Disk, folders: &[&str], id: &str, listed: &mut Listed) -> Option<Found> {
    let files = folders.iter().flat_map(|folder| {
        ["containers.json", "volatile-containers.json"].map(|file| format!("{folder}/{file}"))
    });
    files.into_iter().find_map(|file| {
        let read = || disk.read(&file, LISTS).map(|text| found::stored(&text)).unwrap_or_default();
        listed.entry(file.clone()).or_insert_with(read).get(id).cloned()
    })
}

/// kubelet's log folders name pods by their uid, and its links name containers by their id, for every runtime.
fn logs(disk: &Disk, asked: &[PendingGroup], known: &mut HashMap<String, Found>) -> HashMap<String, Found> {
    if asked.iter().all(|one| one.known.pod.is_none()) {
        return HashMap::new();
    }
    for (id, found) in disk.list("var/log/containers").iter().filter_map(|file| found::container_log(file)) {
        known.entry(id).or_insert(found);
    }
    let pods = disk.list("var/log/pods");
    let by_uid = |folder: &String| {
        let found = found::pod_logs(folder)?;
        Some((found.pod_uid.clone()?, found))
    };
    pods.iter().filter_map(by_uid).collect()
}

fn home_of(uid: u32, accounts: &[Account]) -> Option<&str> {
    let home = accounts.iter().find(|account| account.uid == uid)?.home.trim_end_matches('/');
    (home.len() > 1).then_some(home)
}
