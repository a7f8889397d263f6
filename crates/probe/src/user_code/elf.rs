//! ELF files: the parts that are needed for the names of code and of its callers. Their content is not trusted: each access may fail.

use std::fs::File;
use std::os::fd::AsRawFd as _;

use object::elf::{FileHeader64, PF_X, PT_LOAD, SHT_NOBITS};
use object::endian::LittleEndian as Le;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};

/// Where the names of symbols are.
pub type StringTable<'d> = object::StringTable<'d>;

/// A file in memory. If the file is truncated while it is read, this process is killed: it is disposable.
pub struct Mapped {
    at: *mut libc::c_void,
    size: usize,
}

impl Mapped {
    /// The whole file.
    pub fn of(file: &File) -> Option<Self> {
        let size = usize::try_from(file.metadata().ok()?.len()).ok().filter(|size| *size > 0)?;
        // SAFETY: a private mapping that is never written; the result is checked.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
        };
        (at != libc::MAP_FAILED).then_some(Mapped { at, size })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for so many bytes until it is dropped.
        unsafe { std::slice::from_raw_parts(self.at.cast(), self.size) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this size.
        unsafe { libc::munmap(self.at, self.size) };
    }
}

/// A loaded part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Its address.
    pub address: u64,
    /// Its place in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub size: u64,
    /// It holds code.
    pub runs: bool,
}

/// A section.
#[derive(Debug, Clone, Copy)]
pub struct Section<'d> {
    /// Its address.
    pub address: u64,
    /// Its content.
    pub data: &'d [u8],
}

/// A file's headers.
pub struct Elf<'d> {
    data: &'d [u8],
    header: &'d FileHeader64<Le>,
    /// The loaded parts.
    pub segments: Vec<Segment>,
}

impl<'d> Elf<'d> {
    /// A file of 64 bits, little endian.
    pub fn of(data: &'d [u8]) -> Option<Self> {
        let header = FileHeader64::<Le>::parse(data).ok()?;
        let segment = |one: &object::elf::ProgramHeader64<Le>| Segment {
            address: one.p_vaddr(Le),
            offset: one.p_offset(Le),
            size: one.p_filesz(Le),
            runs: one.p_flags(Le) & PF_X != 0,
        };
        let all = header.program_headers(Le, data).ok()?;
        let segments = all.iter().filter(|one| one.p_type(Le) == PT_LOAD).map(segment).collect();
        Some(Elf { data, header, segments })
    }

    /// The first section for whose name `is_it` holds.
    pub fn section(&self, is_it: impl Fn(&[u8]) -> bool) -> Option<Section<'d>> {
        let all = self.header.sections(Le, self.data).ok()?;
        let named = |one: &&object::elf::SectionHeader64<Le>| {
            one.sh_type(Le) != SHT_NOBITS && all.section_name(Le, one).is_ok_and(&is_it)
        };
        let one = all.iter().find(named)?;
        Some(Section { address: one.sh_addr(Le), data: one.data(Le, self.data).ok()? })
    }

    /// Where the sections with such names lie.
    pub fn places(&self, is_it: impl Fn(&[u8]) -> bool) -> Vec<std::ops::Range<u64>> {
        let Ok(all) = self.header.sections(Le, self.data) else { return Vec::new() };
        let named = |one: &&object::elf::SectionHeader64<Le>| all.section_name(Le, one).is_ok_and(&is_it);
        let range = |one: &object::elf::SectionHeader64<Le>| {
            one.sh_addr(Le)..one.sh_addr(Le).saturating_add(one.sh_size(Le))
        };
        all.iter().filter(named).map(range).collect()
    }

    /// Address and size of a symbol that other files may link to.
    pub fn exported(&self, wanted: &[u8]) -> Option<(u64, u64)> {
        use object::read::elf::Sym as _;
        let all = self.header.sections(Le, self.data).ok()?;
        [object::elf::SHT_DYNSYM, object::elf::SHT_SYMTAB].iter().find_map(|kind| {
            let symbols = all.symbols(Le, self.data, *kind).ok()?;
            let named = |one: &&object::elf::Sym64<Le>| {
                one.st_value(Le) != 0 && one.name(Le, symbols.strings()).is_ok_and(|name| name == wanted)
            };
            symbols.iter().find(named).map(|one| (one.st_value(Le), one.st_size(Le)))
        })
    }

    /// Each symbol of a table, and where their names are.
    pub fn each_symbol(&self, kind: u32, mut told: impl FnMut(&object::elf::Sym64<Le>, StringTable<'d>)) {
        let Ok(all) = self.header.sections(Le, self.data) else { return };
        let Ok(symbols) = all.symbols(Le, self.data, kind) else { return };
        let strings = symbols.strings();
        symbols.iter().for_each(|one| told(one, strings));
    }

    /// The address of an offset in the file.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let within = |one: &&Segment| one.runs && offset >= one.offset && offset - one.offset < one.size;
        let one = self.segments.iter().find(within)?;
        one.address.checked_add(offset - one.offset)
    }

    /// The offset in the file of an address.
    pub fn offset(&self, address: u64) -> Option<u64> {
        let within = |one: &&Segment| address >= one.address && address - one.address < one.size;
        let one = self.segments.iter().find(within)?;
        one.offset.checked_add(address - one.address)
    }

    /// So many bytes from an address on.
    pub fn bytes(&self, address: u64, size: usize) -> Option<&'d [u8]> {
        let from = usize::try_from(self.offset(address)?).ok()?;
        self.data.get(from..from.checked_add(size)?)
    }
}
