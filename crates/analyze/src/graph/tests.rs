//! Tests of the graph: readable hosts, a simulator that knows the truth, garbage.

mod alike;
mod children;
mod convoys;
mod examples;
mod garbage;
mod growing;
mod host;
mod in_flight;
mod ipi_waits;
mod layout;
mod onward;
mod other_ends;
mod owners;
mod patience;
mod peers;
mod resting;
mod simulator;
mod speed;
mod truth;
mod unix_sockets;
