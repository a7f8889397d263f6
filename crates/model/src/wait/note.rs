//! What is to be known of a chain.

use crate::words::words;

words! {
    /// What is to be known of a chain.
    Note {
        /// They wait for each other, and none was woken.
        Deadlock "deadlock",
        /// They wait for each other.
        Cycle "cycle",
        /// Nobody was woken in the window.
        Open "open",
        /// The holder is known from a lock word that readers leave behind.
        StaleOwner "stale-owner",
        /// The lock changed hands unseen.
        HandOff "hand-off",
        /// The lock went from hand to hand during one wait.
        Convoy "convoy",
    }
}
