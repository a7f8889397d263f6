//! What runs in a guest beside the stage: the fault module.

pub mod module;
