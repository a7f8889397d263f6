//! What of us fits into the limits that hold us: decided before the first map is made.
//!
//! Who meets a memory limit is killed, with the answer in hand; who has a tenth of a CPU answers ten times as late. So first
//! the tables are halved until they fit, then, of a CPU that is scarce, what few ask for is not loaded. What is shed is said.

use whyslow_model::{Bytes, Missing, Share};

use crate::bpf::room::MOST_HALVINGS;
use crate::bpf::{connect, late, latency, napi, shared, work};
use crate::files::own_limits::{CpuLimit, OwnLimits};
use crate::speed;

const MIB: u64 = 1 << 20;
/// Memory of our own beside the tables: 17 MiB were measured here (5 MB of symbols twice, types, rows and the report), and
/// twice that where modules have symbols, too. Code is page cache, which can be given back.
const OWN: u64 = 28 * MIB;
/// Whole tables of a look at the host (measured: 116 MiB on 2 CPUs) ...
const TABLES: u64 = 117 * MIB;
/// ... and what system calls of followed tasks take beside (163 MiB in all).
const TABLES_OF_CALLS: u64 = 48 * MIB;
/// Tables that are not halved: of CPUs, places by hash, programs.
const FIXED: u64 = 3 * MIB;
/// Bytes of a spare place in all tables by pid, with and without system calls.
const PLACE: u64 = 1024;
/// With less than this of a CPU the answer would be late by seconds: loading takes 0.6 s of CPU.
const SCARCE: f64 = 0.5;
/// How often the tables are halved where CPU time is scarce: making and freeing whole ones takes 60 ms.
const HALVINGS_WHEN_SCARCE: u32 = 2;

/// How much of us there is to be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fit {
    /// How often each table is halved.
    pub(crate) halvings: u32,
    /// What few ask for is left out, for this reason.
    pub(crate) thrift: Option<String>,
    /// Why, in words for the user.
    reasons: Vec<String>,
    /// Limits that may be there, and that nobody could read. Of memory that is said before: who is killed says nothing after.
    unknown_memory: Option<Missing>,
    unknown_cpu: Option<Missing>,
}

/// Not even the smallest tables fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the memory limit of cgroup {cgroup} ({limit}) leaves {left}, and whyslow needs at least {needed} there: it would be \
     killed; the way out is to raise that limit, or to start whyslow in another cgroup"
)]
pub struct DoesNotFit {
    cgroup: String,
    limit: Bytes,
    left: Bytes,
    needed: Bytes,
}

impl Fit {
    /// Into the limits of this process. `follows`: system calls of some are to be told, too.
    pub fn here(follows: bool) -> Result<Self, DoesNotFit> {
        Self::into(&OwnLimits::read(), shared::threads(), follows)
    }

    fn into(limits: &OwnLimits, threads: u32, follows: bool) -> Result<Self, DoesNotFit> {
        let mut fit = Fit {
            unknown_memory: limits.memory.as_ref().err().cloned(),
            unknown_cpu: limits.cpu.as_ref().err().cloned(),
            ..Fit::default()
        };
        if let Ok(Some(memory)) = &limits.memory {
            let fitting =
                (0..=MOST_HALVINGS).find(|halvings| need(*halvings, threads, follows) <= memory.left);
            fit.halvings = fitting.ok_or_else(|| DoesNotFit {
                cgroup: memory.cgroup.clone(),
                limit: Bytes(memory.limit),
                left: Bytes(memory.left),
                needed: Bytes(need(MOST_HALVINGS, threads, follows)),
            })?;
            if fit.halvings > 0 {
                let [limit, left] = [memory.limit, memory.left].map(Bytes);
                let whole = Bytes(need(0, threads, follows));
                fit.reasons.push(format!(
                    "whyslow itself runs under a memory limit of {limit} in cgroup {}, which leaves {left}, and needs \
                     {whole} for whole tables",
                    memory.cgroup
                ));
            }
        }
        if let Ok(Some(cpu)) = &limits.cpu {
            fit.save(cpu);
        }
        Ok(fit)
    }

