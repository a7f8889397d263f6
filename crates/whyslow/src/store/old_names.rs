//! Names in recordings from before November 2026, and today's names for them. For fields, `serde` knows the old names.

use whyslow_model::{MissingNote, Probe, Recording};

/// The old name of the probe for IRQ latency.
const LATE_CPUS: &str = "late CPUs";

/// Today's name of a table.
pub fn table(name: &str) -> &str {
    if name == "latenesses" { "irq_latencies" } else { name }
}

/// Renames the probes in the notes on missing data and in the lost events: a table that lost rows must not count as complete.
pub fn renew(recording: &mut Recording) {
    let today = Probe::IrqLatency.word();
    for (probe, _) in recording.meta.lost_events.iter_mut().filter(|(probe, _)| probe == LATE_CPUS) {
        today.clone_into(probe);
    }
    for note in recording.missing.iter_mut().filter(|note| note.missing.what() == LATE_CPUS) {
        *note = MissingNote::from(note.missing.clone().called(today));
    }
}

#[cfg(test)]
mod tests {
    use whyslow_model::Missing;

    use super::*;

    #[test]
    fn old_probe_and_table_names_become_todays_names() {
        let mut recording = Recording::default();
        recording.meta.lost_events = vec![(LATE_CPUS.into(), 7), ("task list".into(), 8)];
        recording.missing = [LATE_CPUS, "task list"].map(|what| Missing::not_recorded(what).into()).to_vec();
        renew(&mut recording);
        assert_eq!(recording.meta.lost_events, [("IRQ latency".into(), 7), ("task list".into(), 8)]);
        assert_eq!(recording.why_untold(Probe::IrqLatency), Missing::not_recorded("IRQ latency"));
        assert_eq!(recording.missing[0].text, "IRQ latency was not recorded");
        assert_eq!(recording.missing[1].missing.what(), "task list");
        assert_eq!((table("latenesses"), table("tasks")), ("irq_latencies", "tasks"));
    }
}
