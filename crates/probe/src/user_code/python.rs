//! Functions of Python: where CPython keeps them, by version (3.11 to 3.13), and what the kernel half read there.
//!
//! Fields are those of Include/internal/pycore_{runtime,interp,frame,code}.h and Include/cpython/pystate.h of the releases, for
//! x86-64 and arm64. Since 3.13 the interpreter has a table of them (_Py_DebugOffsets, at the begin of _PyRuntime).

use std::collections::HashMap;

use super::elf::Elf;
use crate::bpf::oncpu::{PythonCode, PythonLayout};

/// "Not a field": see `python_layout.frame_within`.
const NOTHING: u32 = u32::MAX;
/// The begin of _Py_DebugOffsets.
const COOKIE: &[u8] = b"xdebugpy";
/// The bytes of it that are read.
const DEBUG_OFFSETS: usize = 576;
/// The most entries of a table of lines that are read.
const MOST_ENTRIES: usize = 4096;

/// Where fields are in the processes that run this file; `None`: it is no interpreter of a known version.
pub fn layout(elf: &Elf<'_>) -> Option<PythonLayout> {
    let (version_at, _) = elf.exported(b"Py_Version")?;
    let (runtime, _) = elf.exported(b"_PyRuntime")?;
    let version = u32::from_le_bytes(elf.bytes(version_at, 4)?.try_into().ok()?);
    let fields = match version >> 16 {
        0x030b => fields_3_11(),
        0x030c => fields_3_12(),
        0x030d => fields_3_13(elf.bytes(runtime, DEBUG_OFFSETS)?)?,
        _ => return None,
    };
    // Address minus offset: the mapping of the code's segment has another difference than the segment itself.
    let segment = elf.segments.iter().find(|one| one.runs)?;
    let bias = segment.address.wrapping_sub(segment.offset);
    Some(PythonLayout { runtime: runtime.wrapping_sub(bias), ..fields })
}

fn fields_3_11() -> PythonLayout {
    PythonLayout {
        interpreters_head: 40,
        threads_head: 16,
        thread_next: 8,
        thread_id: 160,
        thread_frame: 56,
        frame_within: 8,
        frame_code: 32,
        frame_previous: 48,
        frame_instruction: 56,
        frame_owner: 69,
        code_first_line: 72,
        code_path: 112,
        code_name: 128,
        code_lines: 136,
        code_units: 184,
        text: 48,
        wide: 72,
        text_state: 32,
        lines_size: 16,
        lines: 32,
        ..PythonLayout::default()
    }
}

fn fields_3_12() -> PythonLayout {
    PythonLayout {
        threads_head: 72,
        thread_id: 144,
        frame_within: 0,
        frame_code: 0,
        frame_previous: 8,
        frame_owner: 70,
        code_first_line: 68,
        code_units: 192,
        text: 40,
        wide: 56,
        ..fields_3_11()
    }
}

/// The interpreter's own table. Offsets in the struct: Include/internal/pycore_debug_offsets of 3.13.0, the same up to its last release.
fn fields_3_13(told: &[u8]) -> Option<PythonLayout> {
    if !told.starts_with(COOKIE) {
        return None;
    }
    let field = |at: usize| {
        let word = told.get(at..at + 8)?;
        u32::try_from(u64::from_le_bytes(word.try_into().ok()?)).ok().filter(|field| *field < 1 << 20)
    };
    let text = field(560)?;
    Some(PythonLayout {
        interpreters_head: field(40)?,
        threads_head: field(72)?,
        thread_next: field(168)?,
        thread_id: field(200)?,
        thread_frame: field(184)?,
        frame_within: NOTHING,
        frame_code: field(240)?,
        frame_previous: field(232)?,
        frame_instruction: field(248)?,
        frame_owner: field(264)?,
        code_first_line: field(312)?,
        code_path: field(280)?,
        code_name: field(296)?,
        code_lines: field(304)?,
        code_units: field(344)?,
        text,
        wide: text + 16,
        text_state: field(544)?,
        lines_size: field(520)?,
        lines: field(528)?,
        ..PythonLayout::default()
    })
}

/// Names of code objects, by their number.
#[derive(Default)]
pub struct Codes(pub HashMap<u32, PythonCode>);

impl Codes {
    /// "Report.sum (/srv/report.py:12)".
    #[must_use]
    pub fn name(&self, code: u32, unit: u32) -> Option<String> {
        let code = self.0.get(&code)?;
        let (name, path) = (text(&code.name, code.name_state), text(&code.path, code.path_state));
        if name.is_empty() {
            return None;
        }
        let lines = code.lines.get(..code.lines_size as usize).unwrap_or_default();
        let line = line(lines, code.first_line, unit).unwrap_or(code.first_line);
        Some(if path.is_empty() { name } else { format!("{name} ({path}:{line})") })
    }
}

