//! Builds the sched_ext scheduler, lab/sched_ext: one object for all kernels.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use crate::{Trouble, cache, child, place};

/// Its source and its object.
const SOURCE: &str = "line.bpf.c";
const OBJECT: &str = "line.bpf.o";
/// The same compilers as for whyslow's own programs (crates/probe/build.rs); clang 14 would do here, but is not installed.
const COMPILERS: [&str; 3] = ["clang-19", "clang-20", "clang-21"];
/// The build takes a tenth of a second.
const BUILD: Duration = Duration::from_secs(60);

/// The object file: from the cache, or built.
pub fn build() -> Result<PathBuf, Trouble> {
    let what = "build the sched_ext scheduler";
    let trouble = |error: io::Error| Trouble::new(what, error);
    let source = place::project()?.join("lab/sched_ext").join(SOURCE);
    let version = cache::name_of(std::slice::from_ref(&source), &COMPILERS).map_err(trouble)?;
    let built = cache::directory(&place::cache("sched_ext")?, &version, |dir| {
        let mut tried = COMPILERS.iter().map(|compiler| compile(what, compiler, &source, &dir.join(OBJECT)));
        // The first one that is there; if there is none, the error of the first.
        let first = tried.next().unwrap_or(Ok(()));
        first.or_else(|why| tried.find(Result::is_ok).unwrap_or(Err(why)))
    })?;
    Ok(built.join(OBJECT))
}

fn compile(what: &str, compiler: &str, source: &Path, object: &Path) -> Result<(), Trouble> {
    let mut clang = Command::new(compiler);
    // Debian has <asm/types.h> in the directory of the architecture, which clang does not search when it builds for BPF.
    clang.args(["-g", "-O2", "-Wall", "-Werror", "-target", "bpf", "-D__TARGET_ARCH_x86", "-mcpu=v3"]);
    clang.args(["-I", "/usr/include/x86_64-linux-gnu", "-c"]).arg(source).arg("-o").arg(object);
    child::output(what, &mut clang, BUILD).map(drop)?;
    fs::metadata(object).map(drop).map_err(|error| Trouble::new(what, error))
}
