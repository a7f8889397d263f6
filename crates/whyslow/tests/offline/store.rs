//! Recordings on disk: round trips, cuts, damage, hostile files, full disks and kills.

mod crash;
mod hostile;
mod long;
mod round_trip;
mod sample;
mod timelines;
mod torn;

/// What this run draws.
fn seed() -> u64 {
    whyslow_faults::draw::run_seed()
}
