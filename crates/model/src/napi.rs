//! What the receive softirq did on each CPU, and sockets whose packets waited for a reader.

use serde::{Deserialize, Serialize};

use crate::timeline::is_default;

/// Polls of a CPU over the window. A run is one softirq NET_RX: several polls of network devices, until none has packets or
/// a limit is met (`time_squeeze` of softnet_stat counts both limits).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Poll {
    pub cpu: u32,
    /// Runs that polled.
    pub runs: u64,
    /// Polls in them.
    pub polls: u64,
    /// Packets in them.
    pub packets: u64,
    /// Runs that stopped because the budget of packets was used up.
    pub budget_stops: u64,
    /// Their time until then.
    pub budget_ns: u64,
    /// Their packets until then.
    pub budget_packets: u64,
    /// Runs that stopped because their time was up, with packets left in the budget.
    pub time_stops: u64,
    /// Their time until then.
    pub time_ns: u64,
    /// Their packets until then.
    pub time_packets: u64,
    /// Polls by threads (threaded NAPI) and by busy polling: of no run.
    pub other_polls: u64,
    /// Packets in them.
    pub other_packets: u64,
    /// Of `packets`: those that came through the queue of the CPU itself (backlog: RPS, loopback, veth), and not from a device's ring.
    #[serde(skip_serializing_if = "is_default")]
    pub backlog_packets: u64,
    /// Packets that a run may take (net.core.netdev_budget).
    pub budget: u64,
    /// Time that a run may take (net.core.netdev_budget_usecs, in whole ticks of the kernel).
    pub limit_ns: u64,
}

/// A socket whose receive queue was seen full, that dropped packets, or that had to wait: for its peer to read, or for the queue of its device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Socket {
    /// Network namespace (inode).
    pub netns: u32,
    /// TCP; else UDP.
    pub tcp: bool,
    /// Its own address: "10.0.0.2:8080".
    pub local: String,
    /// Its peer's.
    pub peer: String,
    /// Process that owns it.
    pub tgid: u32,
    /// That process's name.
    pub comm: String,
    /// Times that all sockets were looked at.
    pub looks: u64,
    /// ... and this one's receive queue had used half of its memory, or more.
    pub full: u64,
    /// ... and its window was closed: its peer might not send.
    pub closed: u64,
    /// Memory of its queue at the worst look.
    pub used_bytes: u64,
    /// Memory that its queue may have.
    pub room_bytes: u64,
    /// Packets that came for it and were dropped, in the window.
    pub drops: u64,
    /// Time of the window in which it had data to send and its peer's window had no room.
    pub held_ns: u64,
    /// Looks at which packets were in the queue of the device that it sends through, some of them its own, if that queue has a rate or a delay (tc).
    #[serde(skip_serializing_if = "is_default")]
    pub queued: u64,
    /// Looks at which that was so of any socket that sends through this device.
    #[serde(skip_serializing_if = "is_default")]
    pub device_queued: u64,
    /// That device: "eth0".
    #[serde(skip_serializing_if = "is_default")]
    pub device: String,
    /// What sort of queue it has: "tbf".
    #[serde(skip_serializing_if = "is_default")]
    pub qdisc: String,
}
