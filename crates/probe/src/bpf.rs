//! The BPF probes. Each is a pair of files: `<name>.bpf.c` runs in the kernel, `<name>.rs` is its user space half.

/// The skeleton that `build.rs` made of `<name>.bpf.c`, as a private module `skel`.
macro_rules! skeleton {
    ($name:literal) => {
        #[allow(clippy::all, reason = "generated")]
        #[allow(clippy::undocumented_unsafe_blocks, dead_code, non_camel_case_types, non_snake_case)]
        mod skel {
            include!(concat!(env!("OUT_DIR"), "/", $name, ".skel.rs"));
        }
    };
}

/// Numbers and enums of the kernel halves, by the file that they stand in.
#[allow(dead_code, reason = "all of them are there")]
pub(crate) mod constants {
    include!(concat!(env!("OUT_DIR"), "/constants.rs"));
}

pub mod blkio;
pub mod blocked;
pub mod calls;
pub mod churn;
pub mod connect;
mod crowd;
mod decimated;
pub mod dma_latency;
pub mod exits;
pub mod failed;
pub mod ipi;
pub mod irq;
pub mod irq_latency;
pub mod locks;
pub(crate) mod map_sizes;
mod mapped_ring;
pub mod memory;
pub mod napi;
pub mod oncpu;
pub mod own_memory;
mod percpu;
pub mod pidns;
mod populations;
pub mod programs;
mod refusal;
mod ring;
pub mod rows;
pub mod sched;
pub mod shared;
#[cfg(test)]
mod spin_tests;
pub mod stall;
pub mod tasks;
#[cfg(test)]
mod tested_c;
pub mod titles;
pub(crate) mod types;
pub mod work;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::{MapCore, MapFlags};
use std::io;
use std::time::{Duration, Instant};

use whyslow_model::Missing;

/// libbpf writes to stderr by itself. Its message is in the error, and in the reason that `refusal` keeps.
pub(crate) fn silence_libbpf() {
    refusal::listen();
}

/// Why a probe did not start, from libbpf's error and the verifier's log.
pub(crate) fn missing(what: &str, err: &libbpf_rs::Error) -> Missing {
    use libbpf_rs::ErrorKind;
    if let Some(refusal) = refusal::heard() {
        return refusal.reported(what);
    }
    if std::iter::successors(Some(err as &dyn std::error::Error), |err| err.source())
        .any(|err| err.to_string().contains(&format!("(os error {})", libc::EMFILE)))
    {
        let way_out = crate::open_files::WAY_OUT.to_owned();
        return Missing::NotAllowed { what: what.to_owned(), way_out };
    }
    let rights = crate::rights::Rights::own();
    match err.kind() {
        // A seccomp filter may answer "no such call" for a call that it does not know.
        ErrorKind::Unsupported if rights.is_filtered() => {
            Missing::NotAllowed { what: what.to_owned(), way_out: rights.way_out_for_bpf() }
        }
        ErrorKind::PermissionDenied => {
            Missing::NotAllowed { what: what.to_owned(), way_out: rights.way_out_for_bpf() }
        }
        _ => Missing::broken(what, format!("{err:#}")),
    }
}

/// Whether this kernel has a tracepoint; true if that cannot be known. Reads all of BTF (25 ms): only call it after a probe did not
/// start.
pub(crate) fn has_tracepoint(name: &str) -> bool {
    let Ok(btf) = Btf::from_vmlinux() else { return true };
    btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}")).is_some()
}

/// The kernel's bytes as a struct. They come unaligned, so they are copied.
pub(crate) fn value<T: plain::Plain + Default>(bytes: &[u8]) -> T {
    let mut value = T::default();
    plain::copy_from_bytes(&mut value, bytes).expect("the kernel half writes whole structs");
    value
}

/// The stack of this number in a stack map, innermost first; `None`: there is none (negative numbers are errors).
pub(crate) fn stack(map: &impl MapCore, id: i32) -> Option<Vec<u64>> {
    let id = u32::try_from(id).ok()?;
    let bytes = map.lookup(&id.to_ne_bytes(), MapFlags::ANY).ok()??;
    let words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes));
    Some(words.take_while(|address| *address != 0).collect())
}

/// Everything that an iterator of the probe `what` returns.
pub(crate) fn walk(what: &str, link: &libbpf_rs::Link) -> Result<Vec<u8>, Missing> {
    walk_within(what, link, Duration::MAX)
}

