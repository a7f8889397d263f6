//! Tests without a host: answers to recordings, the command line, recording files, sessions of the documents.

mod cases;
mod cli;
mod commands;
mod every_name;
mod extremes;
mod hostile_names;
#[path = "../hosts/overlay.rs"]
mod overlay;
mod redact;
mod replay;
mod sessions;
mod store;
