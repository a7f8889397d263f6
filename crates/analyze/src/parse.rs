//! Parsers: kernel text in, facts out. One file a format. No text makes them panic.

pub mod netstat;
pub mod sockstat;
pub mod softnet;

use thiserror::Error;

/// A text that is not what its format promises. The caller knows the path and adds it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("expected {wanted} in line {line:?}")]
pub struct Bad {
    wanted: &'static str,
    line: String,
}

impl Bad {
    /// `wanted` was not found in `line`.
    #[must_use]
    pub fn new(wanted: &'static str, line: &str) -> Self {
        Bad { wanted, line: line.chars().take(200).collect() }
    }
}
