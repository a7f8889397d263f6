//! One of several: `/sys/kernel/mm/transparent_hugepage/enabled`, `queue/scheduler`, `/sys/kernel/debug/sched/preempt`.
//!
//! ```text
//! always [madvise] never
//! none voluntary (full) lazy
//! ```

use super::Bad;

/// What is set, and what could be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// In force.
    pub set: String,
    /// All that the kernel offers, the one in force too.
    pub offered: Vec<String>,
}

/// Parse the file. A file with one word only ("none" of a disk without schedulers) is set to that word.
pub fn parse(text: &str) -> Result<Choice, Bad> {
    let mut choice = Choice::default();
    for word in text.split_ascii_whitespace() {
        let inner = word.strip_prefix('[').and_then(|w| w.strip_suffix(']'));
        let inner = inner.or_else(|| word.strip_prefix('(').and_then(|w| w.strip_suffix(')')));
        choice.offered.push(inner.unwrap_or(word).to_owned());
        if let Some(set) = inner {
            choice.set = set.to_owned();
        }
    }
    match &choice.offered[..] {
        [only] if choice.set.is_empty() => choice.set.clone_from(only),
        _ => {}
    }
    if choice.set.is_empty() { Err(Bad::new("one word in brackets", text)) } else { Ok(choice) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Linux 6.12 and newer.
    pub const PREEMPT: &str = "none voluntary (full) lazy \n";
    /// Linux 5.12 to 6.11.
    const PREEMPT_BEFORE: &str = "(none) voluntary full \n";
    pub const THP: &str = "always [madvise] never\n";

    #[test]
    fn brackets_of_both_kinds_mark_the_choice() {
        assert_eq!(parse(PREEMPT).unwrap().set, "full");
        assert_eq!(parse(PREEMPT_BEFORE).unwrap().set, "none");
        assert_eq!(parse(THP).unwrap().offered, ["always", "madvise", "never"]);
        assert_eq!(parse("none\n").unwrap().set, "none");
    }

    #[test]
    fn a_torn_line_is_bad() {
        assert!(parse("always [madvi").is_err());
        assert!(parse("").is_err());
    }
}
