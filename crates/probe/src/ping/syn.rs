//! TCP SYN: bytes of requests, answers and quotes of requests.

use std::net::IpAddr;

use super::control::array;
use super::packet::{ipv4_payload, pseudo_head, sum};

/// A head, and the option MSS: a SYN without one looks like a scan.
pub const LENGTH: usize = 24;

/// Rows are this far apart in sequence numbers, modulo 2^32; odd, so that the row can be computed back. A SYN whose number is in the
/// window of a half-open connection of the same port is answered with a reset (tcp_check_req), as if the port were closed. Numbers
/// nearer than such a window belong to rows that are 29,000 apart at least; rows of one port are 1,000 apart at most.
const STEP: u32 = 0x9e37_79b1;

const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
const ACK: u8 = 16;

/// SYNs of one pinger.
#[derive(Debug, Clone)]
pub struct Syns {
    pub from: IpAddr,
    pub to: IpAddr,
    /// The port asked.
    pub port: u16,
    /// Source ports, in turn.
    pub ports: Vec<u16>,
    /// The sequence number of row 0.
    pub base: u32,
}

/// What a segment tells about a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Open,
    Closed,
}

impl Syns {
    /// The source port of a row.
    pub fn port_of(&self, row: u64) -> u16 {
        let lane = row.checked_rem(self.ports.len() as u64).unwrap_or(0);
        self.ports.get(lane as usize).copied().unwrap_or(0)
    }

    fn number(&self, row: u64) -> u32 {
        self.base.wrapping_add((row as u32).wrapping_mul(STEP))
    }

    /// The row of a sequence number; any number gives one, which the port confirms.
    fn row(&self, number: u32, port: u16) -> Option<u64> {
        let row = u64::from(number.wrapping_sub(self.base).wrapping_mul(inverse(STEP)));
        (port != 0 && self.port_of(row) == port).then_some(row)
    }

