//! The program: verbs and the store of recordings.

pub mod store;
