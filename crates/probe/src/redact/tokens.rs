//! Words that look like secrets: keys in hex or base64, web tokens.

use super::HIDDEN;

/// Shorter words are names, versions, dates. (A git commit has 40 digits, a key of 128 bits 32.)
const HEX: usize = 32;
/// The same for words with upper case, lower case and digits.
const MIXED: usize = 24;
/// The same for words with slashes, which paths have, too.
const WITH_SLASHES: usize = 32;
/// The same for words with letters and digits by turns, of any case.
const SHUFFLED: usize = 20;
const TURNS: usize = 5;

/// Prefixes of the keys of known services.
const BEGINS: [&str; 13] = [
    "eyJ",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xox",
    "sk-",
    "sk_",
    "AKIA",
    "ASIA",
];
/// The least length of the rest of such a key.
const AFTER: usize = 12;

/// The word with each part hidden that looks like a secret.
pub(super) fn hide(word: &str) -> String {
    let wide = runs(word, |c| is_letter(c) || c == '/', is_key_with_slashes);
    runs(&wide, is_letter, is_key)
}

/// The characters of base64, in either alphabet, except the slash.
fn is_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '_' | '-' | '=')
}

/// Hides the runs of such characters that `is_key` recognizes as keys.
fn runs(word: &str, is_part: fn(char) -> bool, is_key: fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(word.len());
    let mut rest = word;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        out.push_str(if is_key(run) { HIDDEN } else { run });
        let other = after.find(is_part).unwrap_or(after.len());
        let (between, next) = after.split_at(other);
        out.push_str(between);
        rest = next;
    }
    out
}

fn is_key_with_slashes(run: &str) -> bool {
    run.contains('/') && !run.starts_with('/') && run.len() >= WITH_SLASHES && is_mixed(run)
}

fn is_key(run: &str) -> bool {
    let known = BEGINS.iter().any(|begin| run.strip_prefix(begin).is_some_and(|key| key.len() >= AFTER));
    let parts = run.split(['-', '_', '+', '=']);
    known || (run.len() >= MIXED && is_mixed(run)) || parts.into_iter().any(is_hex_or_shuffled)
}

fn is_mixed(run: &str) -> bool {
    let has = |of: fn(&u8) -> bool| run.bytes().any(|byte| of(&byte));
    has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase) && has(u8::is_ascii_digit)
}

fn is_hex_or_shuffled(part: &str) -> bool {
    let bytes = part.as_bytes();
    let is_hex = bytes.len() >= HEX && bytes.iter().all(u8::is_ascii_hexdigit);
    let turns =
        bytes.windows(2).filter(|two| matches!(two, [a, b] if a.is_ascii_digit() != b.is_ascii_digit()));
    is_hex || (bytes.len() >= SHUFFLED && turns.count() >= TURNS)
}
