//! Which number does a task have in our pid namespace? The kernel half is `pidns.bpf.c`. In the initial namespace it is not needed.

use std::collections::HashMap;
use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, OpenObject};
use whyslow_model::Missing;

use super::{missing, types, walk};
use crate::pid_map::Numbers;

skeleton!("pidns");

/// The name of this probe in reports.
pub const WHAT: &str = "process ids of this pid namespace";

/// Entries of the map of ids that are read at once: all of them.
const MOST: u32 = super::constants::pidns_c::MAX_NUMBERS;
/// As in the kernel half: the task cannot be seen in our namespace; more than one task had the number.
const NOT_OURS: u32 = 0;
const REUSED: u32 = u32::MAX;

/// The running probe. Dropping it detaches it from the kernel.
pub struct PidNamespace<'slot> {
    skel: skel::PidnsSkel<'slot>,
    walk: Link,
}

impl<'slot> PidNamespace<'slot> {
    /// Load, attach, and note the tasks that are there. `above`: so many levels is /proc's namespace above ours.
    pub fn start(slot: &'slot mut MaybeUninit<OpenObject>, above: u32) -> Result<Self, Missing> {
        let probe = Self::load(slot, above).map_err(|err| missing(WHAT, &err))?;
        walk(WHAT, &probe.walk)?;
        Ok(probe)
    }

    fn load(slot: &'slot mut MaybeUninit<OpenObject>, above: u32) -> libbpf_rs::Result<Self> {
        let mut open = types::builder::<skel::PidnsSkelBuilder>().open(slot)?;
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            rodata.above = above;
        }
        let mut skel = open.load()?;
        let walk = skel.progs.walk.attach()?;
        skel.links.made = Some(skel.progs.made.attach()?);
        Ok(Self { skel, walk })
    }

    /// Our own process, as BPF knows it.
    #[must_use]
    pub fn own(&self) -> u32 {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.own_tgid)
    }

    /// The numbers of all living tasks, and of tasks that ended, as long as there was room.
    pub fn numbers(&self) -> Result<Numbers, Missing> {
        walk(WHAT, &self.walk)?; // living tasks have not been forgotten
        let map = &self.skel.maps.numbers;
        let number = |bytes: &[u8]| bytes.first_chunk().map(|word| u32::from_ne_bytes(*word));
        let all = map.lookup_batch(MOST, MapFlags::ANY, MapFlags::ANY).map_err(|err| missing(WHAT, &err))?;
        let pairs = all.filter_map(|(global, shown)| Some((number(&global)?, number(&shown)?)));
        let pairs = pairs.filter(|(_, shown)| ![NOT_OURS, REUSED].contains(shown));
        Ok(Numbers::from(pairs.collect::<HashMap<u32, u32>>()))
    }

    /// Births in the window may have been more than the map keeps.
    #[must_use]
    pub fn is_full(&self) -> bool {
        // The kernel drops the oldest before all places are taken, by lists of each CPU.
        self.skel.maps.bss_data.as_ref().is_some_and(|bss| bss.births > u64::from(MOST / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sched::tests::{Child, HOME};
    use super::*;
    use crate::test_pids::LargePids;

    /// A task of ours, and after it another one, or the other way round: it is not known which of them a row was about.
    #[test]
    fn root_a_number_that_was_a_strangers_too_is_nobodys() {
        let _large = LargePids::new();
        let mut slot = MaybeUninit::uninit();
        let mut probe = PidNamespace::start(&mut slot, 0).expect("root may load it");
        let ours = probe.skel.maps.bss_data.as_ref().unwrap().ours;
        // There is no namespace: a task that is born then cannot be seen in it.
        let mut born = |pid: u32, namespace: u64| {
            probe.skel.maps.bss_data.as_mut().unwrap().ours = namespace;
            drop(Child::of_pid(pid));
            probe.skel.maps.bss_data.as_mut().unwrap().ours = ours;
        };
        let [once, twice, lost, won, strange] = [7, 8, 9, 10, 11].map(|n| HOME + n);
        born(once, ours);
        born(twice, ours);
        born(twice, ours);
        born(lost, ours);
        born(lost, 1);
        born(won, 1);
        born(won, ours);
        born(strange, 1);
        let numbers = probe.numbers().unwrap();
        let inside = [once, twice, lost, won, strange].map(|pid| numbers.inside(pid));
        assert_eq!(inside, [Some(once), Some(twice), None, None, None]);
        assert_eq!(numbers.shown(lost), crate::pid_map::OUTSIDE + lost);
        assert_eq!(numbers.inside(std::process::id()), Some(std::process::id()), "a living task is known");
    }
}
