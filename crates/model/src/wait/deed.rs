//! What a holder of a lock did while others waited for it.

use std::fmt;

use serde::{Serialize, Serializer};

use super::Detail;

/// What a holder of a lock did while others waited for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Deed {
    /// It had a CPU; what it did there, where samples tell.
    Ran(Detail),
    /// It was ready for a CPU.
    WaitedForCpu,
    /// It waited.
    WaitedFor(Detail),
    /// Only its release of the lock was seen, in this function.
    GaveBack { function: String },
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Deed::Ran(Detail::Nothing) => f.write_str("ran"),
            Deed::Ran(what) => write!(f, "ran {what}"),
            Deed::WaitedForCpu => f.write_str("waited for a CPU"),
            Deed::WaitedFor(what) => write!(f, "waited for {what}"),
            Deed::GaveBack { function } => write!(f, "released the lock in {function}"),
        }
    }
}

impl Serialize for Deed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
