//! Names for addresses, before a recording is closed: kernel, modules, user code, JIT maps.
//!
//! Raw kernel addresses never leave this file. User code without a symbol is reported as `module+0xoffset`
//! with the start of its build id, so that it can still be looked up on another machine.

use std::collections::HashMap;
use std::ops::Range;

use blazesym::normalize::{Normalizer, UserMeta};
use blazesym::symbolize::source::{Kernel, Process, Source};
use blazesym::symbolize::{Input, Sym, Symbolized, Symbolizer};
use blazesym::{MaybeDefault, Pid};

use crate::kallsyms::Kallsyms;

/// A frame that has no name.
const UNKNOWN: &str = "[unknown]";

/// Names kernel addresses; keeps the names that it has looked up.
pub struct KernelNames {
    symbolizer: Symbolizer,
    source: Source<'static>,
    /// Where BPF programs lie. Programs loaded after the symbols were read (ours) are not among them: such an address would get the name
    /// of the next symbol below.
    programs: Vec<Range<u64>>,
    known: HashMap<u64, Vec<String>>,
}

impl KernelNames {
    /// Look up names in these symbols.
    #[must_use]
    pub fn from(symbols: &Kallsyms) -> Self {
        let kallsyms = symbols.path().map_or(MaybeDefault::None, MaybeDefault::Some);
        // Only kallsyms: a search for a vmlinux file would read the disk of a host that may be slow.
        let kernel = Kernel { kallsyms, vmlinux: MaybeDefault::None, debug_syms: false, ..Kernel::default() };
        KernelNames {
            symbolizer: Symbolizer::builder().enable_code_info(false).build(),
            source: Source::Kernel(kernel),
            programs: Vec::new(),
            known: HashMap::new(),
        }
    }

    /// Code in this range belongs to BPF programs.
    #[must_use]
    pub fn without(mut self, programs: Vec<Range<u64>>) -> Self {
        self.programs = programs;
        self
    }

    /// The names of a kernel stack, innermost first. Frames of BPF programs (ours) are left out.
    pub fn stack(&mut self, addresses: &[u64]) -> Vec<String> {
        let fresh: Vec<u64> = addresses.iter().copied().filter(|a| !self.known.contains_key(a)).collect();
        if !fresh.is_empty() {
            let named = self.symbolizer.symbolize(&self.source, Input::AbsAddr(&fresh));
            for (at, address) in fresh.iter().enumerate() {
                let one = named.as_ref().ok().and_then(|all| all.get(at));
                let names =
                    one.and_then(Symbolized::as_sym).map_or_else(|| vec![UNKNOWN.to_owned()], kernel_name);
                self.known.insert(*address, names);
            }
        }
        let is_program = |a: &u64| self.programs.iter().any(|program| program.contains(a));
        let others = addresses.iter().filter(|a| !is_program(a));
        others.filter_map(|a| self.known.get(a)).flatten().cloned().collect()
    }
}

fn kernel_name(sym: &Sym<'_>) -> Vec<String> {
    if sym.name.starts_with("bpf_prog_") || sym.name.starts_with("bpf_trace_run") {
        return Vec::new();
    }
    match sym.module.as_deref().and_then(|m| m.to_str()).filter(|m| !m.starts_with('/') && *m != "[kernel]") {
        Some(module) => vec![format!("{} [{}]", sym.name, module.trim_matches(['[', ']']))],
        None => vec![sym.name.to_string()],
    }
}

/// User code that has a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// Its frames, innermost first.
    pub frames: Vec<String>,
    /// The file it is mapped from; "" where that is not known (just-in-time compiled code).
    pub module: String,
}

/// Names user addresses; a file that processes share (libc) is read once.
pub struct UserNamer {
    symbolizer: Symbolizer,
    normalizer: Normalizer,
}

impl Default for UserNamer {
    fn default() -> Self {
        let symbolizer = Symbolizer::builder().enable_code_info(false).build();
        UserNamer { symbolizer, normalizer: Normalizer::new() }
    }
}

impl UserNamer {
    /// The names of the user code of one process, by address. An address without a name is missing from the map.
    ///
    /// Reads /proc/PID/maps, which takes the process's mmap_lock: only call it where waiting does no harm.
    #[must_use]
    pub fn names(&self, tgid: u32, addresses: &[u64]) -> HashMap<u64, Vec<String>> {
        let mut names = HashMap::new();
        let source = Source::Process(Process::new(Pid::from(tgid)));
        if let Ok(all) = self.symbolizer.symbolize(&source, Input::AbsAddr(addresses)) {
            for (address, one) in addresses.iter().zip(&all) {
                if let Some(sym) = one.as_sym() {
                    names.insert(*address, with_inlined(sym));
                }
            }
        }
        let unnamed: Vec<u64> = addresses.iter().copied().filter(|a| !names.contains_key(a)).collect();
        if !unnamed.is_empty() {
            names.extend(self.places(tgid, &unnamed));
        }
        names
    }

    /// File and offset of each address that lies in a file.
    fn places(&self, tgid: u32, unnamed: &[u64]) -> HashMap<u64, Vec<String>> {
        let mut names = HashMap::new();
        let Ok(places) = self.normalizer.normalize_user_addrs(Pid::from(tgid), unnamed) else { return names };
        for (address, (offset, meta)) in unnamed.iter().zip(&places.outputs) {
            if let Some(UserMeta::Elf(elf)) = places.meta.get(*meta) {
                let file = elf.path.file_name().unwrap_or_default().to_string_lossy();
                let id: String = elf
                    .build_id
                    .iter()
                    .flat_map(|id| id.iter())
                    .take(6)
                    .map(|b| format!("{b:02x}"))
                    .collect();
                names.insert(*address, vec![format!("{file}+{offset:#x} (build id {id})")]);
            }
        }
        names
    }
}

/// Inlined functions are reported as frames of their own, innermost first.
fn with_inlined(sym: &Sym<'_>) -> Vec<String> {
    let mut names: Vec<String> = sym.inlined.iter().rev().map(|f| f.name.to_string()).collect();
    names.push(sym.name.to_string());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_code_of_this_process() {
        let here = names_code_of_this_process as *const () as u64 + 4;
        let names = UserNamer::default().names(std::process::id(), &[here]);
        let name = names.get(&here).expect("the test binary has a symbol or an offset");
        let name = name.join(" ");
        assert!(name.contains("names_code_of_this_process") || name.contains("+0x"), "{name}");
    }

    #[test]
    fn code_of_programs_is_left_out() {
        let mut names = KernelNames::from(&Kallsyms::default()).without(vec![0x1000..0x1100, 0x2000..0x2010]);
        assert_eq!(names.stack(&[0x1000, 0x10ff, 0x1100, 0x2000]), [UNKNOWN]);
    }

    #[test]
    fn root_names_kernel_code() {
        let kallsyms = std::fs::read_to_string("/proc/kallsyms").unwrap();
        let line = kallsyms.lines().find(|l| l.ends_with(" schedule")).expect("every kernel can schedule");
        let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        assert_eq!(KernelNames::from(&Kallsyms::read()).stack(&[address + 1]), ["schedule"]);
    }
}
