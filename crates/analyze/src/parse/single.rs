//! One value: sysctls, `memory.max`, `pids.current`, `cpu.cfs_quota_us`; and `cpu.max`, which has two.
//!
//! ```text
//! max
//! 536870912
//! -1
//! max 100000
//! ```

use super::{Bad, number};

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// None: "max" on v2, -1 for quotas on v1.
    Unlimited,
    /// This number.
    At(u64),
}

/// A number, negative ones too (`kernel.sched_rt_runtime_us` = -1).
pub fn integer(text: &str) -> Result<i64, Bad> {
    number(Some(text.trim()), "one number", text)
}

/// Several numbers in a line (`kernel.sem`, `net.ipv4.tcp_mem`, `fs.file-nr`), tabs or blanks between them.
pub fn integers(text: &str) -> Result<Vec<u64>, Bad> {
    let line = text.lines().next().unwrap_or_default();
    let all: Vec<u64> =
        line.split_ascii_whitespace().map(|f| number(Some(f), "numbers", line)).collect::<Result<_, _>>()?;
    if all.is_empty() { Err(Bad::new("numbers", line)) } else { Ok(all) }
}

/// A number or "max".
///
/// v1 prints "no limit" of memory as the largest multiple of the page size below 2^63: all values from 2^62 on mean no limit.
pub fn limit(text: &str) -> Result<Limit, Bad> {
    match text.trim() {
        "max" | "-1" => Ok(Limit::Unlimited),
        value => match number(Some(value), "a number or \"max\"", text)? {
            n if n >= 1 << 62 => Ok(Limit::Unlimited),
            n => Ok(Limit::At(n)),
        },
    }
}

/// `cpu.max`: quota ("max": none) and period, in microseconds.
pub fn cpu_max(text: &str) -> Result<(Limit, u64), Bad> {
    let line = text.lines().next().unwrap_or_default();
    let (quota, period) = line.trim().split_once(' ').ok_or_else(|| Bad::new("<quota> <period>", line))?;
    Ok((limit(quota)?, number(Some(period), "<quota> <period>", line)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_of_both_signs() {
        assert_eq!(integer("950000\n"), Ok(950_000));
        assert_eq!(integer("-1\n"), Ok(-1));
        assert_eq!(integers("4096\t131072\t6291456\n"), Ok(vec![4096, 131_072, 6_291_456]));
        assert_eq!(integers("1248\t0\t9223372036854775807\n").unwrap()[2], i64::MAX as u64);
    }

    #[test]
    fn knows_every_spelling_of_no_limit() {
        assert_eq!(limit("max\n"), Ok(Limit::Unlimited));
        assert_eq!(limit("9223372036854771712\n"), Ok(Limit::Unlimited), "v1 memory.limit_in_bytes");
        assert_eq!(limit("536870912\n"), Ok(Limit::At(512 << 20)));
        assert_eq!(limit("0\n"), Ok(Limit::At(0)));
    }

    #[test]
    fn cpu_max_has_quota_and_period() {
        assert_eq!(cpu_max("max 100000\n"), Ok((Limit::Unlimited, 100_000)));
        assert_eq!(cpu_max("20000 100000\n"), Ok((Limit::At(20_000), 100_000)));
    }

    #[test]
    fn torn_values_are_bad() {
        for torn in ["", "\n", "ma", "12 x"] {
            assert!(limit(torn).is_err(), "{torn:?}");
            assert!(integer(torn).is_err(), "{torn:?}");
            assert!(cpu_max(torn).is_err(), "{torn:?}");
        }
        assert!(integers("").is_err());
    }
}
