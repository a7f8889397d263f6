//! The exit status.

use whyslow_model::{Document, Kind};

/// How a verb ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// whyslow looked and found no cause; risks and "cannot tell" alone count as this.
    Quiet,
    /// whyslow found at least one cause.
    Found,
    /// whyslow could not look, or could not do what was requested.
    CouldNotLook,
    /// The status that `run` returns: the command's own, or the reason why there is none.
    Passed(u8),
}

impl Outcome {
    /// The outcome of a document.
    #[must_use]
    pub fn of(document: &Document) -> Self {
        match document.findings.iter().any(|f| f.kind == Kind::Cause) {
            true => Outcome::Found,
            false if document.is_of_pings_alone() => Outcome::of_pings(document),
            false if document.why_unseen().is_some() => Outcome::CouldNotLook,
            false => Outcome::Quiet,
        }
    }

    /// The outcome of asking a host: whether it answered.
    #[must_use]
    pub fn of_pings(document: &Document) -> Self {
        let answered = document.pings.as_ref().is_some_and(|pings| pings.times.is_some());
        if answered { Outcome::Quiet } else { Outcome::CouldNotLook }
    }

    /// The exit status.
    #[must_use]
    pub fn status(self) -> u8 {
        match self {
            Outcome::Quiet => 0,
            Outcome::Found => 1,
            Outcome::CouldNotLook => 2,
            Outcome::Passed(status) => status,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use whyslow_model::table::{Tables, Task};
    use whyslow_model::{FileSnapshot, Meta, Recording};

    use super::*;

    #[test]
    fn a_host_whose_tasks_were_not_seen_was_not_looked_at() {
        let of = |tasks: Option<Vec<Task>>| {
            let rec = Recording { tables: Tables { tasks, ..Tables::default() }, ..Recording::default() };
            Outcome::of(&whyslow_analyze::examine(&rec))
        };
        assert_eq!((of(None), of(Some(vec![]))), (Outcome::CouldNotLook, Outcome::Quiet));
        // Some recordings hold nothing but copies of files, which a user can make on any host.
        let stat = |at| FileSnapshot {
            at,
            name: "proc/stat".into(),
            bytes: b"cpu  9 0 0 9 0 0 0 0 0 0\ncpu0 9 0 0 9 0 0 0 0 0 0\n".into(),
        };
        let snapshots = [Duration::ZERO, Duration::from_secs(1)].map(stat).into();
        let meta = Meta { clock_ticks: 100, cpus: 1, window_ns: 1_000_000_000, ..Meta::default() };
        let files = Recording { snapshots, meta, ..Recording::default() };
        assert_eq!(Outcome::of(&whyslow_analyze::examine(&files)), Outcome::Quiet);
    }
}
