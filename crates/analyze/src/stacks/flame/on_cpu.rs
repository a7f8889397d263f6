//! What ran: samples, scaled to the time on CPU that the timelines show. Samples only give the proportions.

use std::collections::BTreeMap;

use whyslow_model::Recording;
use whyslow_model::table::Sample;

use super::{Line, Scope, fit, share, under};
use crate::process_names::ProcessNames;

pub(super) fn lines(recording: &Recording, scope: &Scope<'_>) -> Vec<Line> {
    let mut by_pid: BTreeMap<u32, Vec<&Sample>> = BTreeMap::new();
    for sample in recording.tables.samples.iter().flatten().filter(|sample| scope.has(sample.pid)) {
        by_pid.entry(sample.pid).or_default().push(sample);
    }
    let names = ProcessNames::in_tables(&recording.tables);
    let ran = ran(recording, scope, &names);
    let mut lines: Vec<Line> = Vec::new();
    for (pid, samples) in &by_pid {
        let own = samples.iter().map(|sample| stack(sample, &names)).collect();
        match ran.get(pid) {
            Some((_, ns)) => lines.extend(fit(own, *ns)),
            None => lines.extend(own),
        }
    }
    let unseen = ran.into_iter().filter(|(pid, _)| !by_pid.contains_key(pid));
    lines.extend(unseen.map(|(_, (comm, ns))| (vec![comm, "(no sample)".to_owned()], ns)));
    lines.retain(|(_, ns)| *ns > 0);
    lines.into_iter().map(|line| under("on CPU", line)).collect()
}

/// "comm;user frames, outermost first;kernel frames, outermost first".
fn stack(sample: &Sample, names: &ProcessNames<'_>) -> Line {
    let frames = sample.user.iter().rev().chain(sample.kernel.iter().rev());
    let who = names.together(sample.pid, &sample.comm);
    (std::iter::once(who).chain(frames.cloned()).collect(), sample.ns)
}

/// Time on CPU by thread, with its name, by the timelines; nothing for a whole host: short-lived tasks and tasks that
/// hardly run have samples and no rows.
fn ran(recording: &Recording, scope: &Scope<'_>, names: &ProcessNames<'_>) -> BTreeMap<u32, (String, u64)> {
    let mut ran = BTreeMap::new();
    if matches!(scope, Scope::Host { .. }) {
        return ran;
    }
    for span in recording.tables.spans.iter().flatten().filter(|span| scope.has(span.pid)) {
        let (part, all) = scope.overlap(span.from_ns, span.at_ns);
        let (comm, ns): &mut (String, u64) = ran.entry(span.pid).or_default();
        *ns = ns.saturating_add(share(span.mixed.running_ns, part.into(), all.into()));
        *comm = names.together(span.pid, &span.comm);
    }
    ran
}
