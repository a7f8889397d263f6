//! The only crate that may change a host.
//!
//! All other crates only read and report. All code that writes to a host (raises a limit, restores a setting, switches a suspect off and
//! on as an experiment) belongs here and nowhere else: then a reader can check "whyslow changes nothing" in one crate. Each fix will be
//! one file: its precondition, the old value saved first, the change, a guard that reverts the change, and a journal entry that allows
//! to undo the change after a crash.
//!
//! This version of whyslow changes nothing: the crate is empty on purpose, and `.ci/borders` enforces its border before the first fix
//! exists. A fix is a text in a report, which a user carries out.

#![forbid(unsafe_code)]
