//! How many cgroups, namespaces and mounts are made, by which process tree? The kernel half is `churn.bpf.c`, and for calls that have no
//! event of their own (unshare, setns, mount, umount) `failed.bpf.c`.

use std::mem::MaybeUninit;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore, MapFlags, OpenObject};
use whyslow_model::Missing;
pub(super) use whyslow_model::churn::Churn;
use whyslow_model::churn::ChurnKind;
#[cfg(test)]
pub(super) use whyslow_model::churn::Population;

use super::populations::Populations;
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
    of_waits: true,
    start: |slot, _| Ok(Some(Box::new(Probed::load(slot).map_err(|err| missing(WHAT, &err))?))),
};

/// The loaded probe. Dropping it detaches it from the kernel.
struct Probed<'slot> {
    skel: skel::ChurnSkel<'slot>,
    populations: Populations,
}

impl<'slot> Probed<'slot> {
    fn load(slot: &'slot mut MaybeUninit<OpenObject>) -> libbpf_rs::Result<Self> {
        let mut open = types::builder::<skel::ChurnSkelBuilder>().open(slot)?;
        map_sizes::apply(open.open_object_mut())?;
        Ok(Self { skel: open.load()?, populations: Populations::default() })
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
    /// Children of `own` are starters.
    fn leave_out(&mut self, own: u32) {
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.own_tgid = own;
        }
    }

    fn begin(&mut self) -> Result<(), Missing> {
        clear(&self.skel.maps.churns);
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.began = host::monotonic_ns();
            bss.populations = Default::default();
        }
        self.attach().map_err(|err| missing(WHAT, &err))
    }

    fn poll(&mut self, at: Duration) -> bool {
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            self.populations.look(at, bss.populations.iter_mut().map(|one| (one.of, &mut one.count)));
        }
        false
    }

    fn stop(&mut self, window: Duration) -> Result<(), Missing> {
        self.poll(window);
        Ok(())
    }

    fn finish(&mut self, ending: &mut Ending<'_>) -> Result<(), Missing> {
        self.skel.links = skel::ChurnLinks::default();
        ending.tables.churn.get_or_insert_default().extend(rows(&self.skel.maps.churns, 0));
        self.populations.add_to(ending.tables.populations.get_or_insert_default());
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

#[cfg(test)]
#[path = "churn_tests.rs"]
mod tests;
