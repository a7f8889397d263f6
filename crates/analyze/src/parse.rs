//! Parsers: kernel text in, facts out. One file for each format. No text makes them panic.

use std::borrow::Cow;
use std::str::FromStr;

use thiserror::Error;

pub mod buddyinfo;
pub mod cgroups;
pub mod choice;
pub mod cmdline;
pub mod cpuinfo;
pub mod cpulist;
pub mod diskstats;
pub mod flat;
pub mod interrupts;
pub mod io_limits;
pub mod keyed;
pub mod kmsg;
pub mod kubelet;
pub mod loadavg;
pub mod modules;
pub mod mountinfo;
pub mod netdev;
pub mod netstat;
pub mod pid_schedstat;
pub mod pid_stat;
pub mod pid_status;
pub mod pressure;
pub mod single;
pub mod sockstat;
pub mod softnet;
pub mod stat;
pub mod zoneinfo;

#[cfg(test)]
mod fuzz;

/// Feeds bytes to a parser.
pub type Feed = fn(&[u8]);

/// Every parser by the name of its file: what the fuzz test feeds.
pub const ALL: &[(&str, Feed)] = &[
    ("buddyinfo", |b| drop(buddyinfo::parse(&text(b)))),
    ("cgroups", |b| drop(cgroups::parse(&text(b)))),
    ("choice", |b| drop(choice::parse(&text(b)))),
    ("cmdline", |b| drop(cmdline::parse(&text(b)))),
    ("cpuinfo", |b| drop(cpuinfo::parse(&text(b)))),
    ("cpulist", |b| drop(cpulist::parse(&text(b)).map(|l| (l.count(), l.contains(7))))),
    ("diskstats", |b| drop(diskstats::parse(&text(b)))),
    ("flat", |b| drop(flat::parse(&text(b)))),
    ("interrupts", |b| drop(interrupts::parse(&text(b)))),
    ("io_limits", |b| drop(io_limits::of_device(&text(b), "254:0", b.len() % 2 == 0, b.len() % 3 == 0))),
    ("keyed", |b| drop(keyed::parse(&text(b)))),
    ("kmsg", |b| drop(kmsg::parse(&text(b)))),
    ("kubelet", |b| drop(kubelet::shared_cpus(&text(b)))),
    ("loadavg", |b| drop(loadavg::parse(&text(b)))),
    ("modules", |b| drop(modules::parse(&text(b)))),
    ("mountinfo", |b| drop(mountinfo::parse(&text(b)))),
    ("netdev", |b| drop(netdev::parse(&text(b)))),
    ("netstat", |b| drop(netstat::parse(&text(b)))),
    ("pid_schedstat", |b| drop(pid_schedstat::parse(&text(b)))),
    ("pid_stat", |b| drop(pid_stat::parse(&text(b)))),
    ("pid_status", |b| drop(pid_status::parse(&text(b)).map(|s| (s.number("VmRSS"), s.allowed())))),
    ("pressure", |b| drop(pressure::parse(&text(b)))),
    ("single", |b| {
        drop((single::integer(&text(b)), single::integers(&text(b))));
        drop((single::limit(&text(b)), single::cpu_max(&text(b))));
    }),
    ("sockstat", |b| drop(sockstat::parse(&text(b)))),
    ("softnet", |b| drop(softnet::parse(&text(b)))),
    ("stat", |b| drop(stat::parse(&text(b)))),
    ("zoneinfo", |b| drop(zoneinfo::parse(&text(b)))),
];

/// A text that does not have its format. The caller knows the path and adds it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("expected {wanted} in line {line:?}")]
pub struct Bad {
    wanted: &'static str,
    line: String,
}

impl Bad {
    /// `wanted` was not found in `line`.
    #[must_use]
    pub fn new(wanted: &'static str, line: &str) -> Self {
        Bad { wanted, line: line.chars().take(200).collect() }
    }
}

/// The bytes of a file as text. Names in it need not be UTF-8; other bytes become U+FFFD.
#[must_use]
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A number from a field that may be absent.
pub(crate) fn number<T: FromStr>(field: Option<&str>, wanted: &'static str, line: &str) -> Result<T, Bad> {
    field.and_then(|f| f.parse().ok()).ok_or_else(|| Bad::new(wanted, line))
}
