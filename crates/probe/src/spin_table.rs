//! Makes the table of the code in which threads were met often, from samples.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use whyslow_model::table::{Met, Spin};

use crate::bpf::oncpu::{BLOCK_BITS, Code, Hit, RawSamples};
use crate::user_code::UserNames;

/// A thread that runs through much code is met once in most of it: such code is no loop that takes the thread's time.
const MET_OFTEN: u64 = 2;
/// The heaviest blocks of code are kept. A row is some 700 bytes.
const MAX_ROWS: usize = 1024;
/// The same for one block: the threads that were met there most. A row for each of 16 threads at each of 16 addresses.
const MAX_MET: usize = 256;

type Blocks<'s> = BTreeMap<(u32, u64), Vec<&'s Hit>>;

/// The table.
pub fn spins(seen: &RawSamples, names: &UserNames) -> Vec<Spin> {
    let (mut blocks, mut lowest) = (Blocks::new(), HashMap::new());
    for hit in seen.hits.iter().filter(|hit| hit.key.ip != 0 && has_place(hit)) {
        blocks.entry((hit.key.tgid, hit.key.ip >> BLOCK_BITS << BLOCK_BITS)).or_default().push(hit);
    }
    let codes: HashMap<(u32, u64), &Code> = seen.codes.iter().map(|c| ((c.tgid, c.block), c)).collect();
    for code in &seen.codes {
        let low = lowest.entry(code.tgid).or_insert(code.start);
        *low = code.start.min(*low);
    }
    let weight = |hits: &[&Hit]| hits.iter().map(|hit| hit.count).fold(0, u64::saturating_add);
    let mut heavy: Vec<_> = blocks.into_iter().map(|(place, hits)| (weight(&hits), place, hits)).collect();
    heavy.retain(|(weight, ..)| *weight >= MET_OFTEN);
    heavy.sort_by_key(|(weight, place, _)| (std::cmp::Reverse(*weight), *place));
    heavy.truncate(MAX_ROWS);
    let row = |(_, (tgid, block), hits): &(u64, (u32, u64), Vec<&Hit>)| {
        let code = codes.get(&(*tgid, *block)).copied();
        let low = lowest.get(tgid).copied().unwrap_or(*block);
        row(*tgid, *block, hits, code, low, names)
    };
    heavy.iter().map(row).collect()
}

/// In user mode, or in a system call. Faults and interrupts do not show what a thread works on.
fn has_place(hit: &Hit) -> bool {
    hit.key.kernel_mode == 0 || hit.key.call >= 0
}

fn row(tgid: u32, block: u64, hits: &[&Hit], code: Option<&Code>, low: u64, names: &UserNames) -> Spin {
    let start = code.filter(|code| !code.bytes.is_empty()).map_or(block, |code| code.start);
    let mut met: BTreeMap<(u32, u32, Option<u32>), Met> = BTreeMap::new();
    for hit in hits {
        let call = if hit.key.kernel_mode == 0 { None } else { u32::try_from(hit.key.call).ok() };
        let offset = u32::try_from(hit.key.ip.saturating_sub(start)).unwrap_or(u32::MAX);
        let one = met.entry((hit.key.pid, offset, call)).or_insert_with(|| Met {
            pid: hit.key.pid,
            offset,
            call,
            ..Met::default()
        });
        one.count = one.count.saturating_add(hit.count);
        one.same = one.same.saturating_add(hit.same);
        one.zero = one.zero.saturating_add(hit.zero);
        one.again = one.again.saturating_add(hit.again);
    }
    let mut met: Vec<Met> = met.into_values().collect();
    met.sort_by_key(|one| (std::cmp::Reverse(one.count), one.pid, one.offset));
    met.truncate(MAX_MET);
    let hottest = hits.iter().max_by_key(|hit| (hit.count, hit.key.ip)).and_then(|hit| hit.user.first());
    let named = names.place(tgid, hottest);
    Spin {
        tgid,
        at: start.saturating_sub(low),
        code: hexadecimal(code.map_or(&[][..], |code| &code.bytes)),
        arch: std::env::consts::ARCH.to_owned(),
        place: named.frames.into_iter().next().unwrap_or_default(),
        module: named.module,
        met,
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::oncpu::oncpu_key;

    fn hit(pid: u32, ip: u64, call: i32, count: u64) -> Hit {
        let kernel_mode = u32::from(call >= 0);
        let key = oncpu_key { pid, tgid: 7, ip, call, kernel_mode, ..oncpu_key::default() };
        Hit {
            key,
            count,
            same: count / 2,
            zero: 0,
            again: 0,
            bare: false,
            kernel: Vec::new(),
            user: vec![ip],
        }
    }

    #[test]
    fn threads_are_reported_by_blocks_with_the_code() {
        let code = Code { tgid: 7, block: 0x1040, start: 0x1000, bytes: vec![0xf3, 0x90] };
        let seen = RawSamples {
            hits: vec![hit(8, 0x1041, -1, 5), hit(9, 0x107f, 24, 3), hit(9, 0x1080, -1, 1), hit(9, 0, -1, 9)],
            codes: vec![code],
        };
        let rows = spins(&seen, &UserNames::default());
        assert_eq!(rows.len(), 1, "no row for code met once, or without an address");
        assert_eq!((rows[0].at, rows[0].code.as_str()), (0, "f390"));
        let met: Vec<_> = rows[0].met.iter().map(|m| (m.pid, m.offset, m.call, m.count, m.same)).collect();
        assert_eq!(met, [(8, 0x41, None, 5, 2), (9, 0x7f, Some(24), 3, 1)]);
    }

    #[test]
    fn rows_are_bounded() {
        let hits = (0..5000u64).map(|at| hit(8, 0x1000 + 64 * at, -1, 2 + at)).collect();
        let rows = spins(&RawSamples { hits, codes: Vec::new() }, &UserNames::default());
        assert_eq!(rows.len(), MAX_ROWS);
        assert_eq!(rows[0].met[0].count, 5001, "the heaviest first");
        let hits = (0..999).map(|pid| hit(pid, 0x1000, -1, 1)).collect();
        assert_eq!(
            spins(&RawSamples { hits, codes: Vec::new() }, &UserNames::default())[0].met.len(),
            MAX_MET
        );
    }
}
