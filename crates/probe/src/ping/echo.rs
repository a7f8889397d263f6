//! ICMP and ICMPv6 echo: bytes of requests, answers and quotes of requests.

use super::control::array;
use super::packet::{ipv4_payload, sum};
use super::wire::{Nonce, Which};

/// As ping(8) sends: 8 bytes of head and 56 of data, so that nothing between treats us as special.
pub const LENGTH: usize = 64;

/// Types of request and answer.
const V4: (u8, u8) = (8, 0);
const V6: (u8, u8) = (128, 129);

/// Echo requests of one pinger.
#[derive(Debug, Clone, Copy)]
pub struct Echo {
    /// Whether it is ICMPv6.
    pub v6: bool,
    /// Whether answers begin with the IPv4 head.
    pub with_ip_head: bool,
    /// The identifier.
    pub id: u16,
    /// Mark of this pinger: others may use the same identifier.
    pub nonce: Nonce,
}

impl Echo {
    fn types(self) -> (u8, u8) {
        if self.v6 { V6 } else { V4 }
    }

    /// The request of a row. The kernel fills in the checksum of ICMPv6.
    pub fn request(self, row: u64) -> [u8; LENGTH] {
        let mut packet = [0; LENGTH];
        packet[0] = self.types().0;
        packet[4..6].copy_from_slice(&self.id.to_be_bytes());
        packet[6..8].copy_from_slice(&(row as u16).to_be_bytes());
        packet[8..16].copy_from_slice(&self.nonce);
        packet[16..24].copy_from_slice(&row.to_be_bytes());
        if !self.v6 {
            let sum = sum(0, &packet);
            packet[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        packet
    }

    /// The row that an answer answers.
    pub fn answered(self, packet: &[u8]) -> Option<u64> {
        let icmp = if self.with_ip_head { ipv4_payload(packet, libc::IPPROTO_ICMP)? } else { packet };
        let row = u64::from_be_bytes(array(icmp, 16)?);
        let ours = self.has_head(icmp, self.types().1) && array(icmp, 8) == Some(self.nonce);
        (ours && array(icmp, 6) == Some((row as u16).to_be_bytes())).then_some(row)
    }

    /// The row of a request that an error quotes: routers need not quote more than its head (RFC 792).
    pub fn quoted(self, icmp: &[u8]) -> Option<Which> {
        let low = u16::from_be_bytes(array(icmp, 6)?);
        if !self.has_head(icmp, self.types().0) {
            return None;
        }
        match (array(icmp, 8), array(icmp, 16)) {
            (Some(nonce), _) if nonce != self.nonce => None,
            (Some(_), Some(row)) => Some(Which::Row(u64::from_be_bytes(row))),
            _ => Some(Which::Low(low)),
        }
    }

    fn has_head(self, icmp: &[u8], kind: u8) -> bool {
        array(icmp, 0) == Some([kind, 0]) && array(icmp, 4) == Some(self.id.to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn echo(v6: bool) -> Echo {
        Echo { v6, with_ip_head: false, id: 0x1234, nonce: *b"whyslow1" }
    }

    /// What a host answers.
    fn answer(echo: Echo, row: u64) -> Vec<u8> {
        let mut packet = echo.request(row).to_vec();
        packet[0] = echo.types().1;
        packet
    }

    #[test]
    fn the_checksum_of_a_request_is_right() {
        assert_eq!(sum(0, &echo(false).request(77)), 0);
    }

    #[test]
    fn the_ip_head_is_skipped() {
        let echo = Echo { with_ip_head: true, ..echo(false) };
        let mut packet = vec![0; 24];
        packet[0] = 0x46;
        packet[9] = 1;
        packet.extend(answer(echo, 5));
        assert_eq!(echo.answered(&packet), Some(5));
    }

    #[test]
    fn answers_to_others_are_not_ours() {
        let ours = echo(false);
        let others = [Echo { id: 1, ..ours }, Echo { nonce: *b"whyslow2", ..ours }];
        for other in others {
            assert_eq!(ours.answered(&answer(other, 5)), None);
            assert_eq!(ours.quoted(&other.request(5)), None);
        }
        assert_eq!(ours.answered(&ours.request(5)), None, "a request, seen on loopback");
    }

    #[test]
    fn a_short_quote_is_enough() {
        assert_eq!(echo(true).quoted(&echo(true).request(65_541)[..8]), Some(Which::Low(5)));
        assert_eq!(echo(true).quoted(&echo(true).request(65_541)[..7]), None);
    }

    proptest! {
        #[test]
        fn the_row_comes_back(row: u64, v6: bool) {
            prop_assert_eq!(echo(v6).answered(&answer(echo(v6), row)), Some(row));
            prop_assert_eq!(echo(v6).quoted(&echo(v6).request(row)), Some(Which::Row(row)));
        }

        #[test]
        fn no_bytes_make_it_panic(packet: Vec<u8>, v6: bool, with_ip_head: bool) {
            let echo = Echo { with_ip_head, ..echo(v6) };
            echo.answered(&packet);
            echo.quoted(&packet);
        }
    }
}