    /// Whether whole tables of a look at the host fit. An error: not the smallest do.
    pub(crate) fn has_whole_tables(limits: &OwnLimits) -> Result<bool, DoesNotFit> {
        let limits = OwnLimits { cpu: Ok(None), ..limits.clone() };
        Self::into(&limits, shared::threads(), false).map(|fit| fit.halvings == 0)
    }

    /// With so much of a CPU our answers are late.
    pub(crate) fn is_scarce(cpus: f64) -> bool {
        cpus < SCARCE
    }

    fn save(&mut self, cpu: &CpuLimit) {
        if !Self::is_scarce(cpu.cpus) {
            return;
        }
        let share = Share::of(cpu.cpus, 1.0);
        let why = format!(
            "whyslow itself runs under a CPU quota of {share} of a CPU in cgroup {}: answers take longer",
            cpu.cgroup
        );
        self.halvings = self.halvings.max(HALVINGS_WHEN_SCARCE);
        self.reasons.push(why.clone());
        self.thrift = Some(why);
    }

    /// What the user is to know before the window.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let unknown = self.unknown_memory.iter().map(ToString::to_string);
        let all: Vec<String> = self.reasons.iter().cloned().chain(unknown).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// What is shed, and why. `measures_speeds`: the speed of CPUs is what was asked for.
    pub(crate) fn notes(&self, measures_speeds: bool) -> Vec<Missing> {
        let tables = (!self.reasons.is_empty()).then(|| {
            let why = self.reasons.join("; ");
            let part = 1u32 << self.halvings;
            let reason = format!(
                "{why}; each table has 1/{part} of its rows, and what finds no room is counted as lost \
                 (own_cost.lost_events)"
            );
            Missing::skipped("a part of the tables", reason)
        });
        let unknown = [&self.unknown_memory, &self.unknown_cpu].into_iter().flatten().cloned();
        let mut notes: Vec<Missing> = tables.into_iter().chain(unknown).collect();
        if let Some(why) = &self.thrift {
            let shed = [late::WHAT, late::CALLS, napi::WHAT, connect::WHAT, work::WHAT, latency::WHAT];
            let shed = shed.into_iter().chain((!measures_speeds).then_some(speed::WHAT));
            notes.extend(shed.map(|what| Missing::skipped(what, why)));
        }
        notes
    }
}

