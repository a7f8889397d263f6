//! What is statistical by nature: faults, twins and honest loads on the live kernel, drawn, whyslow against the victims' own clocks;
//! and what tests the judges themselves. `make proof` makes the cells, the gate a few of them with known seeds (`smoke.seeds`).

mod advice;
mod agents;
mod days;
mod names;
mod own_work;
mod risks;
mod services;
mod spin;
mod user_locks;

whyslow_faults::may_become_victim!();
