//! Names from the host in commands for people to paste: a cgroup may be called `; rm -rf ~`.

/// `word` as one word of a POSIX shell (bash's `$'...'` where it holds control characters).
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    if !word.chars().any(char::is_control) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let escape = |c: char| match c {
        '\'' | '\\' => format!("\\{c}"),
        c if c.is_control() => {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().map(|b| format!("\\x{b:02x}")).collect()
        }
        c => c.to_string(),
    };
    format!("$'{}'", word.chars().map(escape).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths_stay_as_they_are() {
        assert_eq!(
            quoted("/sys/fs/cgroup/a.slice/x@1.service/cpu.max"),
            "/sys/fs/cgroup/a.slice/x@1.service/cpu.max"
        );
    }

    #[test]
    fn no_name_becomes_a_command() {
        assert_eq!(quoted("/a; rm -rf ~"), "'/a; rm -rf ~'");
        assert_eq!(quoted("it's $(id)"), r"'it'\''s $(id)'");
        assert_eq!(quoted("a\\x2db.slice"), "'a\\x2db.slice'");
        assert_eq!(quoted("a\nb'\x1b"), r"$'a\x0ab\'\x1b'");
        assert_eq!(quoted(""), "''");
    }
}
