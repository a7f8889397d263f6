//! UDP: bytes of requests, answers and quotes of requests; the answers of `serve`.

use super::control::array;
use super::wire::{Nonce, Which};

/// The mark, the row, the nonce, and zeros: room for two times.
pub const LENGTH: usize = 40;

/// Marks of requests and of the answers of `serve`. They differ so that two servers never answer each other, whatever a forged sender says.
const ASKS: [u8; 8] = *b"whyslow?";
const ANSWERS: [u8; 8] = *b"whyslow!";

/// Port of name servers, which are asked a question that they understand.
const DNS: u16 = 53;

/// Largest request that `serve` answers.
pub const LARGEST: usize = 1500;

/// A query for the name servers of the root: a head with one question, the empty name, type NS, class IN.
const QUERY: [u8; 17] = [0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1];

/// Datagrams of one pinger.
#[derive(Debug, Clone, Copy)]
pub struct Datagrams {
    /// The port asked.
    pub port: u16,
    /// Mark of this pinger.
    pub nonce: Nonce,
}

impl Datagrams {
    /// The request of a row, in `packet`; its length.
    pub fn request(self, row: u64, packet: &mut [u8; LENGTH]) -> usize {
        packet.fill(0);
        if self.port == DNS {
            packet[..QUERY.len()].copy_from_slice(&QUERY);
            packet[..2].copy_from_slice(&(row as u16).to_be_bytes());
            return QUERY.len();
        }
        packet[..8].copy_from_slice(&ASKS);
        packet[8..16].copy_from_slice(&row.to_be_bytes());
        packet[16..24].copy_from_slice(&self.nonce);
        LENGTH
    }

    /// The row that a datagram from the port asked answers. A service that does not know us may answer what it likes: that is an answer
    /// to the open request of the socket, if there is only one.
    pub fn answered(self, packet: &[u8]) -> Option<Which> {
        const IS_ANSWER: u8 = 0x80;
        if self.port == DNS {
            let answers = packet.get(2)? & IS_ANSWER != 0;
            return array(packet, 0).filter(|_| answers).map(|id| Which::Low(u16::from_be_bytes(id)));
        }
        match array(packet, 0) {
            Some(ASKS | ANSWERS) => self.row(packet),
            _ => Some(Which::OnlyOpen),
        }
    }

    /// The row of a datagram that an error quotes: routers need not quote any of it.
    pub fn quoted(self, packet: &[u8]) -> Option<Which> {
        if packet.len() < 16 {
            return Some(Which::OnlyOpen);
        }
        if self.port == DNS {
            return array(packet, 0).map(|id| Which::Low(u16::from_be_bytes(id)));
        }
        if packet.len() < 24 {
            return array(packet, 8).map(|row| Which::Row(u64::from_be_bytes(row)));
        }
        self.row(packet)
    }

    fn row(self, packet: &[u8]) -> Option<Which> {
        let ours = array(packet, 16)? == self.nonce;
        array(packet, 8).filter(|_| ours).map(|row| Which::Row(u64::from_be_bytes(row)))
    }
}

/// Times of `serve`, by the real-time clock of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stay {
    /// When its kernel took the request from the device.
    pub arrived: u64,
    /// When it answered.
    pub left: u64,
}

impl Stay {
    /// The times in an answer of `serve`; `None`: the server tells none, or nonsense.
    pub fn told(packet: &[u8]) -> Option<Stay> {
        let time = |at| array(packet, at).map(u64::from_be_bytes);
        let told = Stay { arrived: time(24)?, left: time(32)? };
        (array(packet, 0) == Some(ANSWERS) && (1..=told.left).contains(&told.arrived)).then_some(told)
    }
}

/// Turns a request into its answer; false: it is none of ours, and gets no answer.
pub fn answer(packet: &mut [u8], stay: Option<Stay>) -> bool {
    match packet.first_chunk_mut() {
        Some(mark) if *mark == ASKS => *mark = ANSWERS,
        _ => return false,
    }
    // A request of an older whyslow has no room for times.
    if let (Some(stay), Some([arrived, left])) = (
        stay,
        packet
            .get_mut(24..)
            .map(|rest| rest.as_chunks_mut::<8>().0)
            .and_then(|times| times.first_chunk_mut::<2>()),
    ) {
        (*arrived, *left) = (stay.arrived.to_be_bytes(), stay.left.to_be_bytes());
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn datagrams(port: u16) -> Datagrams {
        Datagrams { port, nonce: *b"12345678" }
    }

    fn request(port: u16, row: u64) -> Vec<u8> {
        let mut packet = [0; LENGTH];
        let length = datagrams(port).request(row, &mut packet);
        packet[..length].to_vec()
    }

    #[test]
    fn a_name_server_is_asked_for_the_root() {
        let mut packet = request(53, 0x1_0203);
        assert_eq!(packet, [2, 3, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1]);
        assert_eq!(datagrams(53).answered(&packet), None, "a question");
        packet[2] |= 0x80;
        assert_eq!(datagrams(53).answered(&packet), Some(Which::Low(0x203)));
    }

    #[test]
    fn the_answer_of_a_server_is_not_answered_again() {
        let mut packet = request(7, 5);
        assert!(answer(&mut packet, None));
        assert!(!answer(&mut packet, None));
        assert!(!answer(&mut b"GET / HT".to_vec(), None));
        assert!(!answer(&mut [], None));
    }

    #[test]
    fn the_times_of_a_server_come_back() {
        let stay = Stay { arrived: 5, left: 9 };
        let mut packet = request(7, 5);
        assert_eq!(Stay::told(&packet), None, "a request");
        assert!(answer(&mut packet, Some(stay)));
        assert_eq!(Stay::told(&packet), Some(stay));
        for (arrived, left) in [(0, 9), (9, 5)] {
            let mut packet = request(7, 5);
            answer(&mut packet, Some(Stay { arrived, left }));
            assert_eq!(Stay::told(&packet), None, "{arrived} to {left}");
        }
        let mut older = request(7, 5);
        older.truncate(32);
        assert!(answer(&mut older, Some(stay)), "a request without room for them");
        assert_eq!((older.len(), Stay::told(&older)), (32, None));
    }

    #[test]
    fn answers_of_other_pingers_are_ignored() {
        let mut packet = request(7, 5);
        packet[20] ^= 1;
        assert_eq!(datagrams(7).answered(&packet), None);
        assert_eq!(datagrams(7).answered(b"what?"), Some(Which::OnlyOpen));
    }

    proptest! {
        #[test]
        fn the_row_comes_back(row: u64) {
            let mut packet = request(7, row);
            let is = Some(Which::Row(row));
            prop_assert_eq!(datagrams(7).answered(&packet), is);
            prop_assert_eq!(datagrams(7).quoted(&packet), is);
            prop_assert_eq!(datagrams(7).quoted(&packet[..16]), is);
            prop_assert_eq!(datagrams(7).quoted(&packet[..8]), Some(Which::OnlyOpen));
            answer(&mut packet, None);
            prop_assert_eq!(datagrams(7).answered(&packet), is);
        }

        #[test]
        fn no_bytes_make_it_panic(mut packet: Vec<u8>, port in prop_oneof![Just(53), Just(7)]) {
            datagrams(port).answered(&packet);
            datagrams(port).quoted(&packet);
            Stay::told(&packet);
            answer(&mut packet, Some(Stay { arrived: 1, left: 2 }));
        }
    }
}
