//! Recordings on disk: round trips, cuts, damage, hostile files, full disks and kills.

mod crash;
mod hostile;
mod long;
mod round_trip;
mod sample;
mod timelines;
mod torn;

/// The seed of this run.
fn seed() -> u64 {
    whyslow_faults::draw::run_seed()
}
