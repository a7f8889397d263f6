//! Control messages of recvmsg(2): stamps, errors and addresses beside a packet.

use super::clock::nanoseconds;

/// `ee_origin` of linux/errqueue.h.
pub const ORIGIN_ICMP: u8 = 2;
pub const ORIGIN_ICMP6: u8 = 3;
pub const ORIGIN_STAMP: u8 = 4;

/// `struct sock_extended_err`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble {
    /// The host that says it.
    pub origin: u8,
    /// Of an ICMP error.
    pub kind: u8,
    /// Of an ICMP error.
    pub code: u8,
    /// Of a stamp: which one.
    pub info: u32,
    /// Of a stamp: of which packet.
    pub data: u32,
}

/// What a packet came with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Control {
    /// The kernel's software stamp, by CLOCK_REALTIME.
    pub stamp: Option<u64>,
    /// Why it is in the error queue.
    pub trouble: Option<Trouble>,
}

/// The control messages of one packet.
pub fn parse(bytes: &[u8]) -> Control {
    let mut control = Control::default();
    for (level, kind, data) in messages(bytes) {
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) => control.stamp = stamp(data),
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR) => {
                control.trouble = trouble(data);
            }
            _ => {}
        }
    }
    control
}

/// Level, type and data of each.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (i32, i32, &[u8])> {
    const HEAD: usize = size_of::<libc::cmsghdr>();
    std::iter::from_fn(move || {
        let length = usize::from_ne_bytes(array(bytes, 0)?);
        let level = i32::from_ne_bytes(array(bytes, HEAD - 8)?);
        let kind = i32::from_ne_bytes(array(bytes, HEAD - 4)?);
        let data = bytes.get(HEAD..length)?;
        bytes = bytes.get(length.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
        Some((level, kind, data))
    })
}

/// `struct scm_timestamping`: three times, the first of which is the software's; zero: none.
fn stamp(data: &[u8]) -> Option<u64> {
    let seconds = i64::from_ne_bytes(array(data, 0)?);
    let rest = i64::from_ne_bytes(array(data, 8)?);
    Some(nanoseconds(seconds, rest)).filter(|&ns| ns > 0)
}

fn trouble(data: &[u8]) -> Option<Trouble> {
    let [_, _, _, _, origin, kind, code, _] = array(data, 0)?;
    let info = u32::from_ne_bytes(array(data, 8)?);
    Some(Trouble { origin, kind, code, info, data: u32::from_ne_bytes(array(data, 12)?) })
}

/// So many bytes from `at` on.
pub fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (16 + data.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn times(seconds: i64, ns: i64) -> Vec<u8> {
        [seconds, ns, 0, 0, 0, 0].iter().flat_map(|part| part.to_ne_bytes()).collect()
    }

    #[test]
    fn a_stamp_and_its_packet_are_read() {
        let mut bytes = message(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &times(3, 7));
        let mut error = 42_u32.to_ne_bytes().to_vec();
        error.extend([ORIGIN_STAMP, 0, 0, 0]);
        error.extend(1_u32.to_ne_bytes());
        error.extend(9_u32.to_ne_bytes());
        bytes.extend(message(libc::SOL_IP, libc::IP_RECVERR, &error));
        let control = parse(&bytes);
        assert_eq!(control.stamp, Some(3_000_000_007));
        let told = Trouble { origin: ORIGIN_STAMP, kind: 0, code: 0, info: 1, data: 9 };
        assert_eq!(control.trouble, Some(told));
    }

    #[test]
    fn a_stamp_of_zero_is_none() {
        let bytes = message(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &times(0, 0));
        assert_eq!(parse(&bytes), Control::default());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            parse(&bytes);
        }

        #[test]
        fn no_length_makes_it_panic(length: usize, rest: Vec<u8>) {
            let mut bytes = length.to_ne_bytes().to_vec();
            bytes.extend(rest);
            prop_assert!(messages(&bytes).count() <= 1 + bytes.len() / 16);
        }
    }
}
