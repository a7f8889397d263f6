//! Classic BPF: the kernel drops foreign packets before it copies them to us.
//!
//! A filter of a raw IPv4 socket sees the packet from its IP head on (raw_rcv pushes it back), one of IPv6 from the transport head on.

use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_MSH, BPF_RET,
    BPF_W,
};
use std::net::IpAddr;

use super::syn::{RST, SYN};

/// Longest filter.
pub const LONGEST: usize = 9;
/// `SKF_NET_OFF` of linux/filter.h: from here on, of the IP head of either version.
const IP_HEAD: u32 = -0x10_0000_i32 as u32;

type Step = libc::sock_filter;

fn step(code: u32, k: u32) -> Step {
    Step { code: code as u16, jt: 0, jf: 0, k }
}

/// Continue after `yes` or `no` more steps.
fn is(value: impl Into<u32>, yes: usize, no: usize) -> Step {
    Step { jt: yes as u8, jf: no as u8, ..step(BPF_JMP | BPF_JEQ | BPF_K, value.into()) }
}

/// The 16 bits at `at` of the transport head; of IPv4 after `skip_ip_head`.
fn load(v6: bool, at: u32) -> Step {
    step(BPF_LD | BPF_H | if v6 { BPF_ABS } else { BPF_IND }, at)
}

fn skip_ip_head(v6: bool) -> Option<Step> {
    (!v6).then(|| step(BPF_LDX | BPF_B | BPF_MSH, 0))
}

fn drop_or_keep() -> [Step; 2] {
    [step(BPF_RET | BPF_K, 0), step(BPF_RET | BPF_K, u32::MAX)]
}

/// Keeps ICMP packets with that identifier.
pub fn of_identifier(v6: bool, id: u16) -> Vec<Step> {
    skip_ip_head(v6).into_iter().chain([load(v6, 4), is(id, 1, 0)]).chain(drop_or_keep()).collect()
}

/// Keeps the begin and the refusal of TCP connections to `port` of the target, and drops what the others of this host exchange with it. Of an address
/// its last 32 bits count: what remains of others is dropped later.
pub fn of_port(target: IpAddr, port: u16) -> Vec<Step> {
    let (v6, at, address) = match target {
        IpAddr::V4(v4) => (false, 12, v4.to_bits()),
        IpAddr::V6(v6) => (true, 8 + 12, v6.to_bits() as u32),
    };
    let from = step(BPF_LD | BPF_W | BPF_ABS, IP_HEAD + at);
    let mode = if v6 { BPF_ABS } else { BPF_IND };
    let flags = step(BPF_LD | BPF_B | mode, 13);
    let begins = Step { jt: 1, jf: 0, ..step(BPF_JMP | BPF_JSET | BPF_K, u32::from(SYN | RST)) };
    let steps = [load(v6, 0), is(port, 0, 2), flags, begins];
    let of_target = [from, is(address, 0, steps.len() + usize::from(!v6))];
    of_target.into_iter().chain(skip_ip_head(v6)).chain(steps).chain(drop_or_keep()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The kernel's interpreter, as far as the filters here use it; a load past the end drops the packet.
    fn keeps(filter: &[Step], (ip_head, packet): (&[u8], &[u8])) -> bool {
        let (mut at, mut a, mut x) = (0, 0_u32, 0_u32);
        let load = |at: u32, bytes: usize| {
            let (from, at) = at.checked_sub(IP_HEAD).map_or((packet, at), |at| (ip_head, at));
            let loaded = from.get(at as usize..at as usize + bytes)?;
            Some(loaded.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
        };
        loop {
            let step = filter[at];
            at += 1;
            let code = u32::from(step.code);
            if code == BPF_RET | BPF_K {
                return step.k != 0;
            } else if code == BPF_LDX | BPF_B | BPF_MSH {
                let Some(first) = packet.first() else { return false };
                x = u32::from(first & 0xf) * 4;
            } else if code == BPF_JMP | BPF_JEQ | BPF_K {
                at += usize::from(if a == step.k { step.jt } else { step.jf });
            } else if code == BPF_JMP | BPF_JSET | BPF_K {
                at += usize::from(if a & step.k != 0 { step.jt } else { step.jf });
            } else {
                let from = if code & BPF_IND == BPF_IND { x + step.k } else { step.k };
                let bytes = if code & BPF_B == BPF_B {
                    1
                } else if code & BPF_H == BPF_H {
                    2
                } else {
                    4
                };
                let Some(loaded) = load(from, bytes) else { return false };
                a = loaded;
            }
        }
    }

    fn packet(v6: bool, transport: &[u8]) -> Vec<u8> {
        let mut packet = if v6 { vec![] } else { vec![0x46; 24] };
        packet.extend(transport);
        packet
    }

    fn target(v6: bool, host: u8) -> IpAddr {
        if v6 {
            [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host].into()
        } else {
            [10, 0, 0, host].into()
        }
    }

    fn ip_head(v6: bool, from: u8) -> Vec<u8> {
        match target(v6, from) {
            IpAddr::V4(from) => [&[0x46; 12][..], &from.octets(), &[0; 8]].concat(),
            IpAddr::V6(from) => [&[0x60; 8][..], &from.octets(), &[0; 16]].concat(),
        }
    }

    proptest! {
        #[test]
        fn only_our_identifier_passes(v6: bool, id: u16, ours: u16) {
            let [high, low] = id.to_be_bytes();
            let packet = packet(v6, &[0, 0, 0, 0, high, low, 0, 0]);
            prop_assert_eq!(keeps(&of_identifier(v6, ours), (&[], &packet)), id == ours);
            prop_assert!(keeps(&of_identifier(v6, id), (&[], &packet)));
        }

        #[test]
        fn only_begins_and_refusals_of_the_port_pass(v6: bool, from in 1..4_u16, flags: u8, host in 1..3_u8) {
            let mut head = [0; 20];
            (head[1], head[13]) = (from as u8, flags);
            let filter = of_port(target(v6, 1), 2);
            prop_assert!(filter.len() <= LONGEST);
            let packet = packet(v6, &head);
            let ip_head = ip_head(v6, host);
            prop_assert_eq!(keeps(&filter, (&ip_head, &packet)), from == 2 && host == 1 && flags & 6 != 0);
        }

        #[test]
        fn torn_packets_are_dropped(v6: bool, length in 0..20_usize) {
            let packet = &packet(v6, &[0; 3])[..length.min(if v6 { 3 } else { 20 })];
            prop_assert!(!keeps(&of_port(target(v6, 1), 0), (&ip_head(v6, 1), packet)));
            prop_assert!(!keeps(&of_port(target(v6, 1), 0), (&[], packet)));
        }
    }
}
