//! Patterns of files: how a row of the table of files names all that are its.

/// Steps that may be tried: a pattern is ours, and the recording that holds it is not to be trusted.
const STEPS: usize = 10_000;

/// Whether `pattern` names `path`: `{a,b}` stands for either word, `*` for any characters of one component, `{name}` for one
/// of the things of that name, which may be a path.
pub(crate) fn names(pattern: &str, path: &str) -> bool {
    matches(pattern.as_bytes(), path.as_bytes(), &mut STEPS.clone())
}

fn matches(pattern: &[u8], path: &[u8], left: &mut usize) -> bool {
    let Some(fewer) = left.checked_sub(1) else { return false };
    *left = fewer;
    match pattern {
        [] => path.is_empty(),
        [b'*', rest @ ..] => any(rest, path, left, |c| c != b'/'),
        [b'{', rest @ ..] => match rest.iter().position(|c| *c == b'}') {
            Some(end) => {
                let (words, rest) =
                    (rest.get(..end).unwrap_or_default(), rest.get(end + 1..).unwrap_or_default());
                if !words.contains(&b',') {
                    return any(rest, path, left, |_| true);
                }
                words.split(|c| *c == b',').any(|word| {
                    let word = word.trim_ascii();
                    path.strip_prefix(word).is_some_and(|path| matches(rest, path, left))
                })
            }
            None => path.first() == Some(&b'{') && matches(rest, path.get(1..).unwrap_or_default(), left),
        },
        [c, rest @ ..] => path.first() == Some(c) && matches(rest, path.get(1..).unwrap_or_default(), left),
    }
}

/// After any number of characters that `may` stand there.
fn any(pattern: &[u8], path: &[u8], left: &mut usize, may: fn(u8) -> bool) -> bool {
    let free = path.iter().take_while(|c| may(**c)).count();
    (0..=free).any(|at| matches(pattern, path.get(at..).unwrap_or_default(), left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_its_files_and_no_other() {
        let netns = "netns/{netns}/net/{snmp,netstat,sockstat,dev}";
        assert!(names(netns, "netns/4026531840/net/snmp") && names(netns, "netns/1/net/dev"));
        assert!(!names(netns, "netns/1/net/snmp6") && !names(netns, "proc/net/snmp"));
        let limits = "{v1:memory}/{memory.limit_in_bytes, memory.swappiness}";
        assert!(names(limits, "sys/fs/cgroup/memory/a/b/memory.swappiness"));
        assert!(names("sys/x*/y", "sys/x12/y") && !names("sys/x*/y", "sys/x1/2/y"));
        assert!(names("proc/stat", "proc/stat") && !names("proc/stat", "proc/sta"));
    }

    #[test]
    fn no_pattern_takes_long() {
        assert!(!names(&format!("{}b", "*{a}".repeat(40)), &"a".repeat(200)));
        for torn in ["{", "}", "{a", "*", "{}", "{,}"] {
            names(torn, "a{}");
        }
    }
}
