//! Patterns of files: how a row of the table of files names all that are its.

/// What may be tried for one question, whatever the recording says that is asked: it is not to be trusted.
pub(crate) const STEPS: usize = 100_000;
/// Longer ones are no row's.
const LONGEST: usize = 4096;
/// Things whose names are paths: cgroups of a hierarchy.
const PATHS: [&[u8]; 2] = [b"v1", b"v2"];

/// Whether `pattern` names `path`: `{a,b}` stands for either word, `*` for any characters of one component, `{name}` for one
/// of the things of that name. `left`: steps that may still be tried.
pub(crate) fn names(pattern: &str, path: &str, left: &mut usize) -> bool {
    let is_one = pattern.len() <= LONGEST && pattern.contains(['{', '*']);
    is_one && matches(pattern.as_bytes(), path.as_bytes(), left)
}

fn spent(left: &mut usize, steps: usize) -> bool {
    let fewer = left.checked_sub(steps);
    *left = fewer.unwrap_or(0);
    fewer.is_none()
}

fn matches(pattern: &[u8], path: &[u8], left: &mut usize) -> bool {
    if spent(left, 1) {
        return false;
    }
    match pattern {
        [] => path.is_empty(),
        [b'*', rest @ ..] => any(rest, path, left, |c| c != b'/'),
        [b'{', rest @ ..] => {
            let end = rest.iter().position(|c| *c == b'}');
            if spent(left, end.unwrap_or(rest.len())) {
                return false;
            }
            let Some(end) = end else { return literal(b'{', rest, path, left) };
            let (words, rest) =
                (rest.get(..end).unwrap_or_default(), rest.get(end + 1..).unwrap_or_default());
            if words.contains(&b',') {
                return words.split(|c| *c == b',').any(|word| {
                    path.strip_prefix(word.trim_ascii()).is_some_and(|path| matches(rest, path, left))
                });
            }
            match PATHS.iter().any(|begin| words.starts_with(begin)) {
                true => any(rest, path, left, |_| true),
                false => any(rest, path, left, |c| c != b'/'),
            }
        }
        [c, rest @ ..] => literal(*c, rest, path, left),
    }
}

fn literal(c: u8, pattern: &[u8], path: &[u8], left: &mut usize) -> bool {
    path.split_first().is_some_and(|(first, path)| *first == c && matches(pattern, path, left))
}

/// After any number of characters that `may` stand there.
fn any(pattern: &[u8], path: &[u8], left: &mut usize, may: fn(u8) -> bool) -> bool {
    let free = path.iter().take_while(|c| may(**c)).count();
    (0..=free).any(|at| matches(pattern, path.get(at..).unwrap_or_default(), left))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_named(pattern: &str, path: &str) -> bool {
        names(pattern, path, &mut STEPS.clone())
    }

    #[test]
    fn a_row_names_its_files_and_no_other() {
        let netns = "netns/{netns}/net/{snmp,netstat,sockstat,dev}";
        assert!(is_named(netns, "netns/4026531840/net/snmp") && is_named(netns, "netns/1/net/dev"));
        assert!(!is_named(netns, "netns/1/net/snmp6") && !is_named(netns, "proc/net/snmp"));
        let limits = "{v1:memory}/{memory.limit_in_bytes, memory.swappiness}";
        assert!(is_named(limits, "sys/fs/cgroup/memory/a/b/memory.swappiness"));
        assert!(is_named("sys/x*/y", "sys/x12/y") && !is_named("sys/x*/y", "sys/x1/2/y"));
        assert!(!is_named("proc/{pid}/io", "proc/pressure/x/io") && is_named("proc/{pid}/io", "proc/7/io"));
        assert!(!is_named("proc/stat", "proc/stat"), "a name is no pattern: it is asked for as it is");
    }

    #[test]
    fn no_pattern_takes_long() {
        let mut left = STEPS;
        assert!(!names(&format!("{}b", "*{v1}".repeat(40)), &"a".repeat(200), &mut left));
        assert_eq!(left, 0);
        assert!(!is_named(&format!("*{{{}", "y".repeat(5_000)), "{"), "too long");
        for torn in ["{", "}", "{a", "*", "{}", "{,}"] {
            is_named(torn, "a{}");
        }
    }
}
