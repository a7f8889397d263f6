//! `--for`: the length of the window.

use std::time::Duration;

/// Shorter windows hold too few samples (99 a second) and scheduler periods (100 ms) to say anything.
const SHORTEST: Duration = Duration::from_millis(200);
/// The length of a window without `--for`.
pub const LENGTH: Duration = Duration::from_secs(10);
/// Tables grow with each new task; a longer window needs a recorder that rotates.
const LONGEST: Duration = Duration::from_secs(3600);

/// The length of the window.
#[derive(Debug, Clone, clap::Args)]
pub struct WindowArgs {
    /// Length of the window, from 200ms to 1h: "3s", "500ms", "1m30s"; a bare number is in seconds
    #[arg(long = "for", value_name = "DURATION", default_value = "10s", value_parser = parse)]
    pub window: Duration,
}

/// "3s", "500ms", "1m30s", "2.5s"; a bare number is in seconds.
pub fn parse(text: &str) -> Result<Duration, String> {
    let window =
        seconds(text).ok_or_else(|| format!("expected a duration such as 3s, 500ms or 2m, not {text:?}"))?;
    if !(SHORTEST.as_secs_f64()..=LONGEST.as_secs_f64()).contains(&window) {
        return Err(format!("expected 200ms to 1h, not {text:?}"));
    }
    Ok(Duration::from_secs_f64(window))
}

/// `--slow`: the time from which on a single system call is reported.
pub fn slow(text: &str) -> Result<Duration, String> {
    match seconds(text) {
        Some(limit) if limit > 0.0 && limit <= LONGEST.as_secs_f64() => Ok(Duration::from_secs_f64(limit)),
        _ => Err(format!("expected a duration such as 100ms, 50us or 1s, not {text:?}")),
    }
}

pub fn seconds(text: &str) -> Option<f64> {
    if let Ok(bare) = text.parse::<u32>() {
        return Some(bare.into());
    }
    let mut rest = text;
    let mut sum = 0.0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (value, tail) = rest.split_at(number);
        let unit = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let scale = match unit {
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" | "sec" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        sum += value.parse::<f64>().ok()? * scale;
        rest = tail;
    }
    (!text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, ms) in [
            ("3s", 3000),
            ("500ms", 500),
            ("2m", 120_000),
            ("1m30s", 90_000),
            ("2.5s", 2500),
            ("10", 10_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn invalid_window_is_refused_with_the_expected_format_or_range() {
        for text in ["", "s", "3x", "-3s", "3 s", "1e3s", "..s", "inf", "nan"] {
            assert!(parse(text).unwrap_err().starts_with("expected a duration such as 3s"), "{text}");
        }
        for text in ["0", "0s", "10ms", "2h", "99999999999999999999h"] {
            assert_eq!(parse(text), Err(format!("expected 200ms to 1h, not {text:?}")));
        }
    }

    #[test]
    fn a_slow_call_is_any_time_but_none() {
        assert_eq!(slow("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(slow("2"), Ok(Duration::from_secs(2)));
        for text in ["", "0", "0ms", "2h", "soon", "nan"] {
            assert!(slow(text).unwrap_err().starts_with("expected a duration such as 100ms"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[0-9.a-z]{0,30}|.*") {
            let _ = slow(&text);
            let _ = parse(&text);
        }
    }
}
