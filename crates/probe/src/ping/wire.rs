//! The bytes of each way to ask.

use whyslow_model::ping::PingAnswer;

use super::control::{ORIGIN_ICMP, ORIGIN_ICMP6, Trouble};
use super::datagram::{Datagrams, Stay};
use super::echo::Echo;
use super::syn::{Syns, Told};

/// Mark of one pinger.
pub type Nonce = [u8; 8];

/// Room for the longest request.
pub type Request = [u8; super::echo::LENGTH];

/// Which request a packet is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// This row.
    Row(u64),
    /// The newest row with these low bits.
    Low(u16),
    /// The only row of the socket that has no answer yet.
    OnlyOpen,
}

/// How requests look.
#[derive(Debug, Clone)]
pub enum Wire {
    Echo(Echo),
    Syn(Syns),
    Datagram(Datagrams),
}

impl Wire {
    /// A request leaves something open at the target until its answer has come.
    pub fn is_of_connections(&self) -> bool {
        matches!(self, Wire::Syn(_))
    }

    /// The request of a row, in `packet`; its length.
    pub fn request(&self, row: u64, packet: &mut Request) -> usize {
        match self {
            Wire::Echo(echo) => {
                *packet = echo.request(row);
                packet.len()
            }
            Wire::Syn(syns) => {
                let request = syns.request(row);
                packet[..request.len()].copy_from_slice(&request);
                request.len()
            }
            Wire::Datagram(datagrams) => {
                packet.first_chunk_mut().map_or(0, |packet| datagrams.request(row, packet))
            }
        }
    }

    /// The request that a packet answers, and how.
    pub fn answered(&self, packet: &[u8]) -> Option<(Which, PingAnswer)> {
        match self {
            Wire::Echo(echo) => echo.answered(packet).map(|row| (Which::Row(row), PingAnswer::Reply)),
            Wire::Syn(syns) => syns.answered(packet).map(|(row, told)| match told {
                Told::Open => (Which::Row(row), PingAnswer::SynAck),
                Told::Closed => (Which::Row(row), PingAnswer::Reset),
            }),
            Wire::Datagram(datagrams) => datagrams.answered(packet).map(|which| (which, PingAnswer::Reply)),
        }
    }

    /// What the target tells of its own times.
    pub fn stay(&self, packet: &[u8]) -> Option<Stay> {
        match self {
            Wire::Echo(_) | Wire::Syn(_) => None,
            Wire::Datagram(_) => Stay::told(packet),
        }
    }

    /// The request that an ICMP error is about, and what the error says; `quote`: what it quotes of the request.
    pub fn refused(&self, trouble: Trouble, quote: &[u8]) -> Option<(Which, PingAnswer)> {
        // Destination unreachable, time exceeded, parameter problem; for IPv6, packet too big as well. The others are advice.
        let (refusals, closed): (&[u8], (u8, u8)) = match trouble.origin {
            ORIGIN_ICMP => (&[3, 11, 12], (3, 3)),
            ORIGIN_ICMP6 => (&[1, 2, 3, 4], (1, 4)),
            _ => return None,
        };
        if !refusals.contains(&trouble.kind) {
            return None;
        }
        let is_closed = matches!(self, Wire::Datagram(_)) && (trouble.kind, trouble.code) == closed;
        let answer = if is_closed { PingAnswer::PortUnreachable } else { PingAnswer::Unreachable };
        let which = match self {
            Wire::Echo(echo) => echo.quoted(quote),
            Wire::Syn(syns) => syns.quoted(quote).map(Which::Row),
            Wire::Datagram(datagrams) => datagrams.quoted(quote),
        };
        which.map(|which| (which, answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(origin: u8, kind: u8, code: u8) -> Trouble {
        Trouble { origin, kind, code, info: 0, data: 0 }
    }

    #[test]
    fn a_closed_port_of_udp_is_told_from_other_errors() {
        let wire = Wire::Datagram(Datagrams { port: 7, nonce: [1; 8] });
        let mut packet = [0; 64];
        let length = wire.request(9, &mut packet);
        let answer = |origin, kind, code| wire.refused(trouble(origin, kind, code), &packet[..length]);
        let is = |answer| Some((Which::Row(9), answer));
        assert_eq!(answer(ORIGIN_ICMP, 3, 3), is(PingAnswer::PortUnreachable));
        assert_eq!(answer(ORIGIN_ICMP6, 1, 4), is(PingAnswer::PortUnreachable));
        assert_eq!(answer(ORIGIN_ICMP, 3, 13), is(PingAnswer::Unreachable));
        assert_eq!(answer(ORIGIN_ICMP6, 3, 0), is(PingAnswer::Unreachable));
        assert_eq!(answer(ORIGIN_ICMP, 5, 0), None, "a redirect");
        assert_eq!(answer(1, 3, 3), None, "of this host's own path MTU");
    }

    #[test]
    fn a_closed_port_means_nothing_to_an_echo() {
        let wire = Wire::Echo(Echo { v6: false, with_ip_head: true, id: 3, nonce: [1; 8] });
        let mut packet = [0; 64];
        let length = wire.request(9, &mut packet);
        let answer = wire.refused(trouble(ORIGIN_ICMP, 3, 3), &packet[..length]);
        assert_eq!(answer, Some((Which::Row(9), PingAnswer::Unreachable)));
    }
}
