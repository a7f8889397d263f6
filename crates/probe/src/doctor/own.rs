//! Capabilities: the limits of whyslow itself.

use whyslow_model::{Bytes, Missing, Share};

use super::Capability;
use crate::budget::OwnBudget;
use crate::files::own_limits::OwnLimits;

/// Memory and CPU time that whyslow may use. A limit that costs nothing is no loss.
pub(super) fn limits(own: &OwnLimits) -> [Capability; 2] {
    let said = |found: &Result<Option<String>, Missing>, hides: bool| match found {
        Ok(Some(limit)) => limit.clone(),
        Ok(None) if hides => "none, as far as this container shows".to_owned(),
        Ok(None) => "none".to_owned(),
        Err(why) => why.to_string(),
    };
    let memory = own.memory.clone().map(|found| {
        found.map(|limit| {
            let [size, left] = [limit.limit, limit.left].map(Bytes);
            format!("{size} in cgroup {}, of which {left} are left", limit.cgroup)
        })
    });
    let cpu = own.cpu.clone().map(|found| {
        found.map(|limit| {
            let share = Share::of(limit.cpus, 1.0);
            let cost = if OwnBudget::is_scarce(limit.cpus) { ": answers take longer" } else { "" };
            format!(
                "whyslow itself runs under a CPU quota of {share} of a CPU in cgroup {}{cost}",
                limit.cgroup
            )
        })
    });
    let memory = match (OwnBudget::halvings(own), said(&memory, own.hides_memory)) {
        (Ok(0), said) => Ok(said),
        (Ok(_), said) => Err(format!("{said}; the tables are made smaller to fit")),
        (Err(error), _) => Err(error.to_string()),
    };
    let is_scarce =
        own.cpu.as_ref().ok().and_then(Option::as_ref).is_some_and(|limit| OwnBudget::is_scarce(limit.cpus));
    let said = said(&cpu, own.hides_cpu);
    let cpu = if is_scarce { Err(said) } else { Ok(said) };
    [
        Capability::new("own memory limit", "rows, stacks and locks beyond what smaller tables hold", memory),
        Capability::new(
            "own CPU quota",
            "CPU speed, IRQ latency, received packets, connections and work items; the answer comes later",
            cpu,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::own_limits::{CpuLimit, MemoryLimit};

    fn said(memory: Result<Option<u64>, Missing>, cpu: Result<Option<f64>, Missing>) -> [(bool, String); 2] {
        let limit =
            |left| MemoryLimit { cgroup: "/m".into(), limit: left + (1 << 20), left, is_hidden: false };
        let memory = memory.map(|m| m.map(limit));
        let cpu = cpu.map(|c| c.map(|cpus| CpuLimit { cgroup: "/c".into(), cpus }));
        limits(&OwnLimits { memory, cpu, hides_memory: false, hides_cpu: false })
            .map(|capability| (capability.ok, capability.why))
    }

    #[test]
    fn own_limits_are_always_reported() {
        assert_eq!(said(Ok(None), Ok(None)), [(true, "none".to_owned()), (true, "none".to_owned())]);
        let [memory, cpu] = said(Ok(Some(4 << 30)), Ok(Some(3.0)));
        assert!(memory.0 && memory.1.contains("in cgroup /m"), "{memory:?}");
        assert!(cpu.0 && cpu.1.contains("300 % of a CPU in cgroup /c"), "{cpu:?}");
        let [memory, cpu] = said(Ok(Some(69 << 20)), Ok(Some(0.1)));
        assert!(
            !memory.0 && memory.1.starts_with("70 MiB in cgroup /m, of which 69 MiB are left"),
            "{memory:?}"
        );
        assert!(!cpu.0 && cpu.1.contains("a CPU quota of 10 % of a CPU in cgroup /c: answers"), "{cpu:?}");
        let [memory, _] = said(Ok(Some(9 << 20)), Ok(None));
        assert!(!memory.0 && memory.1.contains("at least"), "{memory:?}");
        let unclear = || Missing::unclear("it", "garbage");
        let [memory, cpu] = said(Err(unclear()), Err(unclear()));
        assert!(
            memory.1.starts_with("cannot tell") && cpu.1.starts_with("cannot tell"),
            "{memory:?} {cpu:?}"
        );
    }
}
