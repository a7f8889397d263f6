//! Requests to another host, and when their answers came.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::finding::{RuledOut, in_seconds, in_seconds_or_null};
use crate::stall::StallCulprit;
use crate::timeline::is_default;
use crate::words::words;

words! {
    /// How a host is asked.
    PingHow {
        /// ICMP and ICMPv6 echo requests: all of them in one receive queue of the target.
        Icmp "icmp",
        /// TCP SYN, never completed, from several source ports.
        Tcp "tcp",
        /// UDP, from several source ports.
        Udp "udp",
    }
}

words! {
    /// What came back.
    PingAnswer {
        /// An echo, or a datagram.
        Reply "reply",
        /// The TCP port is open.
        SynAck "syn-ack",
        /// The TCP port is closed.
        Reset "reset",
        /// The UDP port is closed: an ICMP error, of which Linux sends about one a second to each host (net.ipv4.icmp_ratelimit).
        PortUnreachable "port-unreachable",
        /// Another ICMP error: no route, or a firewall.
        Unreachable "unreachable",
    }
}

/// What was asked: one target a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pinged {
    /// The target as the user named it.
    pub target: String,
    /// Its address.
    pub address: String,
    /// A word of [`PingHow`].
    pub how: String,
    /// The port; 0: none.
    #[serde(skip_serializing_if = "is_default")]
    pub port: u16,
    /// Each second request was an ICMP echo.
    #[serde(skip_serializing_if = "is_default")]
    pub with_icmp: bool,
    /// The time between two requests.
    pub interval_ns: u64,
    /// A request without an answer for so long is lost.
    pub timeout_ns: u64,
}

/// One request, and its answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ping {
    /// When the kernel handed it to the device; where it does not tell, when whyslow handed it to the kernel.
    pub sent_ns: u64,
    /// So much later than it was due: whyslow had no CPU.
    #[serde(skip_serializing_if = "is_default")]
    pub late_ns: u64,
    /// When the kernel took the answer from the device; `None`: none came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_ns: Option<u64>,
    /// A word of [`PingAnswer`]; empty: none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub answer: String,
    /// The source port; 0: none.
    #[serde(skip_serializing_if = "is_default")]
    pub port: u16,
    /// Why it was not sent: a name as in errno(3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the target told of it; `None`: only `whyslow net --serve` tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leg: Option<Box<Leg>>,
}

/// A request at the target, by the target's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Leg {
    /// From its leaving until the target's kernel took it from the device, less the least of all requests: two clocks have no common zero.
    pub there_ns: u64,
    /// From then until the target answered.
    pub stay_ns: u64,
}

/// The answers of a host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PingAccount {
    /// The target as the user named it.
    pub target: String,
    /// Its address.
    pub address: String,
    /// How it was asked: a word of [`PingHow`].
    pub how: String,
    /// The port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Each second request was an ICMP echo.
    pub with_icmp: bool,
    /// One of the two ways had no answer, and is in none of the counts: "icmp", "tcp port 80".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent: Option<String>,
    /// The time between two requests.
    #[serde(rename = "interval_s", serialize_with = "in_seconds")]
    pub interval: Duration,
    /// Requests that left.
    pub sent: u64,
    /// Requests with an answer of the target.
    pub answered: u64,
    /// Requests without any.
    pub lost: u64,
    /// Requests that did not reach the target, by an ICMP error.
    pub unreachable: u64,
    /// Requests without an answer where the kernel's limit on ICMP errors may be the reason.
    pub limited: u64,
    /// Requests that were due while whyslow had no CPU, and were not sent.
    pub left_out: u64,
    /// Answers by kind, the most frequent first.
    pub answers: Vec<Answers>,
    /// Requests that the kernel refused to send, by error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_sent: Vec<NotSent>,
    /// Time from request to answer.
    pub times: Option<PingTimes>,
    /// Answers that took so much or longer are late.
    #[serde(rename = "late_from_s", serialize_with = "in_seconds_or_null")]
    pub late_from: Option<Duration>,
    /// Late answers.
    pub late: u64,
    /// Of these, the ones with which no other came: jitter, a longer path, or stalls shorter than the interval.
    pub alone: u64,
    /// Times in which no request was answered, from answers that came together or were lost in a row; in order of time.
    pub stalls: Vec<PingStall>,
    /// Where late answers waited; the most answers first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<PingPlace>,
    /// Requests of other source ports during the stalls; `None`: one port was asked from, or there was no stall.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<PingPorts>,
    /// Late answers that stalls of this host explain, by CPU and cause; the most answers first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub explained: Vec<Explained>,
    /// Why no late answer can be explained by this host; `None`: its stalls were watched.
    pub unwatched: Option<String>,
    /// What did not keep the late answers waiting.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ruled_out: Vec<RuledOut>,
    /// Requests that whyslow sent an interval late or more: stalls may have begun unseen then.
    pub sent_late: u64,
    /// What a reader must know: a limit of answers, a clock that was set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Answers of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answers {
    /// What came.
    pub answer: PingAnswer,
    /// How often.
    pub count: u64,
}

