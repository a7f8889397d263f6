//! A ring buffer that stays mapped from its first read on.
//!
//! To map one of 16 MiB sets 8,192 page table entries, since its data is there twice (kernel/bpf/ringbuf.c), and to unmap it clears them:
//! some milliseconds to read a ring that is mostly empty, twenty times a second. It is mapped from the first read to the last: a child that
//! is forked before or later has no part of it.

use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{Error, MapCore, Result, RingBuffer, RingBufferBuilder};

/// Records that are taken before the caller checks whether it must stop: some ten milliseconds of work. A kernel half that fills the ring
/// faster than we empty it must not keep us for ever.
const A_TURN: usize = 10_000;
/// Records that are copied at a time: some ten KiB of rows, 1 MiB of the longest names.
const A_LOT: usize = 256;
/// A record has a head of 8 bytes, and sizes are rounded up to 8 (kernel/bpf/ringbuf.c): a ring holds no more records than
/// one for so many of its bytes.
const LEAST_RECORD: u32 = 16;

/// Records as they lie in the ring, one after another.
#[derive(Default)]
struct Lot {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Lot {
    fn add(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.ends.push(self.bytes.len());
    }

    fn give(&mut self, note: &mut impl FnMut(&[u8])) {
        let mut from = 0;
        for end in self.ends.drain(..) {
            note(&self.bytes[from..end]);
            from = end;
        }
        self.bytes.clear();
    }
}

struct Mapped {
    ring: RingBuffer<'static>,
    lot: Arc<Mutex<Lot>>,
}

impl Mapped {
    fn of(map: &dyn MapCore) -> Result<Self> {
        let lot = Arc::new(Mutex::new(Lot::default()));
        let into = Arc::clone(&lot);
        let mut builder = RingBufferBuilder::new();
        builder.add(map, move |record: &[u8]| {
            into.lock().unwrap_or_else(PoisonError::into_inner).add(record);
            0
        })?;
        Ok(Self { ring: builder.build()?, lot })
    }

    /// Take at most so many; returns how many there were.
    fn take(&self, most: usize, note: &mut impl FnMut(&[u8])) -> Result<usize> {
        let taken = self.ring.consume_raw_n(most);
        // Records before an error are taken, too.
        self.lot.lock().unwrap_or_else(PoisonError::into_inner).give(note);
        usize::try_from(taken).map_err(|_| Error::from_raw_os_error(-taken))
    }
}

/// For one map: all its reads have to use the same ring.
#[derive(Default)]
pub(crate) struct MappedRing(Option<Mapped>);

impl MappedRing {
    /// Take some of the records. True: there may be more.
    pub fn take_some(&mut self, map: &dyn MapCore, note: impl FnMut(&[u8])) -> Result<bool> {
        self.take(map, A_TURN, note).map(|taken| taken >= A_TURN)
    }

    /// Take all records, and no more than the ring can hold: for the end, when no program fills it any longer. It is unmapped then.
    pub fn take_all(&mut self, map: &dyn MapCore, note: impl FnMut(&[u8])) -> Result<()> {
        let taken = self.take(map, (map.max_entries() / LEAST_RECORD) as usize, note);
        self.0 = None;
        taken.map(drop)
    }

    fn take(&mut self, map: &dyn MapCore, most: usize, mut note: impl FnMut(&[u8])) -> Result<usize> {
        let mapped = match &mut self.0 {
            Some(mapped) => mapped,
            None => self.0.insert(Mapped::of(map)?),
        };
        in_lots(most, |lot| mapped.take(lot, &mut note))
    }
}

/// Until fewer come than were requested, or `most` have.
fn in_lots(most: usize, mut take: impl FnMut(usize) -> Result<usize>) -> Result<usize> {
    let mut taken = 0;
    while taken < most {
        let wanted = A_LOT.min(most - taken);
        let got = take(wanted)?;
        taken += got;
        if got < wanted {
            break;
        }
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_records_are_taken_in_lots_up_to_the_requested_number() {
        for (waits, most) in [(0, 10), (9, 10), (10, 10), (11, 10), (256, 10_000), (700, 10_000), (700, 512)]
        {
            let (mut left, mut looks) = (waits, 0);
            let taken = in_lots(most, |lot| {
                looks += 1;
                let got = lot.min(left);
                left -= got;
                Ok(got)
            });
            assert_eq!(taken.unwrap(), waits.min(most), "{waits} of {most}");
            assert_eq!(left, waits.saturating_sub(most));
            assert!(looks <= most / A_LOT + 1, "{looks}");
        }
        let mut looks = 0;
        let failed = in_lots(1_000, |lot| {
            looks += 1;
            if looks == 2 { Err(Error::from_raw_os_error(libc::EINVAL)) } else { Ok(lot) }
        });
        assert!(failed.is_err() && looks == 2);
    }

    #[test]
    fn records_of_a_lot_come_in_their_order_and_once() {
        let mut lot = Lot::default();
        for round in 0..2 {
            for record in [&b"ab"[..], b"", b"cde"] {
                lot.add(record);
            }
            let mut given = Vec::new();
            lot.give(&mut |record| given.push(record.to_vec()));
            assert_eq!(given, [&b"ab"[..], b"", b"cde"], "{round}");
        }
        lot.give(&mut |_| panic!("nothing came"));
    }
}