    /// The request of a row.
    pub fn request(&self, row: u64) -> [u8; LENGTH] {
        let mut packet = [0; LENGTH];
        let mss: u16 = if self.to.is_ipv4() { 1460 } else { 1440 };
        packet[0..2].copy_from_slice(&self.port_of(row).to_be_bytes());
        packet[2..4].copy_from_slice(&self.port.to_be_bytes());
        packet[4..8].copy_from_slice(&self.number(row).to_be_bytes());
        packet[12..14].copy_from_slice(&[(LENGTH as u8 / 4) << 4, SYN]);
        packet[14..16].copy_from_slice(&64_240_u16.to_be_bytes());
        packet[20..22].copy_from_slice(&[2, 4]);
        packet[22..24].copy_from_slice(&mss.to_be_bytes());
        let start = pseudo_head(self.from, self.to, libc::IPPROTO_TCP as u8, LENGTH as u16);
        let sum = sum(start, &packet);
        packet[16..18].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// The row that a packet answers, and how. A raw socket of IPv4 hands over the IP head, one of IPv6 does not.
    pub fn answered(&self, packet: &[u8]) -> Option<(u64, Told)> {
        let tcp = if self.to.is_ipv4() { ipv4_payload(packet, libc::IPPROTO_TCP)? } else { packet };
        let from = u16::from_be_bytes(array(tcp, 0)?);
        let to = u16::from_be_bytes(array(tcp, 2)?);
        let acknowledged = u32::from_be_bytes(array(tcp, 8)?);
        let told = match tcp.get(13)? & (FIN | SYN | RST | ACK) {
            flags if flags == SYN | ACK => Told::Open,
            flags if flags == RST | ACK => Told::Closed,
            _ => return None,
        };
        let row = self.row(acknowledged.wrapping_sub(1), to)?;
        (from == self.port).then_some((row, told))
    }

    /// The row of a SYN that an error quotes: ports and number are in the 8 bytes that every router quotes.
    pub fn quoted(&self, tcp: &[u8]) -> Option<u64> {
        let from = u16::from_be_bytes(array(tcp, 0)?);
        let to = u16::from_be_bytes(array(tcp, 2)?);
        let row = self.row(u32::from_be_bytes(array(tcp, 4)?), from)?;
        (to == self.port).then_some(row)
    }
}

/// The inverse of an odd number modulo 2^32, by Newton's method: each step doubles the right bits, of which it begins with three.
const fn inverse(odd: u32) -> u32 {
    let mut inverse = odd;
    let mut step = 0;
    while step < 4 {
        inverse = inverse.wrapping_mul(2_u32.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn syns(base: u32, v6: bool) -> Syns {
        let address = |v4: &str, v6_: &str| if v6 { v6_.parse().unwrap() } else { v4.parse().unwrap() };
        let (from, to) = (address("10.0.0.1", "fd00::1"), address("10.0.0.2", "fd00::2"));
        Syns { from, to, port: 443, ports: (40_000..40_016).collect(), base }
    }

    fn answer(syns: &Syns, row: u64, flags: u8) -> Vec<u8> {
        let mut packet = vec![0; 20];
        packet[0] = 0x45;
        packet[9] = 6;
        let mut tcp = vec![0; 20];
        tcp[0..2].copy_from_slice(&443_u16.to_be_bytes());
        tcp[2..4].copy_from_slice(&syns.port_of(row).to_be_bytes());
        tcp[8..12].copy_from_slice(&syns.number(row).wrapping_add(1).to_be_bytes());
        tcp[13] = flags;
        if syns.to.is_ipv4() {
            packet.extend(tcp);
            packet
        } else {
            tcp
        }
    }

    #[test]
    fn the_inverse_is_right() {
        assert_eq!(inverse(STEP).wrapping_mul(STEP), 1);
    }

    #[test]
    fn the_checksum_of_a_request_is_right() {
        for v6 in [false, true] {
            let syns = syns(9, v6);
            assert_eq!(sum(pseudo_head(syns.from, syns.to, 6, LENGTH as u16), &syns.request(3)), 0);
        }
    }

    #[test]
    fn rows_of_a_port_are_out_of_each_others_window() {
        let syns = syns(0, false);
        for turns in 1..29_000_u64 / 16 {
            let apart = syns.number(turns * 16);
            assert!(apart.min(apart.wrapping_neg()) > 65_535, "{turns} turns");
        }
    }

    #[test]
    fn other_segments_are_no_answers() {
        let syns = syns(9, false);
        assert_eq!(syns.answered(&answer(&syns, 3, ACK)), None, "a challenge");
        assert_eq!(syns.answered(&answer(&syns, 3, RST)), None, "a reset that acknowledges nothing");
        let mut packet = answer(&syns, 3, SYN | ACK);
        packet[23] ^= 1;
        assert_eq!(syns.answered(&packet), None, "another port of ours than the row's");
        let mut own = vec![0; 20];
        own[0] = 0x45;
        own[9] = 6;
        own.extend(syns.request(3));
        assert_eq!(syns.answered(&own), None, "our own SYN, seen on loopback");
    }

    proptest! {
        #[test]
        fn the_row_comes_back(row in 0..1_000_000_u64, base: u32, v6: bool) {
            let syns = syns(base, v6);
            prop_assert_eq!(syns.answered(&answer(&syns, row, SYN | ACK)), Some((row, Told::Open)));
            prop_assert_eq!(syns.answered(&answer(&syns, row, RST | ACK)), Some((row, Told::Closed)));
            prop_assert_eq!(syns.quoted(&syns.request(row)[..8]), Some(row));
        }

        #[test]
        fn no_bytes_make_it_panic(packet: Vec<u8>, base: u32, v6: bool) {
            syns(base, v6).answered(&packet);
            syns(base, v6).quoted(&packet);
        }

        #[test]
        fn no_segment_makes_it_panic(mut packet in proptest::collection::vec(any::<u8>(), 20..60)) {
            packet[0] = 0x45;
            packet[6..8].fill(0);
            packet[9] = 6;
            syns(0, false).answered(&packet);
        }
    }
}
