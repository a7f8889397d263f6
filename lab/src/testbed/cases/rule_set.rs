//! Packets wait behind each other because each goes through tens of thousands of rules of a firewall. In the healthy form the same bursts
//! meet one rule.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::clock::{self, Span};
use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, host};

use super::actor::Actor;
use super::burst::{self, Burst};
use super::named;
use super::net::run_in;
use super::packets::{self, Least};
use super::stall::{Pinger, far_end, pinger};
use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Setting};

/// iptables of the kernel's old tables (ip_tables.c): one rule after another, without an index.
const RESTORE: &str = "iptables-legacy-restore";
/// The pinger's own packets go through the rules, too: they are a small part of the load.
const PACKET_EVERY_MS: u64 = 5;

/// A burst takes so many times as long as the shortest wait that whyslow lists.
const LEAST: f64 = 1.5;

/// What is drawn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Rules, none of which a packet meets.
    rules: u64,
    /// Datagrams of one burst ...
    datagrams: u64,
    /// ... at this interval.
    every_ms: u64,
    /// CPU of the packets.
    cpu: usize,
    /// The same bursts without the rules.
    #[serde(default)]
    twin: bool,
}

struct RuleSet {
    spec: Spec,
    file: PathBuf,
    pinger: Pinger,
    _sender: Actor,
    far: Actor,
}

impl Setting for Spec {
    fn needs_program(&self) -> Option<&'static str> {
        Some(RESTORE)
    }

    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let other = host::cpus().into_iter().find(|one| *one != self.cpu).ok_or("this wants two CPUs")?;
        let far = far_end(draw, self.cpu)?;
        let pinger = pinger(&far, other, PACKET_EVERY_MS, draw)?;
        let every_ns = self.every_ms.saturating_mul(1_000_000);
        let sender =
            burst::sender(Burst { to: pinger.target, count: self.datagrams, every_ns }, &pinger, draw)?;
        let file = testbed.dir.join(draw.word(6));
        let set = RuleSet { spec: self.clone(), file, pinger, _sender: sender, far: far.0 };
        set.rules(0)?;
        Ok(Box::new(set))
    }
}

impl RuleSet {
    /// The namespace of the receiver has these rules, and one that drops the datagrams.
    fn rules(&self, count: u64) -> Result<(), Trouble> {
        fs::write(&self.file, table(count))?;
        run_in(self.far.pid(), RESTORE, &[&self.file.display().to_string()])?;
        Ok(fs::remove_file(&self.file)?)
    }
}

/// A file of iptables-save. No packet comes from 172.16.0.0/12.
fn table(count: u64) -> String {
    let mut text =
        String::from("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n");
    for at in 0..count {
        let (high, middle, low) = (16 + (at >> 16) % 16, (at >> 8) % 256, at % 256);
        let _ = writeln!(text, "-A INPUT -s 172.{high}.{middle}.{low}/32 -j DROP");
    }
    text + "-A INPUT -p udp -j DROP\nCOMMIT\n"
}

impl Part for RuleSet {
    fn impose(&mut self) -> Result<(), Trouble> {
        if self.spec.twin { Ok(()) } else { self.rules(self.spec.rules) }
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        self.rules(0)?;
        Ok(self.pinger.actor.until_noted(clock::now(), Duration::from_secs(20))?)
    }

    fn names(&self) -> BTreeMap<String, String> {
        let mut names = named([("cpu", self.spec.cpu.to_string())]);
        names.extend(named(self.pinger.names()));
        names
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let spec = &self.spec;
        let least = if spec.twin { Least::Healthy } else { Least::Slow(LEAST) };
        packets::waited(&self.pinger, spec.every_ms, window, without, least, self.names())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_its_rules_and_drops_datagrams_last() {
        let text = table(70_000);
        assert_eq!(text.lines().filter(|line| line.starts_with("-A INPUT -s 172.")).count(), 70_000);
        assert!(text.contains("-s 172.17.1.5/32 -j DROP\n") && text.ends_with("-p udp -j DROP\nCOMMIT\n"));
    }
}
