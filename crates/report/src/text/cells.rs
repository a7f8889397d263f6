//! Numbers as cells of a table: right-aligned, and never wider than their column.

use std::time::Duration;

use whyslow_model::seconds;

/// Columns of a time.
const TIME: usize = 9;
/// Columns of a count.
const COUNT: usize = 9;

/// A time; nothing at all is "-".
pub(super) fn time(d: Duration) -> String {
    let text = if d.is_zero() { "-".to_owned() } else { seconds(d) };
    let text = if text.len() < TIME { text } else { format!("{:.0e} s", d.as_secs_f64()) };
    format!("{text:>TIME$}")
}

/// A time, where one was measured.
pub(super) fn time_or_none(d: Option<Duration>) -> String {
    d.map_or_else(|| " ".repeat(TIME), time)
}

pub(super) fn count(n: u64) -> String {
    let text = match n {
        0..1_000_000 => n.to_string(),
        1_000_000..1_000_000_000 => format!("{:.1}M", n as f64 / 1e6),
        _ => format!("{:.1e}", n as f64),
    };
    format!("{text:>COUNT$}")
}

/// How often a second.
pub(super) fn rate(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:>COUNT$.1}") } else { count(rate as u64) }
}

/// A count, where counted.
pub(super) fn count_or_none(n: Option<u64>) -> String {
    n.map_or_else(|| " ".repeat(COUNT), count)
}

/// A heading for each column of times or counts.
pub(super) fn headings(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name:>TIME$}")).collect()
}

/// The mean of `n` that took `all`.
pub(super) fn mean(all: Duration, n: u64) -> Duration {
    Duration::from_nanos_u128(all.as_nanos().checked_div(u128::from(n)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_wider_than_its_column() {
        for n in [0, 1, 999_999, 1_000_000, 999_999_999, 1_000_000_000, u64::MAX] {
            assert_eq!(count(n).len(), COUNT);
        }
        for s in [0, 1, 99, 123_456, 9_999_999, u64::MAX] {
            assert_eq!(time(Duration::from_secs(s)).len(), TIME);
            assert!(time(Duration::from_secs(s)).starts_with(' '));
        }
        assert_eq!(time(Duration::MAX).trim(), "2e19 s");
        assert_eq!(count(12_300_000).trim(), "12.3M");
    }

    #[test]
    fn the_mean_of_nothing_is_nothing() {
        assert_eq!(mean(Duration::from_secs(3), 0), Duration::ZERO);
        assert_eq!(mean(Duration::from_secs(3), 2), Duration::from_millis(1500));
        assert_eq!(mean(Duration::MAX, 1), Duration::MAX);
    }
}
