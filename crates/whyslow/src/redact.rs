//! Removes the names from a recording: structure, numbers and times stay, a made-up word replaces each name ("task-c", "/g1/g2",
//! "path7").
//!
//! Within a recording one name always has the same word, numbered by first appearance, so that rows that belong together still do. The
//! words of two recordings are unrelated. The kernel's own names stay: functions, system calls, files, devices, threads.

use whyslow_model::{Missing, MissingNote, Recording};

mod kernels;
mod log;
mod snapshots;
mod tables;
mod words;

use std::collections::BTreeSet;

use words::Words;

/// The reason why names are missing (shown with -v).
const SAID: &str =
    "this recording was redacted: tasks, groups, paths, peers and functions have made-up names";

/// The host's name in the first line of every report.
const HOST: &str = "a host (redacted: names are made up)";

/// Removes the names from `recording`.
pub fn redact(recording: &mut Recording) {
    redact_but(recording, BTreeSet::new());
}

/// As [`redact`], but the names in `kept` stay.
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
    if let Some(pinged) = &mut recording.meta.pinged {
        pinged.address = words.host(&pinged.address);
        pinged.target = words.host(&pinged.target);
    }
    snapshots::redact(recording, &mut words);
    recording.missing =
        recording.missing.iter().map(|note| without_names(&note.missing, &mut words)).collect();
    recording.torn = recording.torn.take().map(|_| "it was torn before it was redacted".to_owned());
    recording.missing.insert(0, Missing::skipped("names", SAID).into());
}

/// The missing thing is a kernel file or a probe; the reason may contain any name.
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
