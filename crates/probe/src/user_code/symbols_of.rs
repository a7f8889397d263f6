//! The names of one file's code.

use std::cell::OnceCell;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use blazesym::symbolize::source::{self, Source};
use blazesym::symbolize::{Input, Sym, Symbolizer};

use super::elf::{Elf, Mapped};
use super::go::GoTable;
use super::open::Told;
use super::readable::readable;
use super::scan::{self, SymbolQuery};
use super::unwind::{self, Unwinding};

/// Debug information is read only in files up to this size: reading needs some ten times as much memory as the searched data.
const MOST_DEBUG: u64 = 96 << 20;
/// Sections that may hold more names: the last has the packed symbols of a stripped file.
const DEBUG: [&[u8]; 3] = [b".debug_info", b".zdebug_info", b".gnu_debugdata"];
/// Bytes of a build id that are read (SHA-1 has 20).
const MOST_ID: usize = 32;
/// Bytes of a build id that are shown: enough to tell files apart.
const ID_SHOWN: usize = 6;
/// Characters of a symbol's name that are kept: C++ names can hold whole types.
const MOST_SIGNS: usize = 512;

/// A file whose code runs. Nothing that it returns outlives it.
pub struct CodeFile {
    name: String,
    path: PathBuf,
    file: Option<File>,
    elf: Option<Elf<'static>>,
    /// In hexadecimal digits; empty: it has none.
    build_id: String,
    /// Where calls into other files are passed on (.plt): symbols before it reach over it.
    passes_on: Vec<std::ops::Range<u64>>,
    size: u64,
    unwinding: OnceCell<Option<Unwinding<'static>>>,
    go: OnceCell<Option<GoTable<'static>>>,
    /// The memory that all of these read: declared, and dropped, last.
    _mapped: Option<Box<Mapped>>,
}

impl CodeFile {
    /// The code of a file that the kernel half reported.
    pub fn open(told: &Told) -> Self {
        let name = told.name();
        match told.open() {
            // Not by the path that it was found at: another file may be there when it is read.
            Some((file, _)) => {
                let own = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
                Self::of(name, file, own)
            }
            None => Self::not_found(told),
        }
    }

    /// A file that is missing, or was replaced by another.
    pub fn not_found(told: &Told) -> Self {
        CodeFile { name: told.name(), ..Self::nowhere() }
    }

    /// The code of an open file.
    pub fn of(name: String, file: File, path: PathBuf) -> Self {
        let mapped = Mapped::of(&file).map(Box::new);
        // SAFETY: the mapping is dropped after all that borrows from it, and its bytes stay where they are when it is moved.
        let lasting =
            |mapped: &Mapped| unsafe { std::mem::transmute::<&[u8], &'static [u8]>(mapped.bytes()) };
        let bytes = mapped.as_deref().map(lasting);
        let elf = bytes.and_then(Elf::of);
        let build_id = elf.as_ref().map(build_id).unwrap_or_default();
        let plt = |name: &[u8]| name.starts_with(b".plt");
        let passes_on = elf.as_ref().map(|elf| elf.places(plt)).unwrap_or_default();
        let size = bytes.map_or(0, |bytes| bytes.len() as u64);
        CodeFile {
            name,
            path,
            file: Some(file),
            elf,
            build_id,
            passes_on,
            size,
            _mapped: mapped,
            ..Self::nowhere()
        }
    }

    fn nowhere() -> Self {
        CodeFile {
            name: String::new(),
            path: PathBuf::new(),
            file: None,
            elf: None,
            build_id: String::new(),
            passes_on: Vec::new(),
            size: 0,
            unwinding: OnceCell::new(),
            go: OnceCell::new(),
            _mapped: None,
        }
    }

    /// Whether it was found.
    pub fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// When its bytes were changed last.
    pub fn changed(&self) -> Option<(i64, i64)> {
        use std::os::unix::fs::MetadataExt as _;
        let about = self.file.as_ref()?.metadata().ok()?;
        Some((about.mtime(), about.mtime_nsec()))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its headers.
    pub fn elf(&self) -> Option<&Elf<'_>> {
        self.elf.as_ref()
    }

    /// Rows of the block of code that begins at this offset. `None`: there are no tables.
    pub fn rows(&self, block: u64) -> Option<Vec<u64>> {
        let elf = self.elf.as_ref()?;
        let within = unwind::addresses(elf, block)?;
        let (go, others) = (self.go(), self.unwinding());
        if go.is_none() && others.is_none() {
            return None;
        }
        // A Go program may contain C code, too.
        let mut rows = others.map(|unwinding| unwinding.rows(within)).unwrap_or_default();
        rows.extend(go.map(|go| unwind::rows_of_go(&go.frames(within.0, within.1))).unwrap_or_default());
        Some(unwind::in_block(rows, within, elf))
    }

    fn go(&self) -> Option<&GoTable<'static>> {
        self.go.get_or_init(|| GoTable::of(self.elf.as_ref()?)).as_ref()
    }

