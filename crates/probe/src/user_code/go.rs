//! Functions of Go, from the table that Go's runtime needs itself: stripped programs have it, too.
//!
//! The format is that of debug/gosym (pclntab.go) and runtime/symtab.go: Go 1.16, 1.18, 1.20 and since.

use super::elf::Elf;

const GO_1_16: u32 = 0xffff_fffa;
const GO_1_18: u32 = 0xffff_fff0;
const GO_1_20: u32 = 0xffff_fff1;
const POINTER: usize = 8;
/// The most frames of a stretch of code: a table with more is invalid.
const MOST_FRAMES: usize = 65_536;

/// The table.
pub struct GoTable<'d> {
    data: &'d [u8],
    is_old: bool,
    /// The address that functions are counted from.
    text: u64,
    functions: usize,
    names: usize,
    /// Offset of the tables by place in the code.
    places: usize,
    table: usize,
}

fn number(data: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = data.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// Seven bits a byte, the lowest first.
fn varint(data: &[u8], at: &mut usize) -> Option<u32> {
    let mut value = 0u32;
    for shift in (0..35).step_by(7) {
        let byte = u32::from(*data.get(*at)?);
        *at += 1;
        value |= (byte & 127).checked_shl(shift).unwrap_or(0);
        if byte & 128 == 0 {
            return Some(value);
        }
    }
    None
}

fn place(data: &[u8], at: usize) -> Option<usize> {
    usize::try_from(number(data, at, POINTER)?).ok()
}

impl<'d> GoTable<'d> {
    /// `None`: it is no Go program, or one of an older version.
    pub fn of(elf: &Elf<'d>) -> Option<Self> {
        let data = elf.section(|name| name.ends_with(b".gopclntab"))?.data;
        // With another linker other code comes first in .text: where Go's code begins is not known then.
        let is_foreign = elf.section(|name| name == b".init").is_some();
        let text = elf.section(|name| name == b".text").filter(|_| !is_foreign);
        Self::parse(data, text.map(|text| text.address))
    }

    fn parse(data: &'d [u8], code: Option<u64>) -> Option<Self> {
        let magic = u32::try_from(number(data, 0, 4)?).ok()?;
        if data.get(7) != Some(&8) {
            return None; // 32 bits
        }
        let word = |at: usize| place(data, 8 + at * POINTER);
        let functions = word(0)?;
        let (is_old, text, names, places, table) = match magic {
            GO_1_16 => (true, 0, word(2)?, word(5)?, word(6)?),
            GO_1_18 | GO_1_20 => {
                (false, number(data, 8 + 2 * POINTER, POINTER)?, word(3)?, word(6)?, word(7)?)
            }
            _ => return None,
        };
        // Position-independent programs get the address by a relocation, and since Go 1.26 it is not stored here.
        let text = match (text, code) {
            (0, code) if !is_old => code?,
            (text, _) => text,
        };
        Some(GoTable { data, is_old, text, functions, names, places, table })
    }

    /// Bytes of a number in the table of functions.
    fn width(&self) -> usize {
        if self.is_old { POINTER } else { 4 }
    }

    fn entry(&self, at: usize) -> Option<(u64, usize)> {
        let width = self.width();
        let row = self.table.checked_add(at.checked_mul(2 * width)?)?;
        let begin = number(self.data, row, width)?.checked_add(self.text)?;
        Some((begin, usize::try_from(number(self.data, row + width, width)?).ok()?))
    }

    /// How many functions begin at or before an address.
    fn before(&self, address: u64) -> Option<usize> {
        let (mut low, mut high) = (0, self.functions);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(middle)?.0 <= address { low = middle + 1 } else { high = middle }
        }
        Some(low)
    }

    /// How far sp is from the return address, by address: (from, words), in order, for the functions of a stretch of code.
    pub fn frames(&self, from: u64, to: u64) -> Vec<(u64, i64)> {
        let mut all = Vec::new();
        for at in self.before(from).unwrap_or(0).saturating_sub(1)..self.functions {
            let Some((begin, function)) = self.entry(at).filter(|(begin, _)| *begin < to) else { break };
            if self.frames_of(begin, function, &mut all).is_none() || all.len() > MOST_FRAMES {
                break;
            }
        }
        all
    }

    /// runtime.pcvalue: differences of values and of places, both with seven bits a byte, from -1 and the function's begin on.
    fn frames_of(&self, begin: u64, function: usize, all: &mut Vec<(u64, i64)>) -> Option<()> {
        // After the begin: name, size of arguments, where deferred calls return.
        let field = self.table.checked_add(function)?.checked_add(self.width() + 12)?;
        let mut at = self.places.checked_add(usize::try_from(number(self.data, field, 4)?).ok()?)?;
        let (mut place, mut value, mut is_first) = (begin, -1i64, true);
        loop {
            let change = varint(self.data, &mut at)?;
            if change == 0 && !is_first {
                all.push((place, -1)); // the code that follows may come from another compiler
                return Some(());
            }
            is_first = false;
            let half = i64::from((change >> 1) as i32);
            value = value.wrapping_add(if change & 1 == 1 { !half } else { half });
            all.push((place, value));
            place = place.checked_add(u64::from(varint(self.data, &mut at)?))?;
            if all.len() > MOST_FRAMES {
                return None;
            }
        }
    }

    /// The function at an address.
    pub fn name(&self, address: u64) -> Option<String> {
        let low = self.before(address)?;
        let (_, function) = self.entry(low.checked_sub(1)?)?;
        if low == self.functions {
            // After the last function there is only its end.
            let end =
                number(self.data, self.table.checked_add(low.checked_mul(2 * self.width())?)?, self.width())?;
            if address >= end.checked_add(self.text)? {
                return None;
            }
        }
        let at = self.table.checked_add(function)?.checked_add(self.width())?;
        let name = self.names.checked_add(usize::try_from(number(self.data, at, 4)?).ok()?)?;
        let rest = self.data.get(name..)?;
        let end = rest.iter().take(4096).position(|byte| *byte == 0)?;
        let text = std::str::from_utf8(rest.get(..end)?).ok()?;
        (!text.is_empty()).then(|| text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of Go 1.20 with these functions.
    fn drawn(functions: &[(u32, &str)], end: u32) -> Vec<u8> {
        let mut names = vec![0u8];
        let mut rows = Vec::new();
        let mut bodies = Vec::new();
        let table_bytes = (functions.len() * 2 + 1) * 4;
        for (begin, name) in functions {
            rows.extend(begin.to_le_bytes());
            rows.extend(((table_bytes + bodies.len()) as u32).to_le_bytes());
            bodies.extend(begin.to_le_bytes());
            bodies.extend((names.len() as u32).to_le_bytes());
            names.extend(name.as_bytes());
            names.push(0);
        }
        rows.extend(end.to_le_bytes());
        let header = 8 + 8 * POINTER;
        let mut data = GO_1_20.to_le_bytes().to_vec();
        data.extend([0, 0, 1, 8]);
        for word in [functions.len(), 0, 0, header, 0, 0, 0, header + names.len()] {
            data.extend((word as u64).to_le_bytes());
        }
        data.extend(names);
        data.extend(rows);
        data.extend(bodies);
        data
    }

    #[test]
    fn functions_by_address_and_nothing_before_or_behind_them() {
        let data = drawn(&[(0, "runtime.a"), (0x40, "main.b"), (0x90, "main.(*T).c")], 0xa0);
        let table = GoTable::parse(&data, Some(0x40_1000)).unwrap();
        let at = |address| table.name(address);
        assert_eq!(at(0x40_1000).as_deref(), Some("runtime.a"));
        assert_eq!(at(0x40_103f).as_deref(), Some("runtime.a"));
        assert_eq!(at(0x40_1095).as_deref(), Some("main.(*T).c"));
        assert_eq!((at(0x40_0fff), at(0x40_10a0)), (None, None));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut data in proptest::collection::vec(0u8..=255, 8..300), magic in 0usize..3, at: u64) {
            data[..4].copy_from_slice(&[GO_1_16, GO_1_18, GO_1_20][magic].to_le_bytes());
            data[7] = 8;
            if let Some(table) = GoTable::parse(&data, Some(0)) {
                let _ = table.name(at);
                let _ = table.name(at % 512);
                let _ = table.frames(at % 512, 1 << 20);
            }
        }
    }
}
