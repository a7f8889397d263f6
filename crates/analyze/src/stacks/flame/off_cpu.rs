//! Waits, from the sums by stack, where there are no timelines.

use whyslow_model::{Recording, table};

use super::{Line, Scope};
use crate::process_names::ProcessNames;

pub(super) fn lines(recording: &Recording, scope: &Scope<'_>) -> Vec<Line> {
    // For a whole host it is not known which sleeps are losses.
    let is_loss = |wait: &&table::Wait| wait.state != "sleep" || !matches!(scope, Scope::Host { .. });
    let rows = recording.tables.waits.iter().flatten().filter(|wait| scope.has(wait.pid)).filter(is_loss);
    let names = ProcessNames::in_tables(&recording.tables);
    let who = |wait: &table::Wait| names.together(wait.pid, &wait.comm);
    rows.filter(|wait| wait.ns > 0)
        .map(|wait| (std::iter::once(who(wait)).chain(wait.kernel.iter().rev().cloned()).collect(), wait.ns))
        .collect()
}
