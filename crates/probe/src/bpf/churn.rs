//! How many cgroups, namespaces and mounts are made, by which process tree? The kernel half is `churn.bpf.c`, and for calls that have no
//! event of their own (unshare, setns, mount, umount) `failed.bpf.c`.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore, MapFlags, OpenObject};
use whyslow_model::Missing;
pub(super) use whyslow_model::churn::Churn;
use whyslow_model::churn::ChurnKind;

use super::{clear, map_sizes, missing, text, types, value};
use crate::host;
use crate::probes::{Ending, Entry, LoadOrder, Probe};

skeleton!("churn");
use skel::types::{churn_count, churn_key};

// SAFETY: generated from the C struct; integers only.
unsafe impl plain::Plain for churn_key {}
// SAFETY: as above, and bytes; without padding.
unsafe impl plain::Plain for churn_count {}

/// The name of this probe in reports.
pub const WHAT: &str = whyslow_model::Probe::Churn.word();

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    capability: "BPF: cgroups and namespaces made",
    lost: "how often cgroups and namespaces are made and removed, and by what",
    load: LoadOrder::BesideScheduler,
    follows: false,
    shed: &[WHAT],
    of_waits: false,
    start: |slot, _| Ok(Some(Box::new(Probed::load(slot).map_err(|err| missing(WHAT, &err))?))),
};

/// The loaded probe. Dropping it detaches it from the kernel.
struct Probed<'slot> {
    skel: skel::ChurnSkel<'slot>,
}

impl<'slot> Probed<'slot> {
    fn load(slot: &'slot mut MaybeUninit<OpenObject>) -> libbpf_rs::Result<Self> {
        let mut open = types::builder::<skel::ChurnSkelBuilder>().open(slot)?;
        map_sizes::apply(open.open_object_mut())?;
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            rodata.own_tgid = std::process::id();
        }
        Ok(Self { skel: open.load()? })
    }

    fn attach(&mut self) -> libbpf_rs::Result<()> {
        let progs = &self.skel.progs;
        self.skel.links = skel::ChurnLinks {
            made: Some(progs.made.attach()?),
            removed: Some(progs.removed.attach()?),
            joined: Some(progs.joined.attach()?),
            cloned: Some(progs.cloned.attach()?),
        };
        Ok(())
    }
}

impl Probe for Probed<'_> {
    fn begin(&mut self) -> Result<(), Missing> {
        clear(&self.skel.maps.churns);
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.began = host::monotonic_ns();
        }
        self.attach().map_err(|err| missing(WHAT, &err))
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        self.skel.links = skel::ChurnLinks::default();
        let rows = rows(&self.skel.maps.churns, 0);
        ending.tables.churn = Some(merged(ending.tables.churn.take().unwrap_or_default(), rows));
        ending.lost(WHAT, self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.churn_lost));
        Ok(())
    }
}

/// The counts of one kernel half, which did not count for `away_ns`.
pub(super) fn rows(map: &impl MapCore, away_ns: u64) -> Vec<Churn> {
    let counts = map.keys().filter_map(|key| {
        let count: churn_count = value(&map.lookup(&key, MapFlags::ANY).ok()??);
        let key: churn_key = value(&key);
        let what = ChurnKind::ALL.get(usize::try_from(key.what).ok()?)?;
        Some(Churn {
            tgid: key.tgid,
            begun_ns: count.begun_ns,
            comm: text(&count.comm),
            what: what.word().to_owned(),
            count: count.count,
            away_ns,
        })
    });
    counts.collect()
}

/// Both halves count namespaces: clone here, unshare there. Most often first.
pub(super) fn merged(one: Vec<Churn>, other: Vec<Churn>) -> Vec<Churn> {
    let mut all: BTreeMap<(u32, String), Churn> = BTreeMap::new();
    for row in one.into_iter().chain(other) {
        let known = all.entry((row.tgid, row.what.clone())).or_insert_with(|| Churn {
            count: 0,
            away_ns: 0,
            ..row.clone()
        });
        known.count = known.count.saturating_add(row.count);
        known.away_ns = known.away_ns.max(row.away_ns);
    }
    let mut all: Vec<Churn> = all.into_values().collect();
    all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| (a.tgid, &a.what).cmp(&(b.tgid, &b.what))));
    all
}

#[cfg(test)]
#[path = "churn_tests.rs"]
mod tests;
