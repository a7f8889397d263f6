//! `Description=` of a systemd unit, from the text of its files: as systemd.unit(5) and systemd.syntax(7) say. No I/O.

use whyslow_model::cgroup_path::unescaped;

/// Longer ones are cut: a description is a line.
const LONGEST: usize = 120;

/// What a unit file, or a drop-in, says about the description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// No description.
    Nothing,
    /// A description; empty: it clears the description set before.
    Description(String),
}

/// The last `Description=` of the section `[Unit]`.
pub fn description(text: &str) -> Said {
    let (mut said, mut in_unit) = (Said::Nothing, false);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if line.starts_with('[') {
            in_unit = line == "[Unit]";
            continue;
        }
        let whole = joined(line, &mut lines);
        let value = whole.split_once('=').filter(|(key, _)| in_unit && key.trim_end() == "Description");
        if let Some((_, value)) = value {
            said = Said::Description(value.trim().to_owned());
        }
    }
    said
}

/// A line with its continuations: a backslash at its end is a space, and comments in between are skipped.
fn joined(first: &str, lines: &mut std::str::Lines<'_>) -> String {
    let mut whole = String::new();
    let mut part = first;
    while let Some(begun) = part.strip_suffix('\\') {
        whole = whole + begun + " ";
        part = loop {
            match lines.next().map(str::trim) {
                None => return whole,
                Some(comment) if comment.starts_with(['#', ';']) => {}
                Some(next) => break next,
            }
        };
    }
    whole + part
}

/// The files of a unit, in rising precedence: its template's, then its own.
pub fn files_of(unit: &str) -> Vec<String> {
    let template = Parts::of(unit).and_then(|parts| parts.template());
    template.into_iter().chain([unit.to_owned()]).collect()
}

/// `name@instance.kind`.
struct Parts<'u> {
    prefix: &'u str,
    instance: Option<&'u str>,
    kind: &'u str,
}

impl<'u> Parts<'u> {
    fn of(unit: &'u str) -> Option<Self> {
        let (name, kind) = unit.rsplit_once('.')?;
        Some(match name.split_once('@') {
            Some((prefix, instance)) => Parts { prefix, instance: Some(instance), kind },
            None => Parts { prefix: name, instance: None, kind },
        })
    }

    fn template(&self) -> Option<String> {
        self.instance.map(|_| format!("{}@.{}", self.prefix, self.kind))
    }
}

/// `text` with the specifiers that the unit's name can fill in. `None`: it has others, whose values are not known here.
pub fn specified(text: &str, unit: &str) -> Option<String> {
    let parts = Parts::of(unit)?;
    let whole = unit.strip_suffix(parts.kind)?.strip_suffix('.')?;
    let instance = parts.instance.unwrap_or_default();
    let last = |name: &str| name.rsplit('-').next().unwrap_or_default().to_owned();
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('i') => out.push_str(instance),
            Some('I') => out.push_str(&unnamed(instance)),
            Some('n') => out.push_str(unit),
            Some('N') => out.push_str(whole),
            Some('p') => out.push_str(parts.prefix),
            Some('P') => out.push_str(&unnamed(parts.prefix)),
            Some('j') => out.push_str(&last(parts.prefix)),
            Some('J') => out.push_str(&unnamed(&last(parts.prefix))),
            Some('%') => out.push('%'),
            _ => return None,
        }
    }
    let out: String = out.chars().take(LONGEST).collect();
    (!out.trim().is_empty()).then(|| out.trim().to_owned())
}

/// In a unit's name "-" stands for "/".
fn unnamed(name: &str) -> String {
    unescaped(&name.replace('-', "/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn said(text: &str) -> Said {
        Said::Description(text.to_owned())
    }

    #[test]
    fn the_last_one_of_the_section_counts() {
        let real = "#  SPDX-License-Identifier: LGPL-2.1-or-later\n\n[Unit]\nDescription=Getty on %I\n\
                    Documentation=man:agetty(8)\n\n[Service]\nDescription=not this\n";
        assert_eq!(description(real), said("Getty on %I"));
        assert_eq!(description("[Unit]\nDescription=a\nDescription = b c \n"), said("b c"));
        assert_eq!(description("[Unit]\nDescription=a\\\n# x\n  b\n"), said("a b"));
        assert_eq!(description("[Unit]\nDescription=\n"), said(""));
        for none in [
            "Description=x\n",
            "[Install]\nDescription=x",
            "[Unit]\nDescriptionX=x",
            "[Unit]\n#Description=x",
            "",
        ] {
            assert_eq!(description(none), Said::Nothing, "{none}");
        }
    }

    #[test]
    fn specifiers_are_those_of_the_name() {
        let of = |text, unit| specified(text, unit);
        assert_eq!(of("Getty on %I", "getty@tty1.service").as_deref(), Some("Getty on tty1"));
        assert_eq!(of("%i %I", r"mnt@a-b\x2dc.service").as_deref(), Some(r"a-b\x2dc a/b-c"));
        assert_eq!(of("%n %N %p 100%%", "web.service").as_deref(), Some("web.service web web 100%"));
        assert_eq!(of("on %H", "web.service"), None, "the host name is not known here");
        assert_eq!(of("50%", "web.service"), None);
        assert_eq!(of("", "web.service"), None);
        assert_eq!(files_of("getty@tty1.service"), ["getty@.service", "getty@tty1.service"]);
        assert_eq!(files_of("web.service"), ["web.service"]);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[%\\\\=\\[\\]A-Za-z\n#;é@.-]{0,80}", any in ".*", unit in ".{0,30}") {
            for text in [&text, &any] {
                description(&format!("[Unit]\nDescription={text}"));
                description(text);
                specified(text, &unit);
                files_of(text);
            }
        }
    }
}
