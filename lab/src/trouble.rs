//! Errors in one form: cannot <verb> <object>: <reason>; <way out>.

use std::fmt;

/// Why an action of the lab failed, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    what: String,
    reason: String,
    way_out: Option<&'static str>,
}

impl Trouble {
    /// `what` is a verb and its object: "start qemu-system-x86_64".
    pub fn new(what: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self { what: what.into(), reason: reason.to_string(), way_out: None }
    }

    /// The same with only these lines of the reason, joined; with all of it if there is none of them.
    pub fn only(self, wanted: impl Fn(&str) -> bool) -> Self {
        let lines: Vec<&str> = self.reason.lines().map(str::trim).filter(|line| wanted(line)).collect();
        let reason = if lines.is_empty() { self.reason.clone() } else { lines.join(" ") };
        Self { reason, ..self }
    }

    /// The same with what the reader can do about it.
    pub fn or(self, way_out: &'static str) -> Self {
        Self { way_out: Some(way_out), ..self }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.what, self.reason)?;
        self.way_out.map_or(Ok(()), |way_out| write!(f, "; {way_out}"))
    }
}

impl std::error::Error for Trouble {}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::new("use the lab's cache", error).or("the lab needs 3 GB below target/")
    }
}

#[cfg(test)]
mod tests {
    use super::Trouble;

    #[test]
    fn says_verb_object_reason_and_the_way_out() {
        let plain = Trouble::new("start qemu", "no such file");
        assert_eq!(plain.to_string(), "cannot start qemu: no such file");
        let long = Trouble::new("fetch", "status 100\nIgn: x\nE: no network\nE: none");
        assert_eq!(
            long.clone().only(|line| line.starts_with("E:")).to_string(),
            "cannot fetch: E: no network E: none"
        );
        assert_eq!(long.clone().only(|line| line.starts_with("none")), long);
        assert_eq!(plain.or("run make setup").to_string(), "cannot start qemu: no such file; run make setup");
    }
}
