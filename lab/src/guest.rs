//! What runs in a guest beside the test bed: the fault module.

pub mod module;
