//! How a lock's name is known.

use std::fmt;

use serde::{Serialize, Serializer};

/// How a lock's name is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NamedBy {
    /// It has none.
    #[default]
    Number,
    /// By the function that takes it.
    CallSites,
    /// From a caller further up.
    Inferred,
    /// By the kernel's symbols.
    Symbol,
}

impl fmt::Display for NamedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            NamedBy::Number => "number",
            NamedBy::CallSites => "call sites",
            NamedBy::Inferred => "inferred",
            NamedBy::Symbol => "symbol",
        })
    }
}

impl Serialize for NamedBy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
