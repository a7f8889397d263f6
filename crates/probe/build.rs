//! Compiles every `src/bpf/<name>.bpf.c` into `$OUT_DIR/<name>.skel.rs`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let clang = clang();
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    for entry in fs::read_dir("src/bpf").expect("src/bpf is there") {
        let source = entry.expect("src/bpf can be listed").path();
        let file = source.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        if let Some(name) = file.strip_suffix(".bpf.c") {
            compile(&source, &out.join(format!("{name}.skel.rs")), &clang, &arch);
        }
    }
}

fn compile(source: &Path, skeleton: &Path, clang: &Path, arch: &str) {
    let target = if arch == "x86_64" { "x86" } else { "arm64" };
    SkeletonBuilder::new()
        .source(source)
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
