//! The kernel's types, as far as our programs read them: what they are relocated against.
//!
//! For each type that a program reads libbpf compares each type of the kernel (tools/lib/bpf/libbpf.c, bpf_core_add_cands), for each object
//! anew: 97,000 types here, 190 times. So it gets a BTF of only those that have a name our programs know, with the types in them by value.
//! Pointed-to types are left out: a relocation ends there (relo_core.c, bpf_core_fields_are_compat).
//!
//! Not for objects that read the kernel's own number of a type (`bpf_core_type_id_kernel`), which would get ours, nor for objects that
//! compare whole types (`bpf_core_type_matches`), which follow pointers by one step.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::OnceLock;

use libbpf_rs::skel::SkelBuilder;

use crate::kallsyms::in_memory;

/// Names in the BTF of our objects.
const NAMES: &[&str] = include!(concat!(env!("OUT_DIR"), "/types.rs"));

const MAGIC: u16 = 0xeb9f;
const PTR: u32 = 2;
const HEADER: usize = 24;
/// More than any kernel has.
const MOST_BYTES: usize = 256 << 20;

/// A skeleton that is relocated against these types; where they cannot be had, against all, as ever.
pub(crate) fn builder<'slot, B: SkelBuilder<'slot> + Default>() -> B {
    let mut builder = B::default();
    if let Some(path) = path() {
        // An error: a path with a zero in it.
        let _ = builder.object_builder_mut().btf_custom_path(path);
    }
    builder
}

fn path() -> Option<PathBuf> {
    static FILE: OnceLock<Option<(u32, fs::File)>> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let all = fs::read("/sys/kernel/btf/vmlinux").ok()?;
        Some((std::process::id(), in_memory(c"btf", &few(&all, NAMES)?).ok()?))
    });
    // In a child that has closed what it inherited the number may be another file's.
    let (_, file) = file.as_ref().filter(|(of, _)| *of == std::process::id())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    fs::File::open(&path).is_ok().then_some(path)
}

/// A BTF of the types with these names, and of the types in them. `None`: it has something that we do not know.
fn few(all: &[u8], names: &[&str]) -> Option<Vec<u8>> {
    let btf = Btf::of(all)?;
    let names: HashSet<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    let mut kept = PrunedTypes::default();
    for id in 1..btf.at.len() as u32 {
        let of = btf.head(id)?;
        // Struct, union, enum, typedef, 64-bit enum.
        if matches!(of.kind, 4 | 5 | 6 | 8 | 19) && names.contains(essential(btf.name(of.name)?)) {
            kept.id_of(id);
        }
    }
    let mut types = Vec::new();
    let mut next = 0;
    while let Some(id) = kept.old.get(next).copied() {
        btf.copy(id, &mut kept, &mut types)?;
        next += 1;
    }
    let (types_len, strings_len) =
        (u32::try_from(types.len()).ok()?, u32::try_from(kept.strings.len()).ok()?);
    let mut out = Vec::with_capacity(HEADER + types.len() + kept.strings.len());
    out.extend(MAGIC.to_ne_bytes());
    out.extend([1, 0]);
    for word in [HEADER as u32, 0, types_len, types_len, strings_len] {
        out.extend(word.to_ne_bytes());
    }
    out.extend(types);
    out.extend(kept.strings);
    Some(out)
}

/// "name" of "name___flavour".
fn essential(name: &[u8]) -> &[u8] {
    let end = name.windows(3).position(|three| three == b"___");
    &name[..end.unwrap_or(name.len())]
}

/// The types that are kept, and the names in them.
struct PrunedTypes {
    old: Vec<u32>,
    new: HashMap<u32, u32>,
    strings: Vec<u8>,
    names: HashMap<u32, u32>,
}

impl Default for PrunedTypes {
    fn default() -> Self {
        PrunedTypes { old: Vec::new(), new: HashMap::new(), strings: vec![0], names: HashMap::from([(0, 0)]) }
    }
}

impl PrunedTypes {
    /// The number of a type among those kept; a new one is kept from now on. 0 is void.
    fn id_of(&mut self, old: u32) -> u32 {
        if old == 0 {
            return 0;
        }
        *self.new.entry(old).or_insert_with(|| {
            self.old.push(old);
            self.old.len() as u32
        })
    }

