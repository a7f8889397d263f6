//! Lengths and bars of live tests, all in one place.

use std::time::Duration;

/// A fault exists if the victim's clock shows at least this share lost.
pub const A_FAULT: f64 = 0.30;
/// Beside others who take their part of the CPUs a fault costs less, and is still one.
pub const A_FAULT_IN_CROWD: f64 = 0.15;
/// A twin or decoy is one if the victim's clock shows less than this share lost.
pub const NO_FAULT: f64 = 0.05;
/// How often noise of the host may spoil a measurement before the test gives up.
pub const TRIES: u32 = 3;

/// Work without the fault, before and after the window.
pub const WITHOUT: Duration = Duration::from_millis(1_200);
/// From putting the fault on until it has its effect in full: queues full, caches thrown out.
pub const SETTLE: Duration = Duration::from_millis(1_000);
/// The window of `whyslow`, in whole seconds.
pub const WINDOW_S: u64 = 3;
/// In a crowd each task runs seldom: rates need longer.
pub const WITHOUT_IN_CROWD: Duration = Duration::from_millis(2_500);
/// Busy processes of the crowd.
pub const CROWD: usize = 40;

/// `whyslow` must answer within its window and this: the bar for a sick host.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// What it says may differ from the truth by this part of the truth.
pub const EXACT: f64 = 0.25;
/// Two truths are told apart in rank if the larger is larger by this part.
pub const APART: f64 = 0.25;

/// Faults whose twins and decoys are drawn for one run of CI.
pub const DRAWN_TWINS: usize = 3;
/// Faults drawn to be looked at in a crowd, for one run of CI.
pub const DRAWN_CROWDS: usize = 2;
/// Pairs of faults drawn for one run of CI.
pub const DRAWN_PAIRS: usize = 3;
/// Draws of each cell in a soak.
pub const SOAK_ROUNDS: u64 = 20;
