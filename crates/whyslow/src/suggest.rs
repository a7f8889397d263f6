//! "Did you mean": the known name that is nearest to an unknown name.

/// Two names with a likeness below this are different names. "lockwait" and "lock-wait" are alike: the dash does not count. "locks"
/// and "lock-wait" have a likeness of one half.
const ALIKE: f64 = 0.7;

/// The known name that is nearest to `asked`: by its letters, else by its words.
pub fn suggest<'n>(asked: &str, known: impl Iterator<Item = &'n str> + Clone) -> Option<&'n str> {
    let letters = letters(asked);
    let likeness = |name: &str| strsim::normalized_damerau_levenshtein(&letters, &self::letters(name));
    let by_letters = known.clone().map(|name| (name, likeness(name))).filter(|(_, alike)| *alike >= ALIKE);
    let by_letters = by_letters.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name);
    let by_words = || {
        let shared = known.map(|name| (name, shared(name, asked))).filter(|(_, shared)| *shared > 0);
        shared.max_by_key(|(_, shared)| *shared).map(|(name, _)| name)
    };
    by_letters.or_else(by_words)
}

fn letters(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The number of words that both names have.
fn shared(name: &str, asked: &str) -> usize {
    let asked: Vec<_> = asked.split(['-', '_', ' ']).collect();
    name.split('-').filter(|word| asked.contains(word)).count()
}

#[cfg(test)]
mod tests {
    use whyslow_analyze::rules::ALL;

    use super::suggest;

    fn rule(asked: &str) -> Option<&'static str> {
        suggest(asked, ALL.iter().map(|rule| rule.id))
    }

    #[test]
    fn a_rule_is_known_without_its_dash_and_with_letters_changed() {
        for (asked, meant) in [
            ("lockwait", "lock-wait"),
            ("Lock_Wait", "lock-wait"),
            ("lock-wiat", "lock-wait"),
            ("cpuqouta", "cpu-quota"),
            ("steel", "steal"),
            ("memory_limits", "memory-limit"),
            ("irqoff", "irqs-off"),
        ] {
            assert_eq!(rule(asked), Some(meant), "{asked}");
        }
    }

    #[test]
    fn where_letters_say_nothing_words_do() {
        assert_eq!((rule("quota"), rule("full")), (Some("cpu-quota"), Some("full-thread")));
    }

    #[test]
    fn name_unlike_any_rule_gets_no_suggestion() {
        for asked in ["zzz", "", "-", "network"] {
            assert_eq!(rule(asked), None, "{asked}");
        }
    }

    #[test]
    fn every_rule_is_most_like_itself() {
        assert!(ALL.iter().all(|known| rule(known.id) == Some(known.id)));
    }
}
