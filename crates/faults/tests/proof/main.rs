//! What the harness makes is what it says, by the clocks of what it made. Drawn at random; no whyslow looks here.

mod made_faults;
mod made_lock_chains;
mod made_spinners;

whyslow_faults::may_become_victim!();
