//! The lock chain of Go mutexes is a program of its own, written in Go.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of Go if it is not in PATH.
const USUAL: &str = "/usr/local/go/bin/go";

/// Build it into `dir` and return its path; `WHYSLOW_LOCK_CHAIN_GO` names a binary that is built already. The build fetches nothing: the
/// program needs only Go's standard library.
pub fn build(dir: &Path) -> io::Result<PathBuf> {
    if let Some(built) = std::env::var_os("WHYSLOW_LOCK_CHAIN_GO") {
        return Ok(built.into());
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("go/lock_chain.go");
    let program = dir.join("lock_chain-go");
    let go = if Path::new(USUAL).exists() { OsString::from(USUAL) } else { "go".into() };
    let done = Command::new(&go)
        .args(["build", "-o"])
        .args([&program, &source])
        .envs([("GOFLAGS", "-mod=mod"), ("GOPROXY", "off"), ("GO111MODULE", "off"), ("CGO_ENABLED", "0")])
        .env("GOTOOLCHAIN", "local")
        .env("GOCACHE", dir.join("go-cache"))
        .output()
        .map_err(|err| io::Error::new(err.kind(), format!("cannot run {}: {err}", go.to_string_lossy())))?;
    if done.status.success() {
        Ok(program)
    } else {
        Err(io::Error::other(format!("go build: {}", String::from_utf8_lossy(&done.stderr).trim())))
    }
}
