//! Code for guests beside the test bed: the fault module.

pub mod module;
