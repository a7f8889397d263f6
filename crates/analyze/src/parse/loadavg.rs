//! Load: `/proc/loadavg`.
//!
//! ```text
//! 0.02 0.10 0.09 1/102 13553
//! ```
//!
//! Averages over 1, 5 and 15 minutes of tasks that run, are ready for a CPU or are in uninterruptible sleep; then how many are
//! ready now / tasks in all, and the newest pid.

use super::{Bad, number};

/// What `/proc/loadavg` says.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Average of the last minute.
    pub one: f64,
    /// Of the last 5 minutes.
    pub five: f64,
    /// Of the last 15 minutes.
    pub fifteen: f64,
    /// Tasks that run or are ready for a CPU.
    pub ready: u64,
    /// All tasks (threads) of the host.
    pub tasks: u64,
}

/// Parse the file.
pub fn parse(text: &str) -> Result<Load, Bad> {
    let line = text.lines().next().unwrap_or_default();
    let mut fields = line.split_ascii_whitespace();
    let mut average = || number(fields.next(), "three averages", line);
    let (one, five, fifteen) = (average()?, average()?, average()?);
    let (ready, tasks) = fields.next().and_then(|f| f.split_once('/')).unzip();
    Ok(Load {
        one,
        five,
        fifteen,
        ready: number(ready, "<ready>/<tasks>", line)?,
        tasks: number(tasks, "<ready>/<tasks>", line)?,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const HERE: &str = "0.02 0.10 0.09 1/102 13553\n";

    #[test]
    fn reads_the_line() {
        assert_eq!(parse(HERE), Ok(Load { one: 0.02, five: 0.1, fifteen: 0.09, ready: 1, tasks: 102 }));
        assert_eq!(parse("40.11 38.00 12.5 41/5021 999\n").unwrap().tasks, 5021);
    }

    #[test]
    fn a_torn_line_is_bad() {
        assert!(parse("0.02 0.10 0.0").is_err());
        assert!(parse("0.02 0.10 0.09 1").is_err());
    }
}
