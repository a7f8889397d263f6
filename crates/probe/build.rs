//! Compiles every `src/bpf/<name>.bpf.c` into `$OUT_DIR/<name>.skel.rs`. Writes the types that they know to `$OUT_DIR/types.rs`,
//! and the numbers that the two halves share to `$OUT_DIR/constants.rs`.

#[path = "build/constants.rs"]
mod constants;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use libbpf_cargo::SkeletonBuilder;
use libbpf_rs::btf::types::{Enum, Enum64, Struct, Typedef, Union};
use libbpf_rs::btf::{Btf, BtfType, TypeId};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let clang = clang();
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-env-changed=CLANG");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir("src/bpf").expect("src/bpf is there") {
        let source = entry.expect("src/bpf can be listed").path();
        let file = source.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        if let Some(name) = file.strip_suffix(".bpf.c") {
            let object = out.join(format!("{name}.bpf.o"));
            compile(&source, &object, &out.join(format!("{name}.skel.rs")), &clang, &arch);
            names_in(&object, &mut names);
        }
    }
    let names: Vec<String> = names.into_iter().collect();
    fs::write(out.join("constants.rs"), constants::of(Path::new("src/bpf"))).expect("the folder is ours");
    fs::write(out.join("types.rs"), format!("&{names:?}")).expect("the folder is ours");
}

/// Names of types, without a suffix after three underscores: "task_struct___before_5_14" is a task_struct.
fn names_in(object: &Path, names: &mut BTreeSet<String>) {
    let types = Btf::from_path(object).unwrap_or_else(|err| panic!("{}: {err}", object.display()));
    for id in 1..types.len() as u32 {
        let id = TypeId::from(id);
        let name = |of: BtfType<'_>| of.name().and_then(|name| name.to_str()).map(str::to_owned);
        let is_relocated = types.type_by_id::<Struct<'_>>(id).is_some()
            || types.type_by_id::<Union<'_>>(id).is_some()
            || types.type_by_id::<Enum<'_>>(id).is_some()
            || types.type_by_id::<Enum64<'_>>(id).is_some()
            || types.type_by_id::<Typedef<'_>>(id).is_some();
        if let Some(name) = types.type_by_id::<BtfType<'_>>(id).and_then(name).filter(|_| is_relocated) {
            names.insert(name.split("___").next().unwrap_or_default().to_owned());
        }
    }
}

fn compile(source: &Path, object: &Path, skeleton: &Path, clang: &Path, arch: &str) {
    let target = if arch == "x86_64" { "x86" } else { "arm64" };
    SkeletonBuilder::new()
        .source(source)
        .obj(object)
        .clang(clang)
        .clang_args([
            "-O2",
            "-Wall",
            "-Werror",
            "-mcpu=v3",
            &format!("-D__TARGET_ARCH_{target}"),
            "-Isrc/bpf",
        ])
        .build_and_generate(skeleton)
        .unwrap_or_else(|err| panic!("cannot compile {}: {err:?}", source.display()));
}

/// clang 14 crashes on some BPF sources and its objects can be refused by the 6.18 verifier: ask for 19 by name.
fn clang() -> PathBuf {
    if let Some(named) = env::var_os("CLANG") {
        return named.into();
    }
    let known = ["clang-19", "clang-20", "clang-21", "clang"];
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    known.into_iter().find(runs).expect("clang is not installed; run `make setup`").into()
}