/// A str by its kind: 1, 2 or 4 bytes a character; of one byte, ASCII or Latin-1.
fn text(bytes: &[i8], state: u32) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).collect();
    let width = match state >> 2 & 7 {
        width @ (1 | 2 | 4) => width as usize,
        _ => return String::new(),
    };
    let character = |unit: &[u8]| {
        let number = unit.iter().rev().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte));
        char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
    };
    bytes.chunks_exact(width).map(character).take_while(|c| *c != '\0').collect()
}

/// The line of an instruction (Objects/locations.md, 3.11 and since). `None`: the table does not say, or is cut.
fn line(table: &[u8], first: i32, unit: u32) -> Option<i32> {
    let (mut at, mut line, mut begin) = (0usize, first, 0u32);
    for _ in 0..MOST_ENTRIES {
        let head = *table.get(at).filter(|byte| **byte & 0x80 != 0)?;
        let units = u32::from(head & 7) + 1;
        let kind = head >> 3 & 15;
        at += 1;
        match kind {
            10..=12 => line = line.wrapping_add(i32::from(kind) - 10),
            13 | 14 => line = line.wrapping_add(signed(table, at)?),
            _ => {}
        }
        // On to the next entry: only its first byte has the highest bit.
        while table.get(at).is_some_and(|byte| byte & 0x80 == 0) {
            at += 1;
        }
        if unit < begin.saturating_add(units) {
            return (kind != 15).then_some(line);
        }
        begin = begin.saturating_add(units);
    }
    None
}

/// Six bits a byte, the lowest first; bit 6: there are more. The lowest of all is the sign.
fn signed(table: &[u8], mut at: usize) -> Option<i32> {
    let (mut value, mut shift) = (0u32, 0u32);
    loop {
        let byte = u32::from(*table.get(at)?);
        value |= (byte & 63).checked_shl(shift).unwrap_or(0);
        if byte & 64 == 0 {
            let half = i32::try_from(value >> 1).unwrap_or(0);
            return Some(if value & 1 == 1 { -half } else { half });
        }
        (at, shift) = (at + 1, shift + 6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(text: &[u8]) -> [i8; N] {
        let mut bytes = [0; N];
        text.iter().zip(&mut bytes).for_each(|(from, to)| *to = *from as i8);
        bytes
    }

    #[test]
    fn lines_of_a_table() {
        // One line: +1 for two units; long: -1 for one; short: one unit in the same line; none.
        let table = [0x80 | 11 << 3 | 1, 0, 4, 0x80 | 14 << 3, 3, 0, 0, 0, 0x80, 5, 0x80 | 15 << 3];
        let at = |unit| line(&table, 10, unit);
        assert_eq!(
            [at(0), at(1), at(2), at(3), at(4), at(5)],
            [Some(11), Some(11), Some(10), Some(10), None, None]
        );
    }

    #[test]
    fn names_of_every_width() {
        assert_eq!(text(&bytes::<80>(b"fib"), 1 << 2), "fib");
        assert_eq!(text(&bytes::<80>(&[0xe9, 0]), 1 << 2), "é", "Latin-1");
        assert_eq!(text(&bytes::<80>(&[0x3b, 0x04, 0, 0]), 2 << 2), "л");
        assert_eq!(text(&bytes::<80>(&[0x00, 0xf6, 0x01, 0, 0, 0, 0, 0]), 4 << 2), "😀");
        assert_eq!(text(&bytes::<80>(b"fib"), 0), "", "no kind");
    }

    #[test]
    fn a_function_has_its_file_and_line() {
        let mut codes = Codes::default();
        let code = PythonCode {
            first_line: 7,
            name_state: 1 << 2,
            path_state: 1 << 2,
            name: bytes(b"Report.sum"),
            path: bytes(b"/srv/report.py"),
            ..PythonCode::default()
        };
        codes.0.insert(5, code);
        assert_eq!(codes.name(5, 3).as_deref(), Some("Report.sum (/srv/report.py:7)"));
        assert_eq!(codes.name(6, 3), None);
    }

    proptest::proptest! {
        #[test]
        fn no_table_makes_it_panic(table in proptest::collection::vec(0u8..=255, 0..64), first: i32, unit: u32) {
            let _ = line(&table, first, unit % 64);
        }

        #[test]
        fn no_text_makes_it_panic(raw in proptest::collection::vec(-128i8..=127, 0..80), state: u32) {
            let _ = text(&raw, state);
        }
    }
}
