//! The kernel itself: its clock, its log, its settings.

use std::time::Duration;

use whyslow_model::Missing;

use super::Evidence;
use crate::parse::cpulist::{self, CpuList};
use crate::parse::kmsg::Record;
use crate::parse::{choice, cmdline, cpuinfo, kmsg, single};

/// The kernel's clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clocksource {
    /// The clocksource in use: "tsc".
    pub current: String,
    /// All clocksources that are available, the one in use too.
    pub available: Vec<String>,
}

impl Evidence<'_> {
    /// The kernel's clock.
    pub fn clocksource(&self) -> Result<Clocksource, Missing> {
        const DIR: &str = "sys/devices/system/clocksource/clocksource0";
        let current = self.file(&format!("{DIR}/current_clocksource"), |text| Ok(text.trim().to_owned()))?;
        let available = self.file(&format!("{DIR}/available_clocksource"), |text| {
            Ok(text.split_ascii_whitespace().map(str::to_owned).collect())
        })?;
        if current.is_empty() {
            return Err(Missing::broken(format!("{DIR}/current_clocksource"), "it is empty"));
        }
        Ok(Clocksource { current, available })
    }

    /// The tail of the kernel's log, oldest first.
    pub fn kernel_log(&self) -> Result<Vec<Record>, Missing> {
        self.file("dev/kmsg", |text| Ok(kmsg::parse(text)))
    }

    /// Records of the log that were written in the window; needs `/proc/uptime` at the window's start.
    pub fn kernel_log_of_window(&self) -> Result<Vec<Record>, Missing> {
        let first = self.first("proc/uptime")?;
        let text = crate::parse::text(&first.bytes);
        let uptime = text.split_ascii_whitespace().next().and_then(|s| s.parse::<f64>().ok());
        let uptime = uptime.and_then(|s| Duration::try_from_secs_f64(s).ok());
        let uptime = uptime.ok_or_else(|| Missing::broken("proc/uptime", "expected seconds since boot"))?;
        // One-shot files may have been read late in the window: their uptime is then later than the window's start.
        let began = uptime.saturating_sub(first.at).as_micros();
        let mut log = self.kernel_log()?;
        log.retain(|record| u128::from(record.us) >= began);
        Ok(log)
    }

    /// The kernel's parameters.
    pub fn kernel_parameters(&self) -> Result<Vec<cmdline::Parameter>, Missing> {
        self.file("proc/cmdline", |text| Ok(cmdline::parse(text)))
    }

    /// NUMA nodes that have CPUs, with those CPUs.
    pub fn nodes(&self) -> Result<Vec<(u32, CpuList)>, Missing> {
        const DIR: &str = "sys/devices/system/node/node";
        let mut nodes = Vec::new();
        for frame in self.files_like(DIR, "/cpulist") {
            let number = frame.name.strip_prefix(DIR).and_then(|rest| rest.split('/').next()?.parse().ok());
            let cpus = super::parsed(frame, cpulist::parse)?;
            nodes.extend(number.filter(|_| cpus.count() > 0).map(|number| (number, cpus)));
        }
        nodes.sort_by_key(|(number, _)| *number);
        if nodes.is_empty() { Err(self.rec.why_missing(&format!("{DIR}*/cpulist"))) } else { Ok(nodes) }
    }

    /// CPU model and features.
    pub fn cpu_info(&self) -> Result<cpuinfo::CpuInfo, Missing> {
        self.file("proc/cpuinfo", cpuinfo::parse)
    }

    /// A sysctl of one number ("vm/swappiness").
    pub fn sysctl(&self, name: &str) -> Result<i64, Missing> {
        self.file(&format!("proc/sys/{name}"), single::integer)
    }

    /// The numbers of a sysctl ("fs/file-nr").
    pub fn sysctls(&self, name: &str) -> Result<Vec<u64>, Missing> {
        self.file(&format!("proc/sys/{name}"), single::integers)
    }

    /// The preemption model in force: "none", "voluntary", "full", "lazy".
    pub fn preemption(&self) -> Result<String, Missing> {
        self.file("sys/kernel/debug/sched/preempt", choice::parse).map(|c| c.set)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;

    #[test]
    fn the_clock_in_use_and_those_on_offer() {
        const DIR: &str = "sys/devices/system/clocksource/clocksource0";
        let host = Fixture::second()
            .end(&format!("{DIR}/current_clocksource"), "tsc\n")
            .end(&format!("{DIR}/available_clocksource"), "tsc kvm-clock \n");
        assert_eq!(host.ev().clocksource().unwrap().available, ["tsc", "kvm-clock"]);
        assert!(Fixture::second().ev().clocksource().is_err());
    }

    #[test]
    fn only_the_log_of_the_window() {
        let host = Fixture::second()
            .start("proc/uptime", "100.00 180.00\n")
            .end("dev/kmsg", "6,1,99000000,-;before\n6,2,100500000,-;in it\n");
        let texts: Vec<String> =
            host.ev().kernel_log_of_window().unwrap().into_iter().map(|r| r.text).collect();
        assert_eq!(texts, ["in it"]);
        assert_eq!(host.ev().kernel_log().unwrap().len(), 2);
        let late = Fixture::second()
            .end("proc/uptime", "101.00 180.00\n")
            .end("dev/kmsg", "6,2,100500000,-;in it\n");
        assert_eq!(late.ev().kernel_log_of_window().unwrap().len(), 1);
    }

    #[test]
    fn an_uptime_that_makes_no_sense_is_broken() {
        for text in ["", "nan", "-1", "1e400"] {
            let host = Fixture::second().start("proc/uptime", text).end("dev/kmsg", "");
            assert!(host.ev().kernel_log_of_window().is_err(), "{text:?}");
        }
    }

    #[test]
    fn nodes_with_cpus_are_reported_in_order() {
        let file = |node: u32| format!("sys/devices/system/node/node{node}/cpulist");
        let host = Fixture::second().end(&file(10), "8-15\n").end(&file(2), "0-7\n").end(&file(3), "\n");
        let nodes = host.ev().nodes().unwrap();
        assert_eq!(nodes.iter().map(|(n, cpus)| (*n, cpus.count())).collect::<Vec<_>>(), [(2, 8), (10, 8)]);
        assert!(Fixture::second().ev().nodes().is_err());
        assert!(Fixture::second().end(&file(1), "0-\n").ev().nodes().is_err());
    }

    #[test]
    fn settings_are_read_by_name() {
        let host = Fixture::second()
            .end("proc/sys/vm/swappiness", "60\n")
            .end("proc/sys/fs/file-nr", "1248\t0\t9223372036854775807\n")
            .end("sys/kernel/debug/sched/preempt", "none voluntary (full) lazy\n")
            .end("proc/cmdline", "quiet\n");
        assert_eq!(host.ev().sysctl("vm/swappiness"), Ok(60));
        assert_eq!(host.ev().sysctls("fs/file-nr").unwrap()[0], 1248);
        assert_eq!(host.ev().preemption().as_deref(), Ok("full"));
        assert_eq!(host.ev().kernel_parameters().unwrap().len(), 1);
        assert_eq!(
            host.ev().sysctl("vm/nosuch").unwrap_err().to_string(),
            "proc/sys/vm/nosuch was not recorded"
        );
    }
}
