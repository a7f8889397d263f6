//! Units as types: a share of a whole, bytes, and seconds as text.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A part of a whole; 1.0 is all of it. May exceed 1 where the whole is a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Share(f64);

impl Share {
    /// Nothing of it.
    pub const NONE: Share = Share(0.0);

    /// So many hundredths.
    #[must_use]
    pub const fn percent(hundredths: u32) -> Self {
        Share(hundredths as f64 / 100.0)
    }

    /// `part / whole`; nothing if there is no whole.
    #[must_use]
    pub fn of(part: f64, whole: f64) -> Self {
        if whole > 0.0 && part.is_finite() { Share(part / whole) } else { Share::NONE }
    }

    /// As a plain number.
    #[must_use]
    pub const fn ratio(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        if percent > 0.0 && percent < 0.95 {
            write!(f, "{percent:.1} %")
        } else {
            write!(f, "{percent:.0} %")
        }
    }
}

/// An amount of memory or data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        if value < 10.0 {
            write!(f, "{value:.1} {}", UNITS[unit])
        } else {
            write!(f, "{value:.0} {}", UNITS[unit])
        }
    }
}

/// A number with its noun: "1 packet", "3 packets".
#[must_use]
pub fn counted(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// How often: "once", "3 times".
#[must_use]
pub fn times(n: u64) -> String {
    if n == 1 { "once".to_owned() } else { format!("{n} times") }
}

/// A duration as people read it: "3.2 s", "45 ms", "120 us".
#[must_use]
pub fn seconds(d: Duration) -> String {
    let s = d.as_secs_f64();
    match s {
        _ if s >= 99.5 => format!("{s:.0} s"),
        _ if s >= 0.95 => format!("{s:.1} s"),
        _ if s >= 0.000_95 => format!("{:.0} ms", s * 1e3),
        _ if s > 0.0 => format!("{:.0} us", s * 1e6),
        _ => "0 s".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_print_as_percent() {
        assert_eq!(Share::of(8.0, 10.0).to_string(), "80 %");
        assert_eq!(Share::of(1.0, 200.0).to_string(), "0.5 %");
        assert_eq!(Share::of(1.0, 0.0), Share::NONE);
        assert_eq!(Share::of(f64::NAN, 1.0), Share::NONE);
    }

    #[test]
    fn bytes_print_in_the_unit_that_fits() {
        assert_eq!(Bytes(512).to_string(), "512 B");
        assert_eq!(Bytes(64 << 20).to_string(), "64 MiB");
        assert_eq!(Bytes(u64::MAX).to_string(), "16384 PiB");
    }

    #[test]
    fn durations_print_in_the_unit_that_fits() {
        assert_eq!(seconds(Duration::from_millis(3210)), "3.2 s");
        assert_eq!(seconds(Duration::from_micros(120)), "120 us");
        assert_eq!(seconds(Duration::ZERO), "0 s");
    }
}
