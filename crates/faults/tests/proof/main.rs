//! What the harness makes behaves as intended, by its own clocks. Drawn at random; whyslow is not involved.

mod made_faults;
mod made_lock_chains;
mod made_spinners;

whyslow_faults::may_become_victim!();
