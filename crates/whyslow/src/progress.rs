//! The time left of the window, on stderr: on a terminal one line that is rewritten, elsewhere a line every few seconds.

use std::env;
use std::ffi::CStr;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use whyslow_model::seconds;
use whyslow_probe::ping::{Live, LiveTimes};
use whyslow_probe::priority;

use crate::watchdog;

/// The time between two lines that do not go to a terminal.
const PAUSE: Duration = Duration::from_secs(5);

/// The progress of one window.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
    last: Option<Duration>,
    /// The answers of the host that is asked.
    live: Option<Arc<Live>>,
}

impl Progress {
    /// The progress of a window that begins now.
    #[must_use]
    pub fn new() -> Self {
        Self::of(None)
    }

    /// As [`Self::new`], with the answers of a host that is asked meanwhile.
    #[must_use]
    pub fn of(live: Option<Arc<Live>>) -> Self {
        let dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        Progress { terminal: io::stderr().is_terminal() && !dumb, last: None, live }
    }

    /// Shows the time left of the window.
    fn tick(&mut self, left: Duration) {
        let words = words(left, self.live.as_ref().map(|live| live.now()));
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K{words}");
            let _ = io::stderr().flush();
        } else if self.last.is_none_or(|last| last.saturating_sub(left) >= PAUSE) {
            let _ = writeln!(io::stderr(), "whyslow: {words}");
            self.last = Some(left);
        }
    }

    /// The window is over: leave no trace on a terminal.
    pub fn done(&mut self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
            let _ = io::stderr().flush();
        }
    }
}

impl whyslow_probe::Observer for Progress {
    fn left(&mut self, left: Duration) {
        self.tick(left);
    }

    fn begun(&mut self, _at: Instant) {
        priority::as_it_was();
    }

    fn ended(&mut self) {
        priority::raise();
        priority::for_a_while();
    }

    fn step(&mut self, doing: &'static CStr) {
        watchdog::step(doing);
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

fn words(left: Duration, live: Option<LiveTimes>) -> String {
    let left = left.as_millis().div_ceil(1000);
    match live.map(|live| (live, live.p50, live.p99, live.worst)) {
        None => format!("looking, {left} s left (Ctrl-C ends the window and reports)"),
        Some((live, Some(p50), Some(p99), Some(worst))) => format!(
            "{left} s left: {} answered, {} lost, p50 {}, p99 {}, worst {}",
            live.answered,
            live.lost,
            seconds(p50),
            seconds(p99),
            seconds(worst)
        ),
        Some((live, ..)) => format!("{left} s left: {} sent, no answer yet", live.sent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_rounded_up_so_that_it_ends_at_zero() {
        assert!(words(Duration::from_millis(9001), None).starts_with("looking, 10 s left"));
        assert!(words(Duration::ZERO, None).starts_with("looking, 0 s left"));
    }
}
