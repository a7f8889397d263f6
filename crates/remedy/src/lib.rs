//! The only hand that changes a host.
//!
//! Every other crate looks and speaks; whatever writes to a host (a limit raised, a setting put back, an experiment that
//! switches a suspect off and on) belongs here and nowhere else, so that "it changes nothing" can be checked by reading one
//! crate. Each fix will be one file: its precondition, the old value saved first, the change, a guard that takes it back,
//! and an entry in a journal from which it can be undone after a crash.
//!
//! This version of whyslow changes nothing: the crate is empty on purpose, and its border stands (`.ci/borders`) before the
//! first fix does. Fixes are words in a report, for people to carry out.

#![forbid(unsafe_code)]
