//! The module's own account.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One line of the control file: how often a fault happened, and how long, by the module's own clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// The verb of its line: irqs, idle, lock, work, file, msr, pace.
    pub what: String,
    /// The name of a lock, a work item or a file.
    pub name: Option<String>,
    /// The kernel thread.
    pub by: Option<String>,
    /// The CPU.
    pub cpu: Option<u32>,
    /// Number of readers in the file now.
    pub inside: u64,
    /// How often it has ended.
    pub times: u64,
    /// Sum of all times.
    pub total: Duration,
    /// The longest time.
    pub longest: Duration,
}

impl Count {
    /// A line of the control file; nothing where it is none.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let mut count = Self { what: words.next()?.into(), ..Self::default() };
        let mut counted = false;
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                count.name = Some(word.into());
                continue;
            };
            match key {
                "by" => count.by = Some(value.into()),
                "cpu" => count.cpu = Some(value.parse().ok()?),
                "inside" => count.inside = value.parse().ok()?,
                "count" => count.times = value.parse().ok()?,
                "total_ns" => count.total = Duration::from_nanos(value.parse().ok()?),
                "max_ns" => {
                    count.longest = Duration::from_nanos(value.parse().ok()?);
                    counted = true;
                }
                _ => {}
            }
        }
        counted.then_some(count)
    }
}
