//! Lengths and bars of live tests, all in one place.

use std::sync::OnceLock;
use std::time::Duration;

/// A fault exists if the victim's clock shows at least this share lost.
pub const A_FAULT: f64 = 0.30;
/// A fault beside other load costs its victim less; from this share on it still counts as a fault.
pub const A_FAULT_IN_CROWD: f64 = 0.15;
/// A twin or a control holds if the victim's clock shows less than this share lost.
pub const NO_FAULT: f64 = 0.05;
/// A truth counts if the rates before and after the window, both without the fault, differ by at most this part.
pub const DRIFT: f64 = 0.15;
/// Number of tries before a test gives up because noise of the host spoils its measurement.
pub const TRIES: u32 = 3;
/// Number of tries for a scenario that breaks down before whyslow is judged.
pub const TRIES_OF_THE_BROKEN: u32 = 8;

/// Work without the fault, before and after the window.
pub const WITHOUT: Duration = Duration::from_millis(1_200);
/// Time from the start of a fault until it has its full effect: queues full, caches evicted.
pub const SETTLE: Duration = Duration::from_millis(1_000);
/// The window of `whyslow`, in whole seconds.
pub const WINDOW_S: u64 = 3;
/// Busy processes of the crowd.
pub const CROWD: usize = 40;

/// `whyslow` must answer within its window plus this time: the bar for a sick host.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// A number that whyslow reports may differ from the truth by this part of the truth.
pub const EXACT: f64 = 0.25;
/// A test ranks two truths only if the larger one is larger by this part.
pub const APART: f64 = 0.25;

/// Emulated CPUs are about ten times slower than real ones, and slower still on a busy host: a wait may take so many times as long.
const PATIENCE: u32 = 12;

/// Whether this is a guest whose CPUs are emulated (`WHYSLOW_EMULATED=1`). On emulated CPUs a thread begins some milliseconds after it was
/// woken, and whyslow's own work takes as long as the lock chain's: a test can compare order, names and shares there, not milliseconds.
#[must_use]
pub fn is_emulated() -> bool {
    static EMULATED: OnceLock<bool> = OnceLock::new();
    *EMULATED.get_or_init(|| crate::rounds::is_set("WHYSLOW_EMULATED"))
}

/// The limit for an operation that takes at most this long on real CPUs.
#[must_use]
pub fn patient(length: Duration) -> Duration {
    if is_emulated() { length * PATIENCE } else { length }
}

/// Busy processes of the crowd: on emulated CPUs fewer processes are as heavy a load.
#[must_use]
pub fn crowd() -> usize {
    if is_emulated() { CROWD / 4 } else { CROWD }
}

/// Largest difference between a reported time and the truth, in seconds: the larger of 10 % and 5 ms; on emulated CPUs, of 25 % and 40 ms.
#[must_use]
pub fn slack_s(truth_s: f64) -> f64 {
    let (part, least) = if is_emulated() { (0.25, 0.040) } else { (0.10, 0.005) };
    (truth_s * part).max(least)
}
