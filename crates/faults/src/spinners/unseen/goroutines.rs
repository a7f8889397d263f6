//! Goroutines that wait for an atomic: a program of its own, written in Go.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::spinners::outside;

/// Build it. The build fetches nothing: the program needs only Go's standard library.
pub fn build(program: &Path, dir: &Path) -> io::Result<()> {
    outside::build(
        Command::new(outside::find("go")?)
            .args(["build", "-o"])
            .arg(program)
            .arg(outside::source("src/spinners/unseen/pairs.go"))
            .envs([("GOFLAGS", "-mod=mod"), ("GOPROXY", "off"), ("GO111MODULE", "off"), ("CGO_ENABLED", "0")])
            .env("GOTOOLCHAIN", "local")
            .env("GOCACHE", dir.join("go-cache")),
    )
}
