//! Queues between the network and a reader: what overflowed, which process owns the queue, why it reads late, what the softirq did.

mod readers;
mod softirq;
mod symptoms;
mod why;

pub(crate) use readers::{Reader, readers};
pub(crate) use softirq::{Receiving, receiving};
pub(crate) use symptoms::{Symptoms, symptoms};
pub(crate) use why::{State, Why, why};
