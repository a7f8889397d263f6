//! Selects what a name means: which pod, container, unit or user of those that were seen. If a name means none, or several, the
//! error lists the candidates.

use std::collections::{BTreeMap, BTreeSet};

use whyslow_model::Recording;
use whyslow_model::cgroup_path::{CgroupPath, ID_SHOWN};
use whyslow_model::table::{Cgroup, Group};

use super::{Focus, Unseen};
use crate::names::Names;

/// How many candidates are listed; more are counted.
const LISTED: usize = 10;
/// A shorter part of an id does not select: two hex digits fit one container in 256.
const SHORTEST_ID: usize = 4;

/// The selected subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Picked {
    /// Its cgroups, without the cgroups below them.
    pub groups: BTreeSet<u64>,
    /// The user.
    pub uid: Option<u32>,
    /// Its name in reports; "" if its first cgroup has that name.
    pub name: String,
}

/// One that may be selected.
#[derive(Default)]
struct Candidate {
    /// The text in the list of candidates.
    label: String,
    /// Each of these names selects it.
    names: BTreeSet<String>,
    /// The beginning of this id selects it, too.
    id: String,
    picked: Picked,
}

type Candidates = BTreeMap<String, Candidate>;

/// What `on` selects; `None`: it is a number or a path, which select themselves, or the tasks were not recorded.
pub fn pick(rec: &Recording, on: &Focus) -> Result<Option<Picked>, Unseen> {
    let (what, asked, all, way_out) = match on {
        Focus::Pid(_) | Focus::Name(_) | Focus::Cgroup(_) => return Ok(None),
        Focus::Pod(asked) => ("pod", asked, pods(rec), "its namespace (`shop/web-0`) or its uid"),
        Focus::Container(asked) => ("container", asked, containers(rec), "its id"),
        Focus::Unit(asked) => ("unit", asked, units(rec, asked), "`--cgroup` and its path"),
        Focus::User(asked) => ("user", asked, users(rec), "its number"),
    };
    let exact: Vec<&Candidate> = all.values().filter(|one| one.names.contains(asked)).collect();
    let by_id = |one: &&Candidate| asked.len() >= SHORTEST_ID && one.id.starts_with(asked.as_str());
    let found = if exact.is_empty() { all.values().filter(by_id).collect() } else { exact };
    match &found[..] {
        [one] => Ok(Some(one.picked.clone())),
        // The tasks were not recorded: the report has to say that.
        [] if rec.tables.tasks.is_none() => Ok(None),
        [] => {
            let seen = all.values().map(|one| one.label.as_str());
            Err(Unseen::Nothing { what, asked: asked.clone(), seen: listed(seen, asked) })
        }
        several => {
            let seen = listed(several.iter().map(|one| one.label.as_str()), asked);
            Err(Unseen::Several { what, asked: asked.clone(), seen, way_out })
        }
    }
}

/// The candidates that contain the asked words come first.
fn listed<'c>(labels: impl Iterator<Item = &'c str>, asked: &str) -> String {
    let asked = asked.to_lowercase();
    let mut all: Vec<&str> = labels.collect();
    all.sort_by_key(|label| (!label.to_lowercase().contains(&asked), *label));
    let more = all.len().saturating_sub(LISTED);
    all.truncate(LISTED);
    let listed = all.join(", ");
    if more > 0 { format!("{listed} and {more} more") } else { listed }
}

/// Each cgroup with what is known about it.
fn known<'r>(rec: &'r Recording) -> Vec<(&'r Cgroup, CgroupPath, Option<&'r Group>)> {
    let names = Names::of(rec);
    let one = |group: &'r Cgroup| {
        let known = CgroupPath::of(&group.path);
        let named = names.group(&group.path, &known);
        (group, known, named)
    };
    rec.tables.cgroups.iter().flatten().map(one).collect()
}

fn pods(rec: &Recording) -> Candidates {
    let mut all = Candidates::new();
    for (group, known, named) in known(rec) {
        let uid = known.pod.clone().or_else(|| named?.pod_uid.clone());
        let full = named.and_then(Group::full_pod);
        let Some(key) = uid.clone().or_else(|| full.clone()) else { continue };
        let pod = all.entry(key.clone()).or_default();
        if let Some(full) = &full {
            pod.picked.name = format!("pod {full}");
        }
        pod.names.extend(full.iter().cloned().chain(named.and_then(|named| named.pod.clone())));
        pod.names.extend(uid.iter().cloned());
        let short = uid.as_ref().map(|uid| format!(" ({})", uid.get(..8).unwrap_or(uid)));
        pod.label = match full {
            Some(full) => full + &short.unwrap_or_default(),
            None if pod.label.is_empty() => key.clone(),
            None => std::mem::take(&mut pod.label),
        };
        pod.id = uid.unwrap_or_default();
        pod.picked.groups.insert(group.id);
    }
    all
}

fn containers(rec: &Recording) -> Candidates {
    let mut all = Candidates::new();
    for (group, known, named) in known(rec) {
        let Some(is) = known.container.filter(|container| !container.is_monitor) else { continue };
        let one = all.entry(is.id.clone()).or_default();
        let name = named.filter(|named| named.container_id.as_ref() == Some(&is.id));
        let name = name.and_then(|named| named.container.clone()).or_else(|| named?.machine.clone());
        let pod = named.and_then(Group::full_pod).map(|pod| format!(" in pod {pod}")).unwrap_or_default();
        let short = is.id.get(..ID_SHOWN).unwrap_or(&is.id);
        one.label =
            name.as_ref().map_or_else(|| is.short().to_owned(), |name| format!("{name}{pod} ({short})"));
        one.names.extend(name.into_iter().chain([is.id.clone()]));
        one.id = is.id;
        one.picked.groups.insert(group.id);
    }
    all
}

/// Units by path: each user has units of the same names, and so has each container. A cgroup with that name that is no unit counts, too.
fn units(rec: &Recording, asked: &str) -> Candidates {
    let mut all = Candidates::new();
    for group in rec.tables.cgroups.iter().flatten() {
        let is_unit = CgroupPath::of(&group.path).unit_file.as_ref() == Some(&group.name);
        let is_named = || group.name == asked || group.name.strip_suffix(".service") == Some(asked);
        if group.id == 0 || !(is_named() || is_unit && !group.name.ends_with(".slice")) {
            continue;
        }
        let one = all.entry(group.path.clone()).or_default();
        let short = group.name.strip_suffix(".service").map(str::to_owned);
        one.label.clone_from(&group.path);
        one.names.extend(short.into_iter().chain([group.name.clone()]));
        one.picked.groups.insert(group.id);
    }
    all
}

fn users(rec: &Recording) -> Candidates {
    let mut all = Candidates::new();
    let seen: BTreeSet<u32> =
        rec.tables.tasks.iter().flatten().filter(|task| !task.kthread).filter_map(|task| task.uid).collect();
    for uid in seen {
        let called = |user: &&whyslow_model::table::User| user.uid == uid;
        let names: Vec<String> =
            rec.tables.users.iter().flatten().filter(called).map(|user| user.name.clone()).collect();
        let name = names.first().cloned().unwrap_or_else(|| uid.to_string());
        let label = if names.is_empty() { name.clone() } else { format!("{name} ({uid})") };
        let picked = Picked { uid: Some(uid), name: format!("user {name}"), ..Picked::default() };
        let names = names.into_iter().chain([uid.to_string()]).collect();
        all.insert(uid.to_string(), Candidate { label, names, id: String::new(), picked });
    }
    all
}
