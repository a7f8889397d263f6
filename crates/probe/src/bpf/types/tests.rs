use std::path::Path;
use std::sync::LazyLock;

use libbpf_rs::btf::types::{Array, Struct, Typedef};
use libbpf_rs::btf::{BtfType, HasSize as _};
use proptest::prelude::*;

use super::*;

fn vmlinux() -> Vec<u8> {
    fs::read("/sys/kernel/btf/vmlinux").unwrap()
}

/// As libbpf reads it.
fn parsed(bytes: &[u8]) -> libbpf_rs::btf::Btf<'static> {
    let file = in_memory(c"test", bytes).unwrap();
    libbpf_rs::btf::Btf::from_path(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))).unwrap()
}

/// Name, offset in bits and size of each member.
fn members(of: &Struct<'_>) -> Vec<(String, String)> {
    let name = |member: &libbpf_rs::btf::types::StructMember<'_>| {
        member.name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    };
    of.iter().map(|member| (name(&member), format!("{:?}", member.attr))).collect()
}

#[test]
fn root_this_kernels_structs_are_laid_out_as_all_of_them_say() {
    let all = vmlinux();
    let few = few(&all, NAMES).unwrap();
    assert!(few.len() * 10 < all.len(), "{} of {}", few.len(), all.len());
    let (few, all) = (parsed(&few), parsed(&all));
    let mut compared = 0;
    for name in NAMES {
        let [was, is] = [&all, &few].map(|btf| btf.type_by_name::<Struct<'_>>(name));
        match (was, is) {
            (Some(was), Some(is)) => {
                assert_eq!((members(&was), was.size()), (members(&is), is.size()), "{name}");
                compared += 1;
            }
            (was, is) => assert_eq!(was.is_some(), is.is_some(), "{name}"),
        }
    }
    assert!(compared > 50, "{compared} of {}", NAMES.len());
    let task = few.type_by_name::<Struct<'_>>("task_struct").unwrap();
    let comm = task.iter().find(|member| member.name.is_some_and(|name| name == "comm")).unwrap();
    let comm: Array<'_> = few.type_by_id(comm.ty).unwrap();
    assert_eq!(comm.capacity(), 16);
    assert!(few.type_by_name::<Typedef<'_>>("u64").is_some(), "what is in them is kept, too");
    assert!((1..few.len() as u32).all(|id| few.type_by_id::<BtfType<'_>>(id.into()).is_some()));
}

/// Kinds of relocations in an object (Documentation/bpf/btf.rst, .BTF.ext; a section of ELF64 by its name).
fn relocations(object: &[u8]) -> Vec<u32> {
    let long = |at: usize| u64::from_ne_bytes(object[at..at + 8].try_into().unwrap()) as usize;
    let short = |at: usize| u16::from_ne_bytes(object[at..at + 2].try_into().unwrap()) as usize;
    let (sections, size, count, names) = (long(40), short(58), short(60), short(62));
    let header = |section: usize| sections + section * size;
    let name = |section: usize| {
        let at = long(header(names) + 24) + word(object, header(section)).unwrap() as usize;
        object[at..].split(|byte| *byte == 0).next().unwrap()
    };
    let ext = (0..count).find(|section| name(*section) == b".BTF.ext").expect("it is relocated");
    let ext = &object[long(header(ext) + 24)..][..long(header(ext) + 32)];
    let at = |place: usize| word(ext, place).unwrap() as usize;
    let begin = at(4) + at(24);
    let (end, each) = (begin + at(28), at(begin));
    let (mut kinds, mut place) = (Vec::new(), begin + 4);
    while place < end {
        let records = at(place + 4);
        place += 8;
        kinds.extend((0..records).map(|record| at(place + record * each + 12) as u32));
        place += records * each;
    }
    kinds
}

/// An object that reads the kernel's own number of a type (7) would get ours; an object that compares whole types (12) follows pointers.
#[test]
fn objects_that_ask_for_more_are_relocated_against_all_types() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bpf");
    let (mut few, mut whole) = (0, 0);
    for entry in fs::read_dir(here).unwrap() {
        let source = entry.unwrap().path();
        let name = source.file_stem().unwrap().to_str().unwrap();
        let Ok(object) = fs::read(Path::new(env!("OUT_DIR")).join(format!("{name}.bpf.o"))) else { continue };
        if source.extension().is_none_or(|ending| ending != "rs") {
            continue;
        }
        let asks = relocations(&object).iter().any(|kind| matches!(kind, 7 | 12));
        let is_few = fs::read_to_string(&source).unwrap().contains("types::builder");
        assert!(!(asks && is_few), "{name}");
        (few, whole) = (few + usize::from(is_few), whole + usize::from(asks));
    }
    assert!(few > 5 && whole > 2, "{few} and {whole}");
}

#[test]
fn a_name_has_its_flavour_behind_three_underlines() {
    for (name, is) in [("rq___old", "rq"), ("rq", "rq"), ("__rq", "__rq"), ("", ""), ("___a", "")] {
        assert_eq!(essential(name.as_bytes()), is.as_bytes());
    }
}

#[test]
fn root_torn_btf_is_rejected() {
    let all = vmlinux();
    for len in [0, 1, 2, 23, 24, 25, 1000, all.len() / 2, all.len() - 1] {
        assert_eq!(few(&all[..len], NAMES), None, "{len}");
    }
    assert_eq!(few(&[0; 4096], NAMES), None);
}

proptest! {
    // Each parses all of the kernel's types.
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn root_no_bytes_make_it_panic(places in prop::collection::vec((0.0..1.0, any::<[u8; 4]>()), 1..40)) {
        static ALL: LazyLock<Vec<u8>> = LazyLock::new(vmlinux);
        let mut all = ALL.clone();
        for (place, with) in places {
            let at = 24 + (place * (all.len() - 28) as f64) as usize;
            all[at..at + 4].copy_from_slice(&with);
        }
        few(&all, NAMES);
    }
}

proptest! {
    #[test]
    fn no_header_makes_it_panic(words: [u32; 5], rest: Vec<u8>) {
        let mut all = [MAGIC.to_ne_bytes(), [1, 0]].concat();
        all.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        all.extend(rest);
        few(&all, &["x", ""]);
    }
}