    fn name_of(&mut self, btf: &Btf<'_>, old: u32) -> Option<u32> {
        if let Some(new) = self.names.get(&old) {
            return Some(*new);
        }
        let new = u32::try_from(self.strings.len()).ok()?;
        self.strings.extend(btf.name(old)?);
        self.strings.push(0);
        self.names.insert(old, new);
        Some(new)
    }
}

/// All of the kernel's types (Documentation/bpf/btf.rst).
struct Btf<'b> {
    types: &'b [u8],
    strings: &'b [u8],
    /// Offset of each type in `types`.
    at: Vec<u32>,
}

/// The head of each type.
#[derive(Clone, Copy)]
struct Head {
    name: u32,
    info: u32,
    kind: u32,
    len: usize,
    /// A type, or a size.
    of: u32,
}

impl<'b> Btf<'b> {
    fn of(all: &'b [u8]) -> Option<Self> {
        if all.len() > MOST_BYTES || all.get(..2)? != MAGIC.to_ne_bytes() {
            return None;
        }
        let word = |at: usize| Some(word(all, at)? as usize);
        let part = |from: usize, len: usize| all.get(from..from.checked_add(len)?);
        let header = word(4)?;
        let types = part(header.checked_add(word(8)?)?, word(12)?)?;
        let strings = part(header.checked_add(word(16)?)?, word(20)?)?;
        let mut btf = Btf { types, strings, at: vec![0] };
        let mut at = 0;
        while at < types.len() {
            btf.at.push(at as u32);
            let head = btf.head(btf.at.len() as u32 - 1)?;
            at += 12 + rest(head)?;
        }
        Some(btf)
    }

    fn head(&self, id: u32) -> Option<Head> {
        let at = *self.at.get(id as usize)? as usize;
        let (name, info, of) = (word(self.types, at)?, word(self.types, at + 4)?, word(self.types, at + 8)?);
        Some(Head { name, info, kind: info >> 24 & 0x1f, len: (info & 0xffff) as usize, of })
    }

    fn name(&self, at: u32) -> Option<&'b [u8]> {
        let from = self.strings.get(at as usize..)?;
        from.split(|byte| *byte == 0).next()
    }

    /// Append a type, with the numbers of the kept types.
    fn copy(&self, id: u32, kept: &mut PrunedTypes, out: &mut Vec<u8>) -> Option<()> {
        let head = self.head(id)?;
        let from = *self.at.get(id as usize)? as usize + 12;
        let rest = self.types.get(from..from + rest(head)?)?;
        let of = match head.kind {
            PTR => 0,
            // Typedef, volatile, const, restrict, type tag.
            8..=11 | 18 => kept.id_of(head.of),
            // Numbers, structs, unions, enums: a size. Arrays and forward declarations: nothing.
            1 | 3..=7 | 16 | 19 => head.of,
            // Functions, variables and declarations about them are in no struct.
            _ => return None,
        };
        let name = kept.name_of(self, head.name)?;
        let mut put = |word: u32| out.extend(word.to_ne_bytes());
        [name, head.info, of].into_iter().for_each(&mut put);
        // Words that are names or types; the others stay as they are.
        let (each, names, types): (usize, &[usize], &[usize]) = match head.kind {
            3 => (3, &[], &[0, 1]),
            4 | 5 => (3, &[0], &[1]),
            6 => (2, &[0], &[]),
            19 => (3, &[0], &[]),
            _ => (usize::MAX, &[], &[]),
        };
        for (i, bytes) in rest.chunks_exact(4).enumerate() {
            let word = u32::from_ne_bytes(bytes.try_into().ok()?);
            put(match i % each {
                i if names.contains(&i) => kept.name_of(self, word)?,
                i if types.contains(&i) => kept.id_of(word),
                _ => word,
            });
        }
        Some(())
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Bytes of a type behind its head.
fn rest(head: Head) -> Option<usize> {
    Some(match head.kind {
        1 | 14 | 17 => 4,
        3 => 12,
        4 | 5 | 15 | 19 => 12 * head.len,
        6 | 13 => 8 * head.len,
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
