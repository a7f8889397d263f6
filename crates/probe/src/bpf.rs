//! The BPF probes. Each is a pair of files: `<name>.bpf.c` runs in the kernel, `<name>.rs` speaks with it.

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

pub mod blkio;
pub mod calls;
pub mod connect;
pub mod ipi;
pub mod irq;
pub mod late;
pub mod latency;
pub mod locks;
pub mod memory;
pub mod napi;
pub mod oncpu;
pub mod programs;
mod refusal;
pub mod rows;
pub mod sched;
pub mod shared;
#[cfg(test)]
mod spin_tests;
pub mod tasks;
pub mod work;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use std::io::Read as _;

use whyslow_model::Missing;

/// libbpf writes to stderr by itself. What it would say is in the error, and in the reason that is heard here.
pub(crate) fn hush() {
    refusal::listen();
}

/// Why a probe did not start, from libbpf's error, and from what the verifier said to it.
pub(crate) fn missing(what: &str, err: &libbpf_rs::Error) -> Missing {
    use libbpf_rs::ErrorKind;
    if let Some(refusal) = refusal::heard() {
        return refusal.told(what);
    }
    match err.kind() {
        ErrorKind::PermissionDenied => Missing::NotAllowed {
            what: what.to_owned(),
            way_out: "run as root, or grant CAP_BPF and CAP_PERFMON".to_owned(),
        },
        _ => Missing::broken(what, format!("{err:#}")),
    }
}

/// Whether this kernel has a tracepoint; true if that cannot be told. Reads all of BTF: 25 ms, to be asked when a probe
/// did not start.
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

/// All that an iterator of the probe `what` has to tell.
pub(crate) fn walk(what: &str, link: &libbpf_rs::Link) -> Result<Vec<u8>, Missing> {
    let mut bytes = Vec::new();
    let mut iter = libbpf_rs::Iter::new(link).map_err(|err| missing(what, &err))?;
    iter.read_to_end(&mut bytes).map_err(|err| Missing::broken(what, err))?;
    Ok(bytes)
}

/// Take all that waits in a ring buffer.
pub(crate) fn consume(ring: &dyn libbpf_rs::MapCore, mut note: impl FnMut(&[u8])) -> libbpf_rs::Result<()> {
    let mut builder = libbpf_rs::RingBufferBuilder::new();
    builder.add(ring, move |record: &[u8]| {
        note(record);
        0
    })?;
    builder.build()?.consume()
}

/// Forget what a map of sums holds: the window begins. Who adds to a row at this very moment adds to no row, or to the next
/// one that takes its place.
pub(crate) fn clear(map: &libbpf_rs::MapMut<'_>) {
    use libbpf_rs::MapCore as _;
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

    /// Before v6.4 task storage, and in all kernels a map that is not preallocated, allocates where it inserts: under a
    /// run queue's lock that can deadlock.
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
}
