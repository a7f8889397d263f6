//! Tests of the graph: readable hosts, a simulator that knows the truth, garbage.

mod alike;
mod convoys;
mod examples;
mod garbage;
mod host;
mod ipi_waits;
mod patience;
mod simulator;
mod speed;
mod truth;
