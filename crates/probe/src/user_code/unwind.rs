//! Unwinding tables: from .eh_frame to rows that the kernel half searches (`user_stack.bpf.h`).
//!
//! DWARF 5, 6.4, and the x86-64 psABI, 3.7. Only the forms that compilers write are kept: the caller's sp as sp or bp plus a number, the
//! caller's bp at a place below it, the return address right below it. Any other form becomes a row "it cannot be found"; between
//! functions there is only the chain of frame pointers.

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EndianSlice, LittleEndian, RegisterRule, UnwindContext,
    UnwindSection as _, UnwindTableRow, X86_64,
};

use super::elf::Elf;
use crate::bpf::constants::user_stack_h as kinds;

type Slice<'d> = EndianSlice<'d, LittleEndian>;

/// A block of code, in bytes.
pub const BLOCK: u64 = 1 << kinds::BLOCK_SHIFT;
/// A block has fewer rows: one per byte is invalid.
const MOST_ROWS: usize = 1 << kinds::SEARCH_STEPS;
/// The most rows that are made for one block: its functions may begin before it. More are invalid.
const MOST_MADE: usize = 1 << 17;
/// Code that no table describes.
const GAP: u64 = (kinds::UNWIND_BY_CHAIN as u64) << 24;
/// The most functions of a file. libLLVM has 200,000.
const MOST_FUNCTIONS: usize = 2_000_000;

/// breg7 8, breg16 0, lit15, and, lit11, ge, lit3, shl, plus: sp + 8 + ((ip & 15) >= 11) * 8.
const PLT: [u8; 11] = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
/// breg7 160, deref: the sp of a signal's frame.
const SIGNAL: [u8; 4] = [0x77, 0xa0, 0x01, 0x06];
/// breg6, and deref behind its number.
const BREG_BP: u8 = 0x76;
const DEREF: u8 = 0x06;

/// The functions of a file.
pub struct Unwinding<'d> {
    frames: EhFrame<Slice<'d>>,
    bases: BaseAddresses,
    functions: Functions<'d>,
}

/// Address of each function, and the offset of its unwinding data, in order.
enum Functions<'d> {
    /// By the index that linkers write (.eh_frame_hdr; Linux Standard Base Core 5.0, 10.6.2): two numbers of 32 bits each, counted from
    /// `base`, the index's own address. libLLVM has 95,000: they are read where they lie.
    Indexed {
        rows: &'d [[u8; 8]],
        base: u64,
        frames: u64,
    },
    Listed(Vec<(u64, usize)>),
}

impl Functions<'_> {
    fn count(&self) -> usize {
        match self {
            Functions::Indexed { rows, .. } => rows.len(),
            Functions::Listed(all) => all.len(),
        }
    }

    fn at(&self, number: usize) -> Option<(u64, usize)> {
        match self {
            Functions::Indexed { rows, base, frames } => {
                let [a, b, c, d, e, f, g, h] = *rows.get(number)?;
                let of = |bytes| base.wrapping_add_signed(i64::from(i32::from_le_bytes(bytes)));
                let place = of([e, f, g, h]).checked_sub(*frames)?;
                Some((of([a, b, c, d]), usize::try_from(place).ok()?))
            }
            Functions::Listed(all) => all.get(number).copied(),
        }
    }

    /// How many functions begin at or before an address.
    fn before(&self, address: u64) -> usize {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            let is_before = self.at(middle).is_some_and(|(from, _)| from <= address);
            if is_before { low = middle + 1 } else { high = middle }
        }
        low
    }
}

impl<'d> Unwinding<'d> {
    /// `None`: the file has no tables, or no index of them.
    pub fn of(elf: &Elf<'d>) -> Option<Self> {
        let frames = elf.section(|name| name == b".eh_frame")?;
        let header = elf.section(|name| name == b".eh_frame_hdr");
        let text = elf.section(|name| name == b".text").map_or(0, |text| text.address);
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(header.map_or(0, |header| header.address))
            .set_eh_frame(frames.address)
            .set_text(text);
        let entries = EhFrame::new(frames.data, LittleEndian);
        let indexed = header.and_then(|header| indexed(header.data, header.address, frames.address));
        // Programs that are linked statically have no index.
        let functions = indexed.unwrap_or_else(|| Functions::Listed(listed(&entries, &bases)));
        Some(Unwinding { frames: entries, bases, functions })
    }

    /// The begin of the function around an address.
    pub fn function(&self, address: u64) -> Option<u64> {
        let (from, place) = self.functions.at(self.functions.before(address).checked_sub(1)?)?;
        let fde = self.fde(place)?;
        (address.checked_sub(from)? < fde.len()).then_some(from)
    }

