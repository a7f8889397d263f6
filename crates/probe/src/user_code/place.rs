//! A frame of user code as the kernel half stores it: one word.

use crate::bpf::constants::{python_h, user_places_h};

/// Where a function was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// An address in memory that belongs to no file.
    Address(u64),
    /// In a file, by its number, at this offset in bytes.
    InFile {
        /// The file's number.
        file: u32,
        /// From its begin.
        offset: u64,
    },
    /// In Python: the number of the code object, and the instruction in it.
    Python {
        /// The number of the code object; 0: it has none.
        code: u32,
        /// Its instruction, in code units.
        unit: u32,
    },
}

impl Place {
    /// Decodes the word.
    #[must_use]
    pub fn of(word: u64) -> Self {
        let (shift, unit_bits) = (user_places_h::FRAME_FILE_SHIFT, python_h::PYTHON_UNIT_BITS);
        if word >> user_places_h::FRAME_IN_FILE_BIT & 1 == 1 {
            let file = (word & !(1 << user_places_h::FRAME_IN_FILE_BIT)) >> shift;
            return Place::InFile { file: file as u32, offset: word & ((1 << shift) - 1) };
        }
        if word >> python_h::FRAME_PYTHON_BIT & 1 == 1 {
            let code = (word & !(1 << python_h::FRAME_PYTHON_BIT)) >> unit_bits;
            return Place::Python { code: code as u32, unit: (word & ((1 << unit_bits) - 1)) as u32 };
        }
        Place::Address(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_place_a_code_object_or_an_address() {
        assert_eq!(Place::of(0x7fff_1234_5678), Place::Address(0x7fff_1234_5678));
        assert_eq!(Place::of(1 << 63 | 7 << 40 | 0x1234), Place::InFile { file: 7, offset: 0x1234 });
        assert_eq!(Place::of(1 << 62 | 4711 << 24 | 5), Place::Python { code: 4711, unit: 5 });
    }
}
