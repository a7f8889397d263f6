//! A command that could not be traced: its wall and CPU time are known, and nothing else.

use std::time::Duration;

use whyslow_model::chain::{Part, WallAccount};
use whyslow_model::wait::{Detail, Reason};
use whyslow_model::{Probe, Recording, Share};

/// The account of a command without a recorded timeline.
pub fn wall(recording: &Recording) -> Option<WallAccount> {
    let watched = recording.meta.watched.as_ref()?;
    let command = watched.command.as_ref()?;
    if recording.tables.spans.as_ref().is_some_and(|spans| !spans.is_empty()) {
        return None;
    }
    let wall = Duration::from_nanos(command.to_ns.saturating_sub(command.from_ns));
    let cpu = Duration::from_nanos(command.user_ns.saturating_add(command.system_ns));
    let detail = Detail::NotTraced { why: recording.why_untold(Probe::OffCpuStacks).to_string() };
    let share = Share::of(wall.as_secs_f64(), wall.as_secs_f64());
    let whole =
        Part { reason: Reason::Unexplained, detail, time: wall, share: Some(share), ..Part::default() };
    Some(WallAccount {
        of: watched.subject.clone(),
        is_sum: false,
        wall,
        cpu,
        // Its children's CPU time is in `cpu`, perhaps on several CPUs at once: for at least this long none of them ran.
        off_cpu: wall.saturating_sub(cpu),
        unexplained: wall,
        said: Some(Share::of(0.0, wall.as_secs_f64())),
        parts: vec![whole],
        mismatches: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use whyslow_model::timeline::{Command, Span, Watched};

    use super::*;

    fn recording(from_ns: u64, to_ns: u64) -> Recording {
        let command = Command { from_ns, to_ns, user_ns: 20, system_ns: 10, ..Command::default() };
        let watched = Watched { subject: "make".into(), command: Some(command), ..Watched::default() };
        let mut rec = Recording::default();
        rec.meta.watched = Some(watched);
        rec
    }

    #[test]
    fn wall_and_cpu_are_reported_and_all_of_it_is_unexplained() {
        let account = wall(&recording(50, 150)).unwrap();
        let ns = Duration::from_nanos;
        assert_eq!(
            (account.of.as_str(), account.wall, account.cpu, account.off_cpu),
            ("make", ns(100), ns(30), ns(70))
        );
        assert_eq!((account.unexplained, account.parts[0].time), (ns(100), ns(100)));
        assert_eq!(account.said.map(|share| share.ratio()), Some(0.0));
    }

    #[test]
    fn recording_with_spans_or_no_watched_command_gets_no_wall_account() {
        let mut rec = recording(0, 1);
        rec.tables.spans = Some(vec![Span::default()]);
        assert!(wall(&rec).is_none() && wall(&Recording::default()).is_none());
    }

    #[test]
    fn impossible_times_are_not_a_panic() {
        let mut rec = recording(u64::MAX, 0);
        rec.meta.watched.as_mut().unwrap().command.as_mut().unwrap().user_ns = u64::MAX;
        assert_eq!(wall(&rec).unwrap().wall, Duration::ZERO);
    }
}
