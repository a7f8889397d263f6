//! Queues between the network and a reader: what spilled, whose queue it was, why he reads late, what the softirq did.

mod readers;
mod softirq;
mod symptoms;
mod why;

pub(crate) use readers::{Reader, readers};
pub(crate) use softirq::{Receiving, receiving};
pub(crate) use symptoms::{Symptoms, symptoms};
pub(crate) use why::{State, Why, why};
