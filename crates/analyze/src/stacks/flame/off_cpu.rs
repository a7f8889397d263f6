//! What waited, from the sums by stack, where there are no timelines.

use whyslow_model::{Recording, table};

use super::{Line, Scope};

pub(super) fn lines(recording: &Recording, scope: &Scope<'_>) -> Vec<Line> {
    // Which sleeps of a whole host are losses, nobody can tell.
    let is_loss = |wait: &&table::Wait| wait.state != "sleep" || !matches!(scope, Scope::Host { .. });
    let rows = recording.tables.waits.iter().flatten().filter(|wait| scope.has(wait.pid)).filter(is_loss);
    rows.filter(|wait| wait.ns > 0)
        .map(|wait| (std::iter::once(&wait.comm).chain(wait.kernel.iter().rev()).cloned().collect(), wait.ns))
        .collect()
}