    fn fde(&self, place: usize) -> Option<gimli::FrameDescriptionEntry<Slice<'d>>> {
        self.frames.fde_from_offset(&self.bases, place.into(), EhFrame::cie_from_offset).ok()
    }

    /// The rows for the functions of a stretch of code: from which address on each holds.
    pub fn rows(&self, (from, to): (u64, u64)) -> Vec<(u64, u64)> {
        let mut rows: Vec<(u64, u64)> = Vec::new();
        let mut context = UnwindContext::new();
        for number in self.functions.before(from).saturating_sub(1)..self.functions.count() {
            let Some((begin, place)) = self.functions.at(number) else { continue };
            if begin >= to || rows.len() > MOST_MADE {
                break;
            }
            let Some(fde) = self.fde(place) else { continue };
            let Ok(mut table) = fde.rows(&self.frames, &self.bases, &mut context) else { continue };
            while let Ok(Some(row)) = table.next_row()
                && rows.len() <= MOST_MADE
            {
                rows.push((row.start_address(), self.told(row)));
            }
            rows.push((fde.initial_address().saturating_add(fde.len()), GAP));
        }
        rows
    }
}

/// `None`: there is no index, or it is of another kind than linkers write.
fn indexed(header: &[u8], base: u64, frames: u64) -> Option<Functions<'_>> {
    /// Version 1; pcrel sdata4, udata4, datarel sdata4.
    const KIND: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
    let count = header.get(8..12)?.try_into().map(u32::from_le_bytes).ok()?;
    let (rows, _) = header.get(12..)?.as_chunks();
    let rows = rows.get(..usize::try_from(count).ok()?)?;
    (header.get(..4)? == KIND).then_some(Functions::Indexed { rows, base, frames })
}

/// The functions by their unwinding data, in order.
fn listed(entries: &EhFrame<Slice<'_>>, bases: &BaseAddresses) -> Vec<(u64, usize)> {
    let mut all = entries.entries(bases);
    let mut functions = Vec::new();
    while let Ok(Some(one)) = all.next() {
        if let CieOrFde::Fde(partial) = one
            && let Ok(fde) = partial.parse(EhFrame::cie_from_offset)
        {
            functions.push((fde.initial_address(), fde.offset()));
        }
        if functions.len() >= MOST_FUNCTIONS {
            break;
        }
    }
    functions.sort_unstable();
    functions
}

/// Addresses of the code of a block: `None` if there is none.
pub fn addresses(elf: &Elf<'_>, block: u64) -> Option<(u64, u64)> {
    let meets = |one: &&super::elf::Segment| {
        one.runs && one.offset < block.saturating_add(BLOCK) && block < one.offset.saturating_add(one.size)
    };
    let one = elf.segments.iter().find(meets)?;
    let (from, to) =
        (block.max(one.offset), block.saturating_add(BLOCK).min(one.offset.saturating_add(one.size)));
    let shown = |offset: u64| one.address.saturating_add(offset - one.offset);
    Some((shown(from), shown(to)))
}

/// The rows of a block, in order, by offset: among several rows for one place the last counts, and where a function ends the next one's.
pub fn in_block(mut rows: Vec<(u64, u64)>, (from, to): (u64, u64), elf: &Elf<'_>) -> Vec<u64> {
    rows.sort_by_key(|(at, row)| (*at, *row != GAP));
    let mut kept: Vec<(u64, u64)> = Vec::new();
    for (at, row) in rows {
        let at = at.max(from);
        if at >= to {
            continue;
        }
        match kept.last_mut() {
            Some(last) if last.0 == at => last.1 = row,
            Some(last) if last.1 == row => {}
            _ => kept.push((at, row)),
        }
    }
    kept.truncate(MOST_ROWS - 1);
    let word = |(at, row): (u64, u64)| Some((elf.offset(at)? & 0xffff_ffff) << 32 | row);
    kept.into_iter().filter_map(word).collect()
}

fn word(kind: u32, saved: u64, offset: i64) -> u64 {
    let words = offset / 8;
    if offset % 8 != 0 || words > i64::from(i16::MAX) || words < i64::from(i16::MIN) {
        return 0;
    }
    u64::from(kind) << 24 | saved << 16 | (words as u64 & 0xffff)
}

