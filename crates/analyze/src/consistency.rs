//! One story: if a chain, wall time or a cause of a report shows something, no other line of the report rules it out.
//!
//! A rule examines its own evidence, and so do the chains. If a rule says that something was not the cause and the
//! report shows waits for just that, one of the two is wrong, and it is not known which: the report says so, as a contradiction.

use std::time::Duration;

use whyslow_model::chain::Part;
use whyslow_model::{Contradiction, Document, Finding, Kind, seconds};

use crate::rules::{RuledOutBy, Shows};

/// A time below this part (1 in 100) of the window does not count as a loss: a cause must be larger, too.
const SHOWN_PART: u32 = 100;

/// Keeps what rules rule out if nothing in the report shows it; the rest becomes contradictions, and questions without an answer.
pub(crate) fn reported(document: &mut Document, ruled_out_by: Vec<RuledOutBy>) {
    for RuledOutBy { rule, ruled_out } in ruled_out_by {
        let Some((place, shown)) = shown(document, rule.shows) else {
            document.ruled_out.push(ruled_out);
            continue;
        };
        let text = format!(
            "the {place} {} {} of waits for {}, but the evidence of this question rules these out ({}): one of the two is wrong",
            if place == "chains" { "show" } else { "shows" },
            seconds(shown),
            ruled_out.what,
            ruled_out.evidence
        );
        document.findings.push(Finding::cannot_tell(rule.id, &text));
        document.contradictions.push(Contradiction {
            rule: rule.id.to_owned(),
            what: ruled_out.what,
            shown,
            text,
        });
    }
}

/// The place that shows most of it, and how much; `None`: nothing that counts.
fn shown(document: &Document, shows: Shows) -> Option<(&'static str, Duration)> {
    let sum =
        |times: &mut dyn Iterator<Item = Duration>| times.fold(Duration::ZERO, Duration::saturating_add);
    let chains = document.chains.iter().filter(|chain| {
        // The end of a chain is the culprit, not a wait of its own.
        chain.hops.iter().any(|hop| shows(hop.reason, &hop.detail))
    });
    let causes = document.findings.iter().filter(|found| found.kind == Kind::Cause);
    let hops = causes.flat_map(|found| &found.chain).filter(|hop| shows(hop.reason, &hop.detail));
    let wall = document.wall.as_ref().map_or(Duration::ZERO, |wall| of_parts(&wall.parts, shows));
    let places = [
        ("chains", sum(&mut chains.map(|chain| chain.time))),
        ("wall time", wall),
        ("chain of a cause", sum(&mut hops.map(|hop| hop.lost))),
    ];
    let counts = |(_, time): &(&str, Duration)| time.saturating_mul(SHOWN_PART) > document.window;
    places.into_iter().filter(counts).max_by_key(|(_, time)| *time)
}

/// The time of parts that show it, each time counted once: what is below such a part is in it.
fn of_parts(parts: &[Part], shows: Shows) -> Duration {
    let time = |part: &Part| match shows(part.reason, &part.detail) {
        true => part.time,
        false => of_parts(&part.parts, shows),
    };
    parts.iter().map(time).fold(Duration::ZERO, Duration::saturating_add)
}

#[cfg(test)]
mod tests {
    use whyslow_model::chain::Chain;
    use whyslow_model::wait::{Detail, Operation, Reason, TaskState, WaitTarget};
    use whyslow_model::{Culprit, Hop, Recording, RuledOut, SubjectKind};

    use super::*;
    use crate::rules::{ALL, Rule};

    fn rule(id: &str) -> &'static Rule {
        ALL.iter().find(|rule| rule.id == id).unwrap()
    }

    /// A report of ten seconds with a chain that waited this long for this.
    fn document(reason: Reason, what: Detail, time: Duration) -> Document {
        let empty = crate::examine(&Recording::default());
        let chain = Chain {
            time,
            count: 3,
            worst: time,
            hops: vec![Hop::new(reason, "pod", what, TaskState::Runnable, time)],
            tasks: vec![vec![(7, "pod".into())]],
            leaf: Culprit::new(SubjectKind::Quota, "/kp/pod", "CPU quota of pod"),
            notes: vec![],
        };
        Document {
            window: Duration::from_secs(10),
            chains: vec![chain],
            findings: vec![],
            ruled_out: vec![],
            ..empty
        }
    }

    fn ruled_out(id: &str) -> Vec<RuledOutBy> {
        vec![RuledOutBy {
            rule: rule(id),
            ruled_out: RuledOut { what: "a CPU quota".into(), evidence: "none has one".into() },
        }]
    }

    #[test]
    fn ruled_out_cause_that_a_chain_shows_becomes_a_contradiction() {
        let mut doc = document(Reason::Quota, WaitTarget::CpuQuota.into(), Duration::from_millis(3200));
        reported(&mut doc, ruled_out("cpu-quota"));
        assert_eq!(doc.ruled_out, vec![]);
        assert_eq!((doc.findings[0].kind, doc.findings[0].rule.as_str()), (Kind::CannotTell, "cpu-quota"));
        let said = &doc.contradictions[0];
        assert_eq!((said.rule.as_str(), said.shown), ("cpu-quota", Duration::from_millis(3200)));
        assert!(said.text.starts_with("the chains show 3.2 s of waits for a CPU quota"), "{}", said.text);
    }

    #[test]
    fn a_hundredth_of_the_window_or_another_wait_rules_nothing_in() {
        for (reason, ms) in [(Reason::Quota, 100), (Reason::Lock, 5000)] {
            let mut doc = document(reason, Detail::Nothing, Duration::from_millis(ms));
            reported(&mut doc, ruled_out("cpu-quota"));
            assert_eq!((doc.ruled_out.len(), doc.contradictions.len()), (1, 0), "{reason}");
        }
    }

    #[test]
    fn writeback_throttling_is_no_limit_that_somebody_set() {
        // The stacks of both kinds: wait_reasons/real_stacks.rs.
        let shows = rule("blkio-throttle").shows;
        let device = || "vda".to_owned();
        let wbt = Detail::Device { device: device(), operation: Operation::WritebackThrottling, about: None };
        assert!(!shows(Reason::Wbt, &wbt));
        assert!(shows(Reason::IoThrottle, &Detail::IoLimit { device: device() }));
    }

    #[test]
    fn wall_time_counts_each_stretch_once() {
        let mut doc = document(Reason::Lock, Detail::Nothing, Duration::ZERO);
        let part =
            |reason, ms, parts| Part { reason, time: Duration::from_millis(ms), parts, ..Part::default() };
        let below =
            part(Reason::Child, 900, vec![part(Reason::Quota, 400, vec![part(Reason::Quota, 400, vec![])])]);
        doc.wall = Some(whyslow_model::chain::WallAccount { parts: vec![below], ..Default::default() });
        assert_eq!(shown(&doc, rule("cpu-quota").shows), Some(("wall time", Duration::from_millis(400))));
    }

    #[test]
    fn reclaim_at_a_limit_is_no_want_of_memory_on_the_host() {
        let shows = |what: Detail| (rule("reclaim").shows)(Reason::Reclaim, &what);
        assert!(shows(WaitTarget::Memory.into()));
        let vda = Detail::Device { device: "vda".into(), operation: Operation::Reclaim, about: None };
        assert!(!shows(WaitTarget::MemoryAtLimit.into()) && !shows(vda));
    }
}
