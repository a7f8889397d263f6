//! Packets as the kernel hands them over, several in one call.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Packets of one call: more than come at once in a healthy network, and few enough that setting up the call costs little.
pub const BATCH: usize = 8;

/// Beginning of a packet: two heads of 60 bytes and our 64; the rest is cut off.
const DATA: usize = 256;

/// Stamps take 64 bytes, an error with the address of its sender 64.
const CONTROL: usize = 256;

/// The kernel writes control messages at multiples of 8.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Slot {
    data: [u8; DATA],
    control: [u8; CONTROL],
}

/// Room for packets; allocated once.
pub struct Mailbox {
    slots: Box<[Slot; BATCH]>,
    lengths: [(usize, usize); BATCH],
    count: usize,
}

/// A packet, and the control messages with it.
#[derive(Debug, Clone, Copy)]
pub struct Letter<'a> {
    pub data: &'a [u8],
    pub control: &'a [u8],
}

impl Mailbox {
    pub fn new() -> Mailbox {
        let slot = Slot { data: [0; DATA], control: [0; CONTROL] };
        Mailbox { slots: Box::new([slot; BATCH]), lengths: [(0, 0); BATCH], count: 0 }
    }

    /// Takes what is there without waiting, at most a batch; `flags`: MSG_ERRQUEUE or 0.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, flags: i32) -> io::Result<usize> {
        self.count = 0;
        // SAFETY: both are plain numbers and pointers, for which zero is valid.
        let (mut heads, mut areas) =
            unsafe { std::mem::zeroed::<([libc::mmsghdr; BATCH], [libc::iovec; BATCH])>() };
        for ((head, area), slot) in heads.iter_mut().zip(&mut areas).zip(self.slots.iter_mut()) {
            *area = libc::iovec { iov_base: slot.data.as_mut_ptr().cast(), iov_len: DATA };
            head.msg_hdr.msg_iov = area;
            head.msg_hdr.msg_iovlen = 1;
            head.msg_hdr.msg_control = slot.control.as_mut_ptr().cast();
            head.msg_hdr.msg_controllen = CONTROL;
        }
        let (count, flags) = (BATCH as u32, flags | libc::MSG_DONTWAIT);
        // SAFETY: the heads, areas and slots outlive the call and are as long as they say.
        let got = unsafe {
            libc::recvmmsg(socket.as_raw_fd(), heads.as_mut_ptr(), count, flags as _, std::ptr::null_mut())
        };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        self.count = got.min(BATCH);
        for (lengths, head) in self.lengths.iter_mut().zip(&heads) {
            *lengths = (head.msg_len as usize, head.msg_hdr.msg_controllen);
        }
        Ok(self.count)
    }

    /// What the last call took.
    pub fn letters(&self) -> impl Iterator<Item = Letter<'_>> {
        self.slots.iter().zip(&self.lengths).take(self.count).map(|(slot, &(data, control))| Letter {
            data: slot.data.get(..data).unwrap_or(&slot.data),
            control: slot.control.get(..control).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn packets_come_in_order_and_long_ones_are_cut() {
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut mailbox = Mailbox::new();
        assert!(mailbox.receive(to.as_fd(), 0).is_err(), "nothing there");
        for length in [0, 3, 1000] {
            from.send_to(&vec![7; length], to.local_addr().unwrap()).unwrap();
        }
        assert_eq!(mailbox.receive(to.as_fd(), 0).unwrap(), 3);
        let lengths: Vec<usize> = mailbox.letters().map(|letter| letter.data.len()).collect();
        assert_eq!(lengths, [0, 3, DATA]);
    }
}