    fn unwinding(&self) -> Option<&Unwinding<'static>> {
        self.unwinding.get_or_init(|| Unwinding::of(self.elf.as_ref()?)).as_ref()
    }

    /// Whether debug information may have more names, and inlined functions.
    pub fn has_debug(&self) -> bool {
        let has = |elf: &Elf<'_>| elf.section(|name| DEBUG.contains(&name)).is_some();
        self.size <= MOST_DEBUG && self.elf.as_ref().is_some_and(has) || self.has_debug_file()
    }

    /// Whether there is a file with its debug information, where distributions put them.
    fn has_debug_file(&self) -> bool {
        let Some((first, rest)) = self.build_id.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())
        else {
            return false;
        };
        let path = format!("/usr/lib/debug/.build-id/{first}/{rest}.debug");
        std::fs::metadata(path).is_ok_and(|about| about.len() <= MOST_DEBUG)
    }

    /// Frames of each offset in it, innermost first. With a symbolizer: also inlined functions.
    pub fn frames(&self, debug: Option<&Symbolizer>, offsets: &[u64]) -> Vec<Vec<String>> {
        let Some(elf) = &self.elf else {
            return offsets.iter().map(|offset| vec![self.without_symbol(*offset)]).collect();
        };
        let asked = |offset: &u64| {
            let address = elf.address(*offset).unwrap_or(u64::MAX);
            SymbolQuery { address, begin: self.unwinding().and_then(|unwinding| unwinding.function(address)) }
        };
        let asked: Vec<SymbolQuery> = offsets.iter().map(asked).collect();
        let symbols = scan::names(elf, &asked);
        let debug = debug.and_then(|symbolizer| {
            let mut source = source::Elf::new(&self.path);
            source.debug_syms = true;
            symbolizer.symbolize(&Source::Elf(source), Input::FileOffset(offsets)).ok()
        });
        let debug = debug.unwrap_or_default();
        let of = |(at, offset): (usize, &u64)| {
            let address = elf.address(*offset);
            let symbol =
                symbols.get(at).copied().flatten().map(|name| self.written(&String::from_utf8_lossy(name)));
            match (address, symbol, debug.get(at).and_then(|one| one.as_sym())) {
                // An address outside the code was no return address.
                (None, ..) => vec!["[unknown]".to_owned()],
                (Some(address), ..) if self.passes_on.iter().any(|plt| plt.contains(&address)) => {
                    vec![format!("plt of {}", self.name)]
                }
                (_, symbol, Some(found)) => self.with_inlined(found, symbol),
                (_, Some(symbol), None) => vec![symbol],
                (_, None, None) => vec![self.without_symbol(*offset)],
            }
        };
        offsets.iter().enumerate().map(of).collect()
    }

    /// Inlined functions are reported as frames of their own, innermost first.
    fn with_inlined(&self, symbol: &Sym<'_>, known: Option<String>) -> Vec<String> {
        let mut names: Vec<String> = symbol.inlined.iter().rev().map(|one| self.written(&one.name)).collect();
        names.push(known.unwrap_or_else(|| self.written(&symbol.name)));
        names
    }

    /// The name as its language writes it.
    fn written(&self, name: &str) -> String {
        readable(name, self.go().is_some()).chars().take(MOST_SIGNS).collect()
    }

    /// The name of a Go function, or the place where the function begins.
    fn without_symbol(&self, offset: u64) -> String {
        let address = self.elf.as_ref().and_then(|elf| elf.address(offset));
        if let Some(name) = address.and_then(|address| self.go()?.name(address)) {
            return name;
        }
        let begin =
            address.and_then(|address| self.elf.as_ref()?.offset(self.unwinding()?.function(address)?));
        let name = &self.name;
        let shown: String = self.build_id.chars().take(2 * ID_SHOWN).collect();
        let id = if shown.is_empty() { "none" } else { &shown };
        if !self.is_open() {
            return format!("{name}+{offset:#x} (not found)");
        }
        match begin {
            Some(begin) => format!("{name}+{begin:#x} (build id {id}, function)"),
            None => format!("{name}+{offset:#x} (build id {id})"),
        }
    }
}

/// From the note that the linker writes (elf(5)): a name of four bytes, "GNU", and the id.
fn build_id(elf: &Elf<'_>) -> String {
    let note = elf.section(|name| name == b".note.gnu.build-id");
    let id = note.and_then(|note| note.data.get(16..)).unwrap_or_default();
    id.iter().take(MOST_ID).map(|byte| format!("{byte:02x}")).collect()
}
