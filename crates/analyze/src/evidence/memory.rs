//! Memory and pressure of the window.

use std::time::Duration;

use whyslow_model::table::Cgroup;
use whyslow_model::{Bytes, Missing};

use super::Evidence;
use crate::memory::uses::Uses;
use crate::parse::pressure::Pressure;
use crate::parse::zoneinfo::Zone;
use crate::parse::{flat, keyed, pressure, zoneinfo};

impl Evidence<'_> {
    /// How much a counter of `/proc/vmstat` rose.
    pub fn vmstat_delta(&self, name: &str) -> Result<u64, Missing> {
        self.flat_delta("proc/vmstat", name)
    }

    /// How much a counter of a file of names and numbers (`memory.events`, `pids.events`) rose. A counter that was not there at
    /// first may be as old as the host: what it counted in the window is not known.
    pub fn flat_delta(&self, file: &str, name: &str) -> Result<u64, Missing> {
        let (first, last) = self.ends(file, flat::parse)?;
        let absent =
            || Missing::NotInKernel { what: format!("{name} in {file}"), needs: "a newer kernel".into() };
        let last = last.get(name).ok_or_else(absent)?;
        let first = first.get(name).ok_or_else(|| super::not_at_first(name, file))?;
        Ok(last.saturating_sub(*first))
    }

    /// A line of `/proc/meminfo` at the end of the window ("MemTotal").
    pub fn meminfo(&self, name: &str) -> Result<Bytes, Missing> {
        let all = self.file("proc/meminfo", keyed::parse)?;
        let absent = || Missing::NotInKernel {
            what: format!("{name} in proc/meminfo"),
            needs: "a newer kernel".into(),
        };
        all.get(name).copied().map(Bytes).ok_or_else(absent)
    }

    /// What fills a cgroup's memory at the end of the window; recorded for cgroups whose limit was met.
    pub fn memory_uses(&self, group: &Cgroup) -> Result<Uses, Missing> {
        let files = group.files.as_deref().unwrap_or_default().trim_start_matches('/');
        let file = format!("{files}/memory.stat");
        let stat = self.file(&file, flat::parse)?;
        let usage = group.memory.as_ref().map_or(0, |memory| memory.usage);
        let absent =
            || Missing::NotInKernel { what: format!("memory by use in {file}"), needs: "Linux 4.6".into() };
        Uses::of(&stat, usage).ok_or_else(absent)
    }

    /// Watermarks and free pages of all zones at the end of the window.
    pub fn zones(&self) -> Result<Vec<Zone>, Missing> {
        self.file("proc/zoneinfo", zoneinfo::parse)
    }

    /// Time stalled for "cpu", "memory", "io" or "irq" in the window.
    pub fn pressure(&self, resource: &str) -> Result<Pressure, Missing> {
        self.pressure_of(&format!("proc/pressure/{resource}"))
    }

    /// The same for a cgroup's file ("sys/fs/cgroup/web/io.pressure").
    pub fn pressure_of(&self, file: &str) -> Result<Pressure, Missing> {
        let (first, last) = self.ends(file, pressure::parse)?;
        let rise = |a: Option<Duration>, b: Option<Duration>| Some(b?.saturating_sub(a?));
        Ok(Pressure { some: rise(first.some, last.some), full: rise(first.full, last.full) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;

    #[test]
    fn counters_are_of_the_window() {
        let host = Fixture::second()
            .start("proc/vmstat", "oom_kill 3\n")
            .end("proc/vmstat", "oom_kill 5\npswpin 2\n");
        assert_eq!(host.ev().vmstat_delta("oom_kill"), Ok(2));
        let why = host.ev().vmstat_delta("nosuch").unwrap_err().to_string();
        assert!(why.contains("this kernel has no nosuch in proc/vmstat"), "{why}");
    }

    #[test]
    fn a_counter_that_was_not_there_at_first_is_no_total_since_boot() {
        let host = Fixture::second()
            .start("proc/vmstat", "pswpin 2\n")
            .end("proc/vmstat", "pswpin 2\noom_kill 5000000\n");
        let why = host.ev().vmstat_delta("oom_kill").unwrap_err().to_string();
        assert_eq!(why, "the first reading of oom_kill in proc/vmstat was not recorded");
        let text = |full: &str| format!("some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n{full}");
        let host = Fixture::second()
            .start("proc/pressure/cpu", &text(""))
            .end("proc/pressure/cpu", &text("full avg10=0.00 avg60=0.00 avg300=0.00 total=9000000\n"));
        assert_eq!(host.ev().pressure("cpu").unwrap().full, None);
    }

    #[test]
    fn pressure_is_of_the_window() {
        let text = |total: u32| format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
        let host =
            Fixture::second().start("proc/pressure/io", &text(1000)).end("proc/pressure/io", &text(251_000));
        let want = Pressure { some: Some(Duration::from_millis(250)), full: None };
        assert_eq!(host.ev().pressure("io"), Ok(want));
        assert_eq!(host.ev().pressure("irq").unwrap_err().to_string(), "proc/pressure/irq was not recorded");
    }

    #[test]
    fn memory_is_in_bytes() {
        let host = Fixture::second().end("proc/meminfo", "MemTotal: 2048 kB\n");
        assert_eq!(host.ev().meminfo("MemTotal"), Ok(Bytes(2 << 20)));
        assert!(host.ev().meminfo("Percpu").is_err());
    }
}
