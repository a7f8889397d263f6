//! CPU time: who may use which CPU, what is fair, what a wait for one costs, how fast each is, who burns it.

pub(crate) mod allowed;
pub(crate) mod demand;
pub(crate) mod fair;
pub(crate) mod full_threads;
pub(crate) mod hidden;
pub(crate) mod loss;
pub(crate) mod numbers;
pub(crate) mod parameters;
pub(crate) mod quota;
pub(crate) mod room;
pub mod speed;
pub mod spin;
pub(crate) mod spread;
