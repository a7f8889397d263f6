//! Internet checksums (RFC 1071) and the IPv4 head.

use std::net::IpAddr;

use super::control::array;

/// The checksum of `bytes` and of what `start` has summed; 0 over bytes with a right checksum in them.
pub fn sum(start: u32, bytes: &[u8]) -> u16 {
    let mut sum = add(start, bytes);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The sum of the pseudo head of TCP and UDP (RFC 793, RFC 8200).
pub fn pseudo_head(from: IpAddr, to: IpAddr, protocol: u8, length: u16) -> u32 {
    let start = u32::from(protocol) + u32::from(length);
    [from, to].iter().fold(start, |sum, address| match address {
        IpAddr::V4(address) => add(sum, &address.octets()),
        IpAddr::V6(address) => add(sum, &address.octets()),
    })
}

/// Words of our packets: 64 KiB of them do not overflow the sum.
fn add(start: u32, bytes: &[u8]) -> u32 {
    bytes.chunks(2).fold(start, |sum, word| {
        let low = word.get(1).copied().unwrap_or(0);
        sum.wrapping_add(u32::from(u16::from_be_bytes([word.first().copied().unwrap_or(0), low])))
    })
}

/// What an IPv4 packet of that protocol carries; `None`: another protocol, a later fragment, or no packet.
pub fn ipv4_payload(packet: &[u8], protocol: i32) -> Option<&[u8]> {
    const OFFSET: u16 = 0x1fff;
    let &first = packet.first()?;
    let head = usize::from(first & 0xf) * 4;
    let fragment = u16::from_be_bytes(array(packet, 6)?) & OFFSET;
    let ours = first >> 4 == 4 && fragment == 0 && packet.get(9).is_some_and(|&is| i32::from(is) == protocol);
    packet.get(head..).filter(|_| ours && head >= 20)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_rfc_1071_is_right() {
        assert_eq!(sum(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(sum(0, &[0x01]), !0x0100, "an odd byte is the high one");
    }

    #[test]
    fn other_packets_have_no_payload() {
        let mut packet = [0_u8; 28];
        packet[0] = 0x45;
        packet[9] = 6;
        assert_eq!(ipv4_payload(&packet, 6).map(<[u8]>::len), Some(8));
        assert_eq!(ipv4_payload(&packet, 1), None);
        packet[7] = 1;
        assert_eq!(ipv4_payload(&packet, 6), None, "a later fragment");
        packet[7] = 0;
        packet[0] = 0x44;
        assert_eq!(ipv4_payload(&packet, 6), None, "a head that is too short");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(packet: Vec<u8>, start: u32) {
            ipv4_payload(&packet, 6);
            sum(start, &packet);
        }

        #[test]
        fn a_packet_with_its_checksum_sums_to_zero(mut packet in proptest::collection::vec(any::<u8>(), 2..64)) {
            packet.truncate(packet.len() & !1);
            packet[..2].fill(0);
            let checksum = sum(0, &packet);
            packet[..2].copy_from_slice(&checksum.to_be_bytes());
            prop_assert_eq!(sum(0, &packet), 0);
        }
    }
}
