//! Pressure: `/proc/pressure/{cpu,memory,io,irq}`, `*.pressure` of a cgroup.
//!
//! ```text
//! some avg10=0.12 avg60=0.05 avg300=0.01 total=58761459
//! full avg10=0.00 avg60=0.00 avg300=0.00 total=1204
//! ```
//!
//! Only `total` (us since boot) is kept: whyslow has its own window, and two totals give its average. `irq` (Linux 6.1) has
//! no `some` line; `cpu` has no `full` line before 5.13, and in `/proc` that line is always zero.

use std::time::Duration;

use super::{Bad, number};

/// Time stalled since boot. `None` where the kernel prints no such line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// At least one task waited.
    pub some: Option<Duration>,
    /// Every task that had work waited.
    pub full: Option<Duration>,
}

/// Parse one pressure file.
pub fn parse(text: &str) -> Result<Pressure, Bad> {
    let mut pressure = Pressure::default();
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("some", _)) => pressure.some = Some(total(line)?),
            Some(("full", _)) => pressure.full = Some(total(line)?),
            _ => {} // a newer kernel may have more lines
        }
    }
    if pressure == Pressure::default() {
        Err(Bad::new("a line \"some\" or \"full\"", text))
    } else {
        Ok(pressure)
    }
}

fn total(line: &str) -> Result<Duration, Bad> {
    let field = line.split_ascii_whitespace().find_map(|field| field.strip_prefix("total="));
    number(field, "total=<microseconds>", line).map(Duration::from_micros)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const HERE: &str = "some avg10=0.60 avg60=0.25 avg300=0.43 total=23669029\n\
        full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
    /// Linux 5.10.
    const CPU_BEFORE_FULL: &str = "some avg10=1.07 avg60=0.50 avg300=0.43 total=11279373\n";
    /// Linux 6.1 with CONFIG_IRQ_TIME_ACCOUNTING.
    pub const IRQ: &str = "full avg10=0.02 avg60=0.01 avg300=0.00 total=990\n";

    #[test]
    fn keeps_the_totals() {
        let here = parse(HERE).unwrap();
        assert_eq!(here.some, Some(Duration::from_micros(23_669_029)));
        assert_eq!(here.full, Some(Duration::ZERO));
    }

    #[test]
    fn lines_that_a_kernel_lacks_are_none() {
        assert_eq!(parse(CPU_BEFORE_FULL).unwrap().full, None);
        assert_eq!(parse(IRQ), Ok(Pressure { some: None, full: Some(Duration::from_micros(990)) }));
    }

    #[test]
    fn a_torn_line_is_bad() {
        let bad = parse("some avg10=0.12 avg60=0.05 avg300=0.01 tot").unwrap_err();
        assert!(bad.to_string().starts_with("expected total=<microseconds> in line"));
        assert!(parse("").is_err(), "PSI that is there and refuses is not calm");
    }
}
