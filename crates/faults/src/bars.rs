//! Lengths and bars of live tests, all in one place.

use std::sync::OnceLock;
use std::time::Duration;

/// A fault exists if the victim's clock shows at least this share lost.
pub const A_FAULT: f64 = 0.30;
/// Beside others who take their part of the CPUs a fault costs less, and is still one.
pub const A_FAULT_IN_CROWD: f64 = 0.15;
/// A twin or false-positive control is one if the victim's clock shows less than this share lost.
pub const NO_FAULT: f64 = 0.05;
/// A truth is one if the rate without the fault is the same before the window and after it, but for this part.
pub const DRIFT: f64 = 0.15;
/// How often noise of the host may spoil a measurement before the test gives up.
pub const TRIES: u32 = 3;
/// How often a scenario that breaks down before whyslow is judged is made.
pub const TRIES_OF_THE_BROKEN: u32 = 8;

/// Work without the fault, before and after the window.
pub const WITHOUT: Duration = Duration::from_millis(1_200);
/// From putting the fault on until it has its effect in full: queues full, caches thrown out.
pub const SETTLE: Duration = Duration::from_millis(1_000);
/// The window of `whyslow`, in whole seconds.
pub const WINDOW_S: u64 = 3;
/// Busy processes of the crowd.
pub const CROWD: usize = 40;

/// `whyslow` must answer within its window and this: the bar for a sick host.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// What it says may differ from the truth by this part of the truth.
pub const EXACT: f64 = 0.25;
/// Two truths are told apart in rank if the larger is larger by this part.
pub const APART: f64 = 0.25;

/// Emulated CPUs are some ten times slower than real ones, more so on a busy host: what is waited for may take so many times as long.
const PATIENCE: u32 = 12;

/// Whether this is a guest whose CPUs are emulated (`WHYSLOW_EMULATED=1`). There a thread begins some milliseconds after it
/// was woken, and whyslow's own work takes as long as the lock chain's: order, names and shares are what can be compared, not
/// milliseconds.
#[must_use]
pub fn is_emulated() -> bool {
    static EMULATED: OnceLock<bool> = OnceLock::new();
    *EMULATED.get_or_init(|| crate::rounds::is_set("WHYSLOW_EMULATED"))
}

/// How long something may take that takes so long at most on real CPUs.
#[must_use]
pub fn patient(length: Duration) -> Duration {
    if is_emulated() { length * PATIENCE } else { length }
}

/// Busy processes of the crowd: on emulated CPUs fewer are as heavy a load.
#[must_use]
pub fn crowd() -> usize {
    if is_emulated() { CROWD / 4 } else { CROWD }
}

/// What a time that is reported may differ from the truth, in seconds: the larger of 10 % and 5 ms; of emulated CPUs, of 25 % and
/// 40 ms.
#[must_use]
pub fn slack_s(truth_s: f64) -> f64 {
    let (part, least) = if is_emulated() { (0.25, 0.040) } else { (0.10, 0.005) };
    (truth_s * part).max(least)
}
