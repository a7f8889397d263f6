//! Finds names by one walk over a file's symbols, for all requested addresses at once: an index of them, which is thrown away after
//! use, would cost a hundred times as much.

use object::elf::{SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STB_LOCAL, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, Sym64};
use object::endian::LittleEndian as Le;
use object::read::elf::Sym as _;

use super::elf::{Elf, StringTable};

/// How good a symbol's name is for the place; the least is the best: among several functions around a place the one that begins last;
/// among several names of one function a name that others may call, without the underscores of a library's own names, the shortest.
type Rank<'d> = (std::cmp::Reverse<u64>, bool, usize, usize, &'d [u8]);

/// A requested address, and the function that is known to begin before it (unwinding tables).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SymbolQuery {
    /// In the file's own addresses.
    pub address: u64,
    /// Where the function begins, if tables have it.
    pub begin: Option<u64>,
}

/// The best name for each, in their order.
pub fn names<'d>(elf: &Elf<'d>, asked: &[SymbolQuery]) -> Vec<Option<&'d [u8]>> {
    let mut by_address: Vec<(u64, usize)> =
        asked.iter().enumerate().map(|(at, one)| (one.address, at)).collect();
    by_address.sort_unstable();
    let mut by_begin: Vec<(u64, usize)> =
        asked.iter().enumerate().filter_map(|(at, one)| Some((one.begin?, at))).collect();
    by_begin.sort_unstable();
    let mut best: Vec<Option<Rank<'d>>> = vec![None; asked.len()];
    for kind in [SHT_SYMTAB, SHT_DYNSYM] {
        elf.each_symbol(kind, |symbol, strings| {
            let (from, size) = (symbol.st_value(Le), symbol.st_size(Le));
            // Symbols from assembler code may have no size: they count where tables have a function that begins there.
            let (all, end) = if size == 0 {
                (&by_begin, from.saturating_add(1))
            } else {
                (&by_address, from.saturating_add(size))
            };
            let first = all.partition_point(|(address, _)| *address < from);
            let within = all.iter().skip(first).take_while(|(address, _)| *address < end);
            for (_, at) in within {
                let Some(rank) = rank(symbol, strings) else { continue };
                if best[*at].is_none_or(|known| rank < known) {
                    best[*at] = Some(rank);
                }
            }
        });
    }
    best.into_iter().map(|rank| rank.map(|(.., name)| name)).collect()
}

fn rank<'d>(symbol: &Sym64<Le>, strings: StringTable<'d>) -> Option<Rank<'d>> {
    if symbol.st_shndx(Le) == SHN_UNDEF || ![STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE].contains(&symbol.st_type())
    {
        return None;
    }
    let name = symbol.name(Le, strings).ok().filter(|name| !name.is_empty())?;
    let is_mangled = name.starts_with(b"_Z") || name.starts_with(b"_R");
    let underscores = if is_mangled { 0 } else { name.iter().take_while(|byte| **byte == b'_').count() };
    let is_local = symbol.st_bind() == STB_LOCAL;
    Some((std::cmp::Reverse(symbol.st_value(Le)), is_local, underscores, name.len(), name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user_code::elf::Mapped;

    /// Addresses of exported names of this machine's C library, and their names.
    #[test]
    fn a_function_of_many_names_has_the_one_that_programs_call() {
        let Some(path) = crate::user_code::live_tests::c_library() else {
            eprintln!("not run: no C library is mapped or found");
            return;
        };
        let file = std::fs::File::open(path).unwrap();
        let mapped = Mapped::of(&file).unwrap();
        let elf = Elf::of(mapped.bytes()).unwrap();
        for wanted in ["malloc", "read", "qsort", "getenv", "strtol"] {
            let Some((address, size)) = elf.exported(wanted.as_bytes()) else { continue };
            let asked =
                [0, size / 2, size - 1].map(|more| SymbolQuery { address: address + more, begin: None });
            assert_eq!(names(&elf, &asked), vec![Some(wanted.as_bytes()); 3]);
        }
        let nowhere = SymbolQuery { address: u64::MAX, begin: None };
        assert_eq!(names(&elf, &[nowhere]), [None]);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(flips in proptest::collection::vec((0usize..1 << 20, 0u8..=255), 0..40), address: u64) {
            let mut bytes = std::fs::read("/proc/self/exe").unwrap();
            for (at, byte) in flips {
                let at = bytes.len() - 1 - at % bytes.len();
                bytes[at] = byte;
            }
            if let Some(elf) = Elf::of(&bytes) {
                let asked = [SymbolQuery { address, begin: Some(address) }, SymbolQuery { address: address % (1 << 24), begin: None }];
                let _ = names(&elf, &asked);
            }
        }
    }
}
