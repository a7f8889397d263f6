//! Remarks on a chain.

use crate::words::words;

words! {
    /// A remark on a chain.
    Note {
        /// The tasks wait for each other, and none was woken.
        Deadlock "deadlock",
        /// The tasks wait for each other.
        Cycle "cycle",
        /// No wakeup came in the window.
        Open "open",
        /// The holder is known from a lock word that readers leave behind.
        StaleOwner "stale-owner",
        /// The lock changed hands between two samples of its owner.
        HandOff "hand-off",
        /// The lock had several holders during one wait.
        Convoy "convoy",
    }
}
