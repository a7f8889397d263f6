use std::path::Path;

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

#[test]
fn a_name_has_its_flavour_behind_three_underlines() {
    for (name, is) in [("rq___old", "rq"), ("rq", "rq"), ("__rq", "__rq"), ("", ""), ("___a", "")] {
        assert_eq!(essential(name.as_bytes()), is.as_bytes());
    }
}

#[test]
fn root_whatever_is_torn_ends() {
    let all = vmlinux();
    for len in [0, 1, 2, 23, 24, 25, 1000, all.len() / 2, all.len() - 1] {
        assert_eq!(few(&all[..len], NAMES), None, "{len}");
    }
    assert_eq!(few(&[0; 4096], NAMES), None);
}

proptest! {
    #[test]
    fn root_no_bytes_make_it_panic(at in 24usize..200_000, with: [u8; 4]) {
        let mut all = vmlinux();
        all[at..at + 4].copy_from_slice(&with);
        few(&all, NAMES);
    }

    #[test]
    fn no_header_makes_it_panic(words: [u32; 5], rest: Vec<u8>) {
        let mut all = [MAGIC.to_ne_bytes(), [1, 0]].concat();
        all.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        all.extend(rest);
        few(&all, &["x", ""]);
    }
}
