//! How a lock's name is known.

use crate::words::words;

words! {
    /// How a lock's name is known.
    #[derive(Default)]
    NamedBy {
        /// It has none.
        #[default]
        Number "number",
        /// By the function that takes it.
        CallSites "call sites",
        /// From a caller further up.
        Inferred "inferred",
        /// By the kernel's symbols.
        Symbol "symbol",
    }
}
