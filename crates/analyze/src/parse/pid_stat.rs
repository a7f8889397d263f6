//! A task: `/proc/PID/stat`.
//!
//! ```text
//! 13560 (cat) R 13550 13550 6388 0 -1 4194304 101 0 0 0 3 1 0 0 20 0 1 0 264126 ...
//! ```
//!
//! The name may hold blanks, parentheses and newlines: it ends at the *last* ")". Times are clock ticks.

use super::{Bad, number};

/// One task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PidStat {
    pub pid: u32,
    /// Its name, raw.
    pub comm: String,
    /// 'R', 'S', 'D', 'Z', 'T', 'I' ...
    pub state: char,
    /// Its parent.
    pub ppid: u32,
    /// Faults that needed no I/O.
    pub minor_faults: u64,
    /// Faults that needed I/O.
    pub major_faults: u64,
    /// User time, in clock ticks.
    pub user_ticks: u64,
    /// Kernel time, in clock ticks.
    pub system_ticks: u64,
    /// Nice value.
    pub nice: i64,
    /// Threads of its process.
    pub threads: u64,
    /// Its start, in clock ticks since boot: with the pid it identifies the task.
    pub started: u64,
    /// CPU on which it ran last. Not on kernels before 2.2.
    pub cpu: Option<u32>,
    /// Time waited for block I/O (needs delayacct), in clock ticks.
    pub delay_ticks: Option<u64>,
}

/// Parse the file.
pub fn parse(text: &str) -> Result<PidStat, Bad> {
    const WANTED: &str = "<pid> (<name>) <state> and 19 numbers";
    let bad = || Bad::new(WANTED, text);
    let (pid, rest) = text.split_once(" (").ok_or_else(bad)?;
    let (comm, rest) = rest.rsplit_once(')').ok_or_else(bad)?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Field numbers as in proc(5): the state is field 3.
    let field = |n: usize| fields.get(n.saturating_sub(3)).copied();
    let count = |n: usize| number::<u64>(field(n), WANTED, text);
    Ok(PidStat {
        pid: number(Some(pid), WANTED, text)?,
        comm: comm.to_owned(),
        state: field(3).and_then(|f| f.chars().next()).ok_or_else(bad)?,
        ppid: number(field(4), WANTED, text)?,
        minor_faults: count(10)?,
        major_faults: count(12)?,
        user_ticks: count(14)?,
        system_ticks: count(15)?,
        nice: number(field(19), WANTED, text)?,
        threads: count(20)?,
        started: count(22)?,
        cpu: field(39).and_then(|f| f.parse().ok()),
        delay_ticks: field(42).and_then(|f| f.parse().ok()),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const HERE: &str = "13560 (cat) R 13550 13550 6388 0 -1 4194304 101 0 0 0 3 1 0 0 20 0 1 0 264126 3133440 390 \
        18446744073709551615 94643429662720 94643429682601 140736045759552 0 0 0 0 0 0 0 0 0 17 1 0 0 7 0 0 94643429698608 \
        94643429700224 94644059009024 140736045767139 140736045767188 140736045767188 140736045768683 0\n";
    /// A kernel thread of Linux 5.10.
    pub const KTHREAD: &str = "12 (migration/0) S 2 0 0 0 -1 69238848 0 0 0 0 0 4 0 0 -100 0 1 0 3 0 0 18446744073709551615 0 0 0 0 \
        0 0 0 2147483647 0 0 0 0 17 0 99 1 0 0 0 0 0 0 0 0 0 0 0\n";
    /// Linux 2.6.9: the line is shorter.
    const OLD: &str = "7 (sh) S 1 7 7 0 -1 0 5 0 1 0 2 3 0 0 15 -5 1 0 99 1000 2 4294967295\n";

    #[test]
    fn reads_the_fields_by_their_numbers() {
        let here = parse(HERE).unwrap();
        assert_eq!((here.pid, here.comm.as_str(), here.state, here.ppid), (13560, "cat", 'R', 13550));
        assert_eq!((here.user_ticks, here.system_ticks, here.threads, here.started), (3, 1, 1, 264_126));
        assert_eq!((here.cpu, here.delay_ticks), (Some(1), Some(7)));
        assert_eq!(parse(KTHREAD).unwrap().system_ticks, 4);
        assert_eq!((parse(OLD).unwrap().nice, parse(OLD).unwrap().cpu), (-5, None));
    }

    #[test]
    fn a_name_may_hold_anything() {
        let evil = HERE.replace("(cat)", "(a) R 1 (b)\n2 ))");
        let stat = parse(&evil).unwrap();
        assert_eq!((stat.comm.as_str(), stat.ppid), ("a) R 1 (b)\n2 )", 13550));
    }

    #[test]
    fn a_torn_line_is_bad() {
        assert!(parse("13560 (cat) R 13550 135").is_err());
        assert!(parse("13560 (ca").is_err());
        assert!(parse("13560 (cat)").is_err());
    }
}