/// The same, but it fails when the walk takes longer than `patience`.
pub(crate) fn walk_within(
    what: &str,
    link: &libbpf_rs::Link,
    patience: Duration,
) -> Result<Vec<u8>, Missing> {
    let mut iter = libbpf_rs::Iter::new(link).map_err(|err| missing(what, &err))?;
    read_through(what, &mut iter, patience)
}

/// An iterator returns EAGAIN after a million objects for which it printed nothing (kernel/bpf/bpf_iter.c, MAX_ITER_OBJECTS). The next
/// read continues from there.
fn read_through(what: &str, from: &mut dyn io::Read, patience: Duration) -> Result<Vec<u8>, Missing> {
    let began = Instant::now();
    let (mut bytes, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(n) => bytes.extend_from_slice(chunk.get(..n).unwrap_or_default()),
            Err(err) if matches!(err.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(err) => return Err(Missing::broken(what, err)),
        }
        if began.elapsed() > patience {
            return Err(Missing::skipped(what, "the walk took too long"));
        }
    }
}

/// Delete the rows of a map of sums, because the window begins. An addition that runs at this very moment is lost, or counts for the
/// next row in that place.
pub(crate) fn clear(map: &libbpf_rs::MapMut<'_>) {
    for key in map.keys() {
        let _ = map.delete(&key); // gone already
    }
}

/// A C string in a fixed field. Bytes that are not UTF-8 are replaced; control characters stay (the report escapes them).
pub(crate) fn text(field: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|c| *c as u8).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Results of single reads, one after another, then the end.
    struct Answers(Vec<io::Result<&'static [u8]>>);

    impl io::Read for Answers {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            self.0.remove(0).map(|mut bytes| bytes.read(into).unwrap())
        }
    }

    #[test]
    fn an_iterator_that_has_passed_a_million_objects_is_read_on() {
        let again = || Err(io::ErrorKind::WouldBlock.into());
        let read = |answers| read_through("files", &mut Answers(answers), Duration::from_secs(9));
        assert_eq!(read(vec![again(), Ok(&b"ab"[..]), again(), again(), Ok(&b"c"[..])]), Ok(b"abc".to_vec()));
        let failed = read(vec![Ok(&b"ab"[..]), Err(io::ErrorKind::InvalidData.into())]);
        assert_eq!(failed, Err(Missing::broken("files", "invalid data")));
        let late = read_through("files", &mut Answers(vec![again(), again()]), Duration::ZERO);
        assert_eq!(late, Err(Missing::skipped("files", "the walk took too long")));
    }

    /// Before v6.4 task storage, and in all kernels a map that is not preallocated, allocates when it inserts. Under a run queue's lock that
    /// can deadlock.
    #[test]
    fn no_object_with_a_hook_in_the_scheduler_allocates() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bpf");
        let mut hooked = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if !path.to_string_lossy().ends_with(".bpf.c") {
                continue;
            }
            let source = fs::read_to_string(&path).unwrap();
            if !["tp_btf/sched_", "tp_btf/contention_"].iter().any(|hook| source.contains(hook)) {
                continue;
            }
            hooked += 1;
            for allocates in ["F_CREATE", "BPF_F_NO_PREALLOC", "BPF_MAP_TYPE_TASK_STORAGE"] {
                assert!(!source.contains(allocates), "{}: {allocates}", path.display());
            }
        }
        assert!(hooked >= 2, "the scheduler and lock probes have such hooks");
    }

    /// docs/tables.md has the text that a report gives for each full table.
    #[test]
    fn every_table_that_can_be_full_is_in_the_documents() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let reported = fs::read_to_string(folder.join("../../docs/tables.md")).unwrap();
        let words: Vec<&str> = reported.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let mut tables = 0;
        for entry in fs::read_dir(folder.join("src/bpf")).unwrap() {
            let source = fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
            // Definitions of maps end so. A map with `max_entries, 1` that is per CPU, or only makes a type known, is never full.
            for (body, _) in source.match_indices(" SEC(\".maps\")").map(|(at, _)| source.split_at(at)) {
                let (fields, name) = body.rsplit_once("} ").unwrap_or((body, ""));
                let fields = fields.rsplit_once("struct {").map_or(fields, |(_, fields)| fields);
                let is_small =
                    ["max_entries, 1)", "max_entries, 2)"].iter().any(|small| fields.contains(small));
                if name.is_empty() || name.contains(' ') || is_small {
                    continue;
                }
                assert!(words.contains(&name), "{name} is not in docs/tables.md");
                tables += 1;
            }
        }
        assert!(tables > 30, "{tables}");
    }
}
