//! Where systemd keeps its units and sessions, and which of its files belong to which cgroup.

use std::collections::{BTreeMap, HashMap, HashSet};

use whyslow_model::cgroup_path::CgroupPath;

use super::disk::Disk;
use super::login::{self, Account};
use super::unit::{self, Said};
use super::{PendingGroup, Place, SMALL};

/// Folders of system units, in falling precedence (systemd.unit(5)).
const SYSTEM: [&str; 12] = [
    "etc/systemd/system.control",
    "run/systemd/system.control",
    "run/systemd/transient",
    "run/systemd/generator.early",
    "etc/systemd/system",
    "etc/systemd/system.attached",
    "run/systemd/system",
    "run/systemd/generator",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
    "run/systemd/generator.late",
];
/// Folders of the units of all users; those of a single user come before them.
const USERS: [&str; 4] =
    ["etc/systemd/user", "run/systemd/user", "usr/local/lib/systemd/user", "usr/lib/systemd/user"];
/// The most that is read of a unit file: usually it is a page or two.
const UNIT: usize = 256 << 10;

/// What was listed and read so far.
#[derive(Default)]
pub struct Units {
    /// Names in a folder.
    folders: HashMap<String, HashSet<String>>,
    /// Descriptions, by user (`None`: the system's) and unit.
    said: HashMap<(Option<u32>, String), Option<String>>,
}

impl Units {
    /// Session files are in memory, unit files and users on a disk, a user's own units in the home folder.
    pub fn look(&mut self, disk: &Disk, place: Place, accounts: &[Account], asked: &mut [PendingGroup]) {
        for one in asked {
            // Cgroups inside a container are not in the host's files.
            let PendingGroup { known: known @ CgroupPath { container: None, pod: None, .. }, group } = one
            else {
                continue;
            };
            let Some(file) = known.unit_file.clone() else { continue };
            match place {
                Place::Memory => session(disk, known, &file, group),
                Place::Disk if group.user.is_none() => {
                    let account = accounts.iter().find(|account| Some(account.uid) == known.uid);
                    group.user = account.map(|account| account.name.clone());
                }
                _ => {}
            }
            let of_user = known.uid.filter(|_| known.of_user);
            let is_here = if of_user.is_some() { place == Place::Homes } else { place == Place::Disk };
            if is_here {
                group.description = self.description(disk, &file, of_user, accounts);
            }
        }
    }

    fn description(
        &mut self,
        disk: &Disk,
        file: &str,
        of_user: Option<u32>,
        accounts: &[Account],
    ) -> Option<String> {
        let key = (of_user, file.to_owned());
        if let Some(said) = self.said.get(&key) {
            return said.clone();
        }
        let folders: Vec<String> = match of_user {
            None => SYSTEM.map(str::to_owned).into(),
            Some(uid) => {
                let home = accounts.iter().find(|account| account.uid == uid);
                let own = home
                    .map(|account| format!("{}/.config/systemd/user", account.home.trim_end_matches('/')));
                let run = ["transient", "generator"].map(|name| format!("run/user/{uid}/systemd/{name}"));
                own.into_iter().chain(run).chain(USERS.map(str::to_owned)).collect()
            }
        };
        let said = self.read(disk, file, &folders);
        self.said.insert(key, said.clone());
        said
    }

    fn has(&mut self, disk: &Disk, folder: &str, name: &str) -> bool {
        let listed = || disk.list(folder).into_iter().collect();
        self.folders.entry(folder.to_owned()).or_insert_with(listed).contains(name)
    }

    /// The first file of that name, else of its template; then its drop-ins, by name, and of each name the one with the highest precedence.
    fn read(&mut self, disk: &Disk, file: &str, folders: &[String]) -> Option<String> {
        let names = unit::files_of(file);
        let main = names.iter().rev().find_map(|name| {
            let folder = folders.iter().find(|folder| self.has(disk, folder, name))?;
            Some(format!("{folder}/{name}"))
        });
        // A unit without a file is made by systemd itself; a unit that is a link to /dev/null does not run.
        let mut said = match main {
            Some(main) => unit::description(&disk.read(&main, UNIT)?),
            None => Said::Nothing,
        };
        for name in &names {
            let dropped = format!("{name}.d");
            let mut parts = BTreeMap::new();
            for folder in folders {
                if self.has(disk, folder, &dropped) {
                    let below = format!("{folder}/{dropped}");
                    for part in disk.list(&below).into_iter().filter(|part| part.ends_with(".conf")) {
                        parts.entry(part.clone()).or_insert_with(|| format!("{below}/{part}"));
                    }
                }
            }
            for part in parts.values() {
                let more = disk.read(part, UNIT).map_or(Said::Nothing, |text| unit::description(&text));
                said = if more == Said::Nothing { said } else { more };
            }
        }
        match said {
            Said::Description(text) => unit::specified(&text, file),
            Said::Nothing => None,
        }
    }
}

/// `session-<n>.scope` in the slice of its user.
fn session(disk: &Disk, known: &CgroupPath, file: &str, group: &mut whyslow_model::table::Group) {
    let number = file.strip_prefix("session-").and_then(|rest| rest.strip_suffix(".scope"));
    let (Some(number), Some(uid)) = (number, known.uid.filter(|_| !known.of_user)) else { return };
    let text = disk.read(&format!("run/systemd/sessions/{number}"), SMALL);
    if let Some(found) = text.and_then(|text| login::session(&text, uid, file)) {
        group.session = Some(number.to_owned());
        group.user = Some(found.user);
        group.tty = found.tty;
        group.remote_host = found.remote_host;
    }
}
