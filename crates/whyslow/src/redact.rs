//! A recording without names: structure, numbers and times stay, each name becomes a word of its own ("task-c", "/g1/g2", "path7").
//!
//! One name has one word throughout a recording, by first appearance, so that what belonged together still does; the words of two
//! recordings have nothing to do with each other. What the kernel calls its own things stays: functions, system calls, files, devices,
//! threads.

use whyslow_model::{Missing, MissingNote, Recording};

mod kernels;
mod log;
mod snapshots;
mod tables;
mod words;

use std::collections::BTreeSet;

use words::Words;

/// Why names are missing (-v).
const SAID: &str =
    "this recording was redacted: tasks, groups, paths, peers and functions have made-up names";

/// What the host is called in the first line of every report.
const HOST: &str = "a host (redacted: names are made up)";

/// Drop the names in `recording`.
pub fn redact(recording: &mut Recording) {
    redact_but(recording, BTreeSet::new());
}

/// The same, but for these names.
pub fn redact_but(recording: &mut Recording, kept: BTreeSet<String>) {
    let mut words = Words::of(recording, kept);
    recording.meta.host = HOST.to_owned();
    recording.meta.boot_id = None;
    tables::redact(&mut recording.tables, &mut words);
    if let Some(watched) = &mut recording.meta.watched {
        watched.subject = words.subject(&watched.subject);
        for argument in watched.command.iter_mut().flat_map(|command| &mut command.argv) {
            *argument = words.argument(argument);
        }
    }
    snapshots::redact(recording, &mut words);
    recording.missing =
        recording.missing.iter().map(|note| without_names(&note.missing, &mut words)).collect();
    recording.torn = recording.torn.take().map(|_| "it had been torn before it was redacted".to_owned());
    recording.missing.insert(0, Missing::skipped("names", SAID).into());
}

/// What is missing is a kernel file or a probe; why may name anything.
fn without_names(missing: &Missing, words: &mut Words) -> MissingNote {
    let mut missing = missing.clone();
    let (what, reason) = match &mut missing {
        Missing::NotRecorded { what } => (what, None),
        Missing::Broken { what, reason }
        | Missing::Skipped { what, reason }
        | Missing::Unclear { what, reason } => (what, Some(reason)),
        Missing::NotAllowed { what, way_out } => (what, Some(way_out)),
        Missing::NotInKernel { what, needs } => (what, Some(needs)),
    };
    *what = words.file(what);
    if let Some(reason) = reason {
        *reason = words.sentence(reason);
    }
    missing.into()
}