/// Requests that the kernel did not send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotSent {
    /// A name as in errno(3).
    pub error: String,
    /// How many.
    pub count: u64,
}

/// Percentiles of the time from request to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PingTimes {
    /// The shortest.
    #[serde(rename = "least_s", serialize_with = "in_seconds")]
    pub least: Duration,
    /// Half of the answers took so long at most.
    #[serde(rename = "p50_s", serialize_with = "in_seconds")]
    pub p50: Duration,
    #[serde(rename = "p90_s", serialize_with = "in_seconds")]
    pub p90: Duration,
    #[serde(rename = "p99_s", serialize_with = "in_seconds")]
    pub p99: Duration,
    #[serde(rename = "p999_s", serialize_with = "in_seconds")]
    pub p999: Duration,
    /// The longest.
    #[serde(rename = "worst_s", serialize_with = "in_seconds")]
    pub worst: Duration,
}

/// A time in which no request was answered: the answers came together at its end, or never.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PingStall {
    /// When its first request was sent, since the window began.
    #[serde(rename = "at_s", serialize_with = "in_seconds")]
    pub at: Duration,
    /// From then until its answer, less the usual time of an answer; if it was lost, until the first request that was answered. The stall itself
    /// may have begun up to an interval earlier.
    #[serde(rename = "length_s", serialize_with = "in_seconds")]
    pub length: Duration,
    /// Late answers that came at its end.
    pub late: u64,
    /// All answers that came at its end.
    pub answers: u64,
    /// Requests of that time without an answer.
    pub lost: u64,
}

words! {
    /// A part of the way of a request and its answer.
    Where {
        /// From this host's device to the target, and there until its kernel took the request from the device.
        There "before-target",
        /// From then until the target's server answered.
        Target "target",
        /// From then until this host's kernel took the answer from the device: in the target's send queue, too.
        Back "after-target",
    }
}

/// Late answers that waited in one place for more than half of their delay, by the times that the target told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PingPlace {
    /// `None`: cannot tell.
    pub place: Option<Where>,
    /// How many.
    pub late: u64,
}

words! {
    /// Which source ports a stall holds.
    PortsHeld {
        /// All that were asked from meanwhile.
        All "all",
        /// Some of them.
        Some "some",
        /// The same ones in each stall.
        Same "some-the-same",
        /// In each stall others.
        Changing "some-changing",
        /// It cannot be told.
        Unknown "cannot-tell",
    }
}

/// Requests that were sent during stalls, early enough to be late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PingPorts {
    /// Which ports the stalls hold.
    pub held: PortsHeld,
    /// Requests from ports whose answers came late.
    pub late: u64,
    /// Source ports of these.
    pub late_ports: u64,
    /// Requests from ports whose answers came in time.
    pub in_time: u64,
    /// Source ports of these.
    pub in_time_ports: u64,
    /// ICMP echoes that came late; they are not among the requests from ports.
    pub icmp_late: u64,
    /// Those in time.
    pub icmp_in_time: u64,
}

/// Late answers that waited on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// The CPU.
    pub cpu: u32,
    /// Late answers.
    pub late: u64,
    /// Stalls of packets on that CPU.
    pub stalls: u64,
    /// What had the CPU; `None`: cannot tell.
    pub culprit: Option<StallCulprit>,
    /// Why it cannot be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}
