//! Goroutines that wait for an atomic: a program of its own, written in Go.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::spinners::outside;

/// Build it. Nothing is fetched: it needs Go's own library alone.
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