impl Unwinding<'_> {
    /// The lower half of a row.
    fn told(&self, row: &UnwindTableRow<usize>) -> u64 {
        if row.register(X86_64::RA) == Some(RegisterRule::Undefined) {
            return word(kinds::UNWIND_END, 0, 0);
        }
        let saved = match row.register(X86_64::RBP) {
            Some(RegisterRule::Offset(at)) if at < 0 && at % 8 == 0 && at >= -255 * 8 => {
                at.unsigned_abs() / 8
            }
            None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => 0,
            // The frame of a signal: its rule says so, and the kernel half knows where bp is.
            Some(_) => 0,
        };
        match row.cfa() {
            CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => {
                word(kinds::UNWIND_BY_SP, saved, *offset)
            }
            CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => {
                word(kinds::UNWIND_BY_BP, saved, *offset)
            }
            CfaRule::RegisterAndOffset { .. } => 0,
            CfaRule::Expression(expression) => match expression.get(&self.frames) {
                Ok(code) => computed(code.0.slice(), saved),
                Err(_) => 0,
            },
        }
    }
}

/// Rows of a Go program: its functions have their caller's bp right below the return address, if they have a frame.
pub fn rows_of_go(frames: &[(u64, i64)]) -> Vec<(u64, u64)> {
    let row = |(at, below): &(u64, i64)| {
        let saved = if *below > 0 { 2 } else { 0 };
        (*at, if *below < 0 { GAP } else { word(kinds::UNWIND_BY_SP, saved, below.saturating_add(8)) })
    };
    frames.iter().map(row).collect()
}

/// A row for the expressions that compilers and the C library write.
fn computed(code: &[u8], saved: u64) -> u64 {
    match code {
        _ if code == PLT => word(kinds::UNWIND_PLT, saved, 0),
        _ if code == SIGNAL => word(kinds::UNWIND_SIGNAL, 0, 0),
        // A number of seven bits with a sign (LEB128).
        [BREG_BP, at, DEREF] if at & 0x80 == 0 => {
            word(kinds::UNWIND_AT_BP, saved, i64::from((*at << 1) as i8 >> 1))
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_what_compilers_write() {
        assert_eq!(word(kinds::UNWIND_BY_SP, 2, 16), 1 << 24 | 2 << 16 | 2);
        assert_eq!(word(kinds::UNWIND_BY_SP, 0, 12), 0, "no whole words");
        assert_eq!(word(kinds::UNWIND_BY_BP, 2, 1 << 20), 0, "too far");
        assert_eq!(computed(&PLT, 0), 4 << 24);
        assert_eq!(computed(&SIGNAL, 0), 5 << 24);
        assert_eq!(computed(&[BREG_BP, 0x78, DEREF], 2), 6 << 24 | 2 << 16 | 0xffff, "-8 from bp");
        assert_eq!(computed(&[1, 2, 3], 2), 0);
    }

    #[test]
    fn this_program_has_a_row_for_each_place_in_its_code() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let mapped = super::super::elf::Mapped::of(&file).unwrap();
        let elf = Elf::of(mapped.bytes()).unwrap();
        let unwinding = Unwinding::of(&elf).expect("Rust writes tables");
        let text = elf.section(|name| name == b".text").unwrap();
        let is_known = |row: &&u64| ![0, GAP >> 24].contains(&(**row >> 24 & 0xff));
        let (mut all, mut known) = (0, 0);
        // One block alone may be a single large function, which has few rows.
        for part in 1..16 {
            let block =
                elf.offset(text.address + text.data.len() as u64 / 16 * part).unwrap() / BLOCK * BLOCK;
            let within = addresses(&elf, block).unwrap();
            let rows = in_block(unwinding.rows(within), within, &elf);
            assert!(rows.is_sorted());
            let first = rows.first().expect("no code without a row") >> 32;
            assert!(first >= block && first < block + BLOCK, "{first:#x} is not in {block:#x}");
            all += rows.len();
            known += rows.iter().filter(is_known).count();
        }
        assert!(all > 15 * 20, "{all} rows");
        assert!(known * 10 > all * 5, "{known} of {all}");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(cut in 0usize..4096, flips in proptest::collection::vec((0usize..4096, 0u8..=255), 0..40)) {
            let mut bytes = std::fs::read("/proc/self/exe").unwrap();
            for (at, byte) in flips {
                bytes[at] = byte;
            }
            let keep = bytes.len() - cut.min(bytes.len());
            if let Some(elf) = Elf::of(&bytes[..keep])
                && let Some(unwinding) = Unwinding::of(&elf)
            {
                for within in (0..8).filter_map(|block| addresses(&elf, block * BLOCK)) {
                    let _ = in_block(unwinding.rows(within), within, &elf);
                }
            }
        }
    }
}
