//! CPU time since boot: `/proc/stat`.
//!
//! ```text
//! cpu  27409 0 8411 489487 1345 0 103 118 0 0
//! cpu0 12103 0 3237 247813 225 0 17 47 0 0
//! ctxt 619152
//! btime 1795263779
//! processes 13557
//! procs_running 2
//! procs_blocked 0
//! ```
//!
//! Columns: user nice system idle iowait irq softirq steal guest guest_nice, in clock ticks. `user` includes `guest`, `nice`
//! includes `guest_nice`, so these two are left out. Offline CPUs have no line. The line `intr` is not read: it may have
//! 10,000 columns, and `interrupts` has the same by CPU.

use super::{Bad, number};

/// Ticks of one CPU, or of all, by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ticks {
    /// Running user code, guests too.
    pub user: u64,
    /// Running user code of positive nice value.
    pub nice: u64,
    /// Running the kernel for a task.
    pub system: u64,
    /// Nothing to do.
    pub idle: u64,
    /// Nothing to do while a task of this CPU waited for I/O.
    pub iowait: u64,
    /// In hardirq handlers.
    pub irq: u64,
    /// In softirq handlers.
    pub softirq: u64,
    /// Ready to run while the hypervisor ran something else. `None` where the kernel prints no such column.
    pub steal: Option<u64>,
}

/// What `/proc/stat` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stat {
    /// All CPUs together.
    pub all: Ticks,
    /// Each online CPU by its number.
    pub cpus: Vec<(u32, Ticks)>,
    /// Context switches.
    pub switches: Option<u64>,
    /// When the kernel booted, seconds since 1970.
    pub booted: Option<u64>,
    /// Tasks created.
    pub forks: Option<u64>,
    /// Tasks that run or are ready for a CPU, now.
    pub running: Option<u64>,
    /// Tasks that wait for I/O, now.
    pub blocked: Option<u64>,
}

/// Parse the file.
pub fn parse(text: &str) -> Result<Stat, Bad> {
    let mut stat = Stat::default();
    let mut has_all = false;
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        let Some(name) = fields.next() else { continue };
        if let Some(cpu) = name.strip_prefix("cpu") {
            let ticks = ticks(fields, line)?;
            if cpu.is_empty() {
                stat.all = ticks;
                has_all = true;
            } else {
                stat.cpus.push((number(Some(cpu), "cpu<number>", line)?, ticks));
            }
            continue;
        }
        let place = match name {
            "ctxt" => &mut stat.switches,
            "btime" => &mut stat.booted,
            "processes" => &mut stat.forks,
            "procs_running" => &mut stat.running,
            "procs_blocked" => &mut stat.blocked,
            _ => continue, // intr, softirq, page, swap; and lines of newer kernels
        };
        *place = Some(number(fields.next(), "a count", line)?);
    }
    if has_all { Ok(stat) } else { Err(Bad::new("a line that begins with \"cpu \"", text)) }
}

fn ticks<'t>(mut fields: impl Iterator<Item = &'t str>, line: &str) -> Result<Ticks, Bad> {
    let mut next = || number(fields.next(), "seven columns of ticks", line);
    Ok(Ticks {
        user: next()?,
        nice: next()?,
        system: next()?,
        idle: next()?,
        iowait: next()?,
        irq: next()?,
        softirq: next()?,
        steal: match fields.next() {
            None => None,
            steal => Some(number(steal, "ticks stolen", line)?),
        },
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const HERE: &str = "cpu  27409 0 8411 489487 1345 0 103 118 0 0\n\
        cpu0 12103 0 3237 247813 225 0 17 47 0 0\n\
        cpu1 15306 0 5173 241674 1120 0 86 70 0 0\n\
        intr 419479 0 0 1 1 14\nctxt 619152\nbtime 1795263779\nprocesses 13557\nprocs_running 2\nprocs_blocked 0\n\
        softirq 299797 0 45296 18 7544 106980 0 154 72258 0 67547\n";
    /// Linux 6.1 with CPU 1 offline.
    const WITH_A_HOLE: &str = "cpu  8016 0 3512 110045 411 0 62 0 0 0\ncpu0 4000 0 1800 55000 200 0 60 0 0 0\n\
        cpu2 4016 0 1712 55045 211 0 2 0 0 0\nctxt 100\nbtime 1700000000\n";
    /// Linux 2.6.10: no steal yet.
    pub const OLD: &str =
        "cpu  100 5 50 1000 10 1 2\ncpu0 100 5 50 1000 10 1 2\nctxt 7\nbtime 1\nprocesses 3\n";

    #[test]
    fn reads_every_cpu_of_this_host() {
        let stat = parse(HERE).unwrap();
        assert_eq!(stat.cpus.len(), 2);
        assert_eq!((stat.all.user, stat.all.steal), (27409, Some(118)));
        assert_eq!((stat.cpus[1].0, stat.cpus[1].1.iowait), (1, 1120));
        assert_eq!((stat.switches, stat.booted), (Some(619_152), Some(1_795_263_779)));
    }

    #[test]
    fn knows_cpus_by_number_and_old_kernels_without_steal() {
        assert_eq!(parse(WITH_A_HOLE).unwrap().cpus[1].0, 2);
        let old = parse(OLD).unwrap();
        assert_eq!((old.all.softirq, old.all.steal, old.running), (2, None, None));
    }

    #[test]
    fn a_torn_line_is_quoted() {
        let bad = parse("cpu  27409 0 84\n").unwrap_err();
        assert_eq!(bad.to_string(), "expected seven columns of ticks in line \"cpu  27409 0 84\"");
        assert!(parse("").is_err(), "an empty file is not an idle host");
    }
}
