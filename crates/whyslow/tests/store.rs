//! Recordings on disk: round trips, cuts, damage, hostile files, full disks and kills.

#[path = "store/crash.rs"]
mod crash;
#[path = "store/hostile.rs"]
mod hostile;
#[path = "store/round_trip.rs"]
mod round_trip;
#[path = "store/sample.rs"]
mod sample;
#[path = "store/torn.rs"]
mod torn;
