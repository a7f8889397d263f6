//! A task's time: `/proc/PID/schedstat`.
//!
//! ```text
//! 833308 1200 3
//! ```
//!
//! ns on a CPU, ns ready and waiting for a CPU, number of runs. "0 0 0" throughout where the kernel has no sched_info.

use std::time::Duration;

use super::{Bad, number};

/// Time of one task since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PidSchedstat {
    /// On a CPU.
    pub ran: Duration,
    /// Ready, and not on a CPU.
    pub waited: Duration,
    /// How many times it got a CPU.
    pub switches: u64,
}

/// Parse the file.
pub fn parse(text: &str) -> Result<PidSchedstat, Bad> {
    let mut fields = text.split_ascii_whitespace();
    let mut next = || number::<u64>(fields.next(), "three numbers", text);
    Ok(PidSchedstat {
        ran: Duration::from_nanos(next()?),
        waited: Duration::from_nanos(next()?),
        switches: next()?,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const HERE: &str = "833308 1200 3\n";

    #[test]
    fn reads_three_numbers() {
        let want = PidSchedstat {
            ran: Duration::from_nanos(833_308),
            waited: Duration::from_nanos(1200),
            switches: 3,
        };
        assert_eq!(parse(HERE), Ok(want));
        assert_eq!(parse("0 0 0\n"), Ok(PidSchedstat::default()));
    }

    #[test]
    fn a_torn_line_is_bad() {
        assert!(parse("833308 12").is_err());
        assert!(parse("-1 0 0").is_err());
    }
}