/// Bytes in all.
fn need(halvings: u32, threads: u32, follows: bool) -> u64 {
    let tables = TABLES + if follows { TABLES_OF_CALLS } else { 0 };
    let places = u64::from(shared::spares(threads, halvings).saturating_sub(shared::spares(0, halvings)));
    OWN + FIXED + (tables >> halvings) + places * PLACE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::own_limits::MemoryLimit;

    fn limits(left: Option<u64>, cpus: Option<f64>) -> OwnLimits {
        let memory = left.map(|left| MemoryLimit { cgroup: "/m".into(), limit: left + 3 * MIB, left });
        let cpu = cpus.map(|cpus| CpuLimit { cgroup: "/c".into(), cpus });
        OwnLimits { memory: Ok(memory), cpu: Ok(cpu), is_hidden_above: false }
    }

    fn fit(left: Option<u64>, cpus: Option<f64>) -> Fit {
        Fit::into(&limits(left, cpus), 200, false).unwrap()
    }

    #[test]
    fn without_limits_or_with_wide_ones_nothing_is_shed_and_nothing_said() {
        for (left, cpus) in [(None, None), (Some(1 << 30), Some(2.0)), (Some(150 * MIB), Some(0.5))] {
            let fit = fit(left, cpus);
            assert_eq!(fit, Fit::default());
            assert_eq!((fit.notes(false), fit.warning()), (Vec::new(), None));
        }
    }

    #[test]
    fn a_memory_limit_that_cannot_be_read_is_said_and_nothing_is_shed_for_it() {
        let unclear = |what| Missing::unclear(what, "y");
        let unknown = OwnLimits { memory: Err(unclear("m")), cpu: Err(unclear("c")), is_hidden_above: true };
        let fit = Fit::into(&unknown, 200, true).unwrap();
        assert_eq!((fit.halvings, &fit.thrift), (0, &None));
        assert_eq!(fit.notes(false), [unclear("m"), unclear("c")]);
        let said = fit.warning().expect("who is killed there finds it nowhere else");
        assert!(
            said.contains(&unclear("m").to_string()) && !said.contains(&unclear("c").to_string()),
            "{said}"
        );
        let scarce = OwnLimits { cpu: limits(None, Some(0.1)).cpu, ..unknown };
        let notes = Fit::into(&scarce, 200, true).unwrap().notes(false);
        assert!(
            notes.contains(&unclear("m")) && notes.iter().any(|note| note.what() == "a part of the tables")
        );
    }

    #[test]
    fn tables_are_halved_until_they_fit_and_the_limit_is_named() {
        assert_eq!(fit(Some(100 * MIB), None).halvings, 1);
        let tight = fit(Some(47 * MIB), None);
        assert_eq!(tight.halvings, 3);
        let notes = tight.notes(false);
        let [Missing::Skipped { what, reason }] = &notes[..] else { panic!("{notes:?}") };
        assert_eq!(what, "a part of the tables");
        for word in
            ["a memory limit of 50 MiB in cgroup /m", "leaves 47 MiB", "needs 148 MiB", "1/8 of its rows"]
        {
            assert!(reason.contains(word), "{word}: {reason}");
        }
        assert!(
            Fit::into(&limits(Some(50 * MIB), None), 200, true).unwrap().halvings > 3,
            "`run` needs more"
        );
    }

    #[test]
    fn what_does_not_fit_says_where_and_how_much_it_needs() {
        let said = Fit::into(&limits(Some(30 * MIB), None), 200, false).unwrap_err().to_string();
        for word in ["cgroup /m (33 MiB)", "leaves 30 MiB", "at least 38 MiB"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        assert!(Fit::into(&limits(Some(0), None), u32::MAX, true).is_err());
        assert!(
            Fit::into(&limits(Some(41 * MIB), None), u32::MAX, true).is_err(),
            "a crowd needs more places"
        );
    }

    #[test]
    fn with_a_tenth_of_a_cpu_the_quota_is_named_and_what_few_ask_for_is_left_out() {
        let thrifty = fit(None, Some(0.1));
        assert!(thrifty.thrift.is_some());
        let notes = thrifty.notes(false);
        let quota = "a CPU quota of 10 % of a CPU in cgroup /c: answers take longer";
        assert!(notes.iter().all(|note| note.to_string().contains(quota)), "{notes:?}");
        for what in ["CPU speed", "late CPUs", "cross-CPU calls", "a part of the tables"] {
            assert!(notes.iter().any(|note| note.what() == what), "{what}: {notes:?}");
        }
        assert!(thrifty.warning().unwrap().contains(quota));
        assert!(
            !thrifty.notes(true).iter().any(|note| note.what() == "CPU speed"),
            "`whyslow cpu` asks for it"
        );
    }

    #[test]
    fn both_limits_are_named() {
        let both = fit(Some(47 * MIB), Some(0.1));
        assert_eq!(both.halvings, 3);
        let warning = both.warning().unwrap();
        assert!(warning.contains("memory limit") && warning.contains("CPU quota"), "{warning}");
        let both = fit(Some(100 * MIB), Some(0.1));
        let said: Vec<String> = both.notes(false).iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|note| note.contains("memory limit")), "{said:?}");
        assert!(said.iter().any(|note| note.contains("CPU quota")), "{said:?}");
    }
}
