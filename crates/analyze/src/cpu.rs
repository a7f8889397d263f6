//! CPU time: the CPUs that a task may use, its fair share, what a wait for a CPU costs, the speed of each CPU, and spinning threads.

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
