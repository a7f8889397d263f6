//! Commands for people to paste, with names from the host in them: a cgroup may be called `; rm -rf ~`.

use std::ops::Deref;

use serde::Serialize;

/// A line for a shell: a literal of our own source, or made by [`command!`](crate::command), which quotes each value as one
/// word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Command(String);

impl Command {
    /// Only for [`command!`](crate::command), which quotes every word, and for tests of its printers.
    #[doc(hidden)]
    #[must_use]
    pub fn of_quoted(line: String) -> Self {
        Command(line)
    }
}

impl From<&'static str> for Command {
    fn from(line: &'static str) -> Self {
        Command(line.to_owned())
    }
}

impl Deref for Command {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// `command!("cat {}", file)`: as `format!`, but each value becomes one word of a shell. Values cannot be captured by name.
#[macro_export]
macro_rules! command {
    ($line:literal $(, $word:expr)* $(,)?) => {
        $crate::shell::Command::of_quoted(format!(
            concat!($line), $($crate::shell::quoted(&($word).to_string())),*
        ))
    };
}

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
    fn values_are_words_of_a_command() {
        let file = "/a b;id";
        assert_eq!(&*command!("echo {} > {}", 5, file), "echo 5 > '/a b;id'");
        assert_eq!(&*Command::from("dmesg"), "dmesg");
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
