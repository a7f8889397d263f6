//! The verbs, one file each. A file holds the arguments, and one function that returns an outcome.

pub mod attach;
pub mod blocked;
pub mod chains;
pub mod completions;
pub mod cpu;
pub mod doctor;
pub mod exam;
pub mod explain;
pub mod jobs;
pub mod locks;
pub mod man;
pub mod net;
pub mod record;
pub mod report;
pub mod rules;
pub mod run;
pub mod work;
