//! Recordings on disk: round trips, cuts, damage, hostile files, full disks and kills.

#[path = "store/crash.rs"]
mod crash;
#[path = "store/hostile.rs"]
mod hostile;
#[path = "store/long.rs"]
mod long;
#[path = "store/round_trip.rs"]
mod round_trip;
#[path = "store/sample.rs"]
mod sample;
#[path = "store/timelines.rs"]
mod timelines;
#[path = "store/torn.rs"]
mod torn;

/// A seed that no other run has; print it.
fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |d| d.as_nanos() as u64)
}
