//! The kernel's command line: `/proc/cmdline`.
//!
//! ```text
//! root=/dev/vda quiet isolcpus=1-3 dyndbg="file drivers/usb/* +p" -- single
//! ```
//!
//! Blanks separate parameters unless in double quotes; all after "--" is for init. "-" and "_" in names are the same.

/// A parameter: its name with "_" for "-", and its value.
pub type Parameter = (String, Option<String>);

/// Parse the file. Every text is a command line.
#[must_use]
pub fn parse(text: &str) -> Vec<Parameter> {
    words(text.trim_end_matches(['\n', '\0']))
        .into_iter()
        .take_while(|word| word != "--")
        .map(parameter)
        .collect()
}

fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            c if c.is_ascii_whitespace() && !quoted => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

fn parameter(word: String) -> Parameter {
    match word.split_once('=') {
        Some((name, value)) => (name.replace('-', "_"), Some(value.to_owned())),
        None => (word.replace('-', "_"), None),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const HERE: &str = "mitigations=auto,no_guest_host console=ttyS0 quiet reboot=k psi=1 rdinit=/process_api -- --init --addr 0\n";

    fn value<'p>(all: &'p [Parameter], name: &str) -> Option<&'p str> {
        all.iter().find(|(n, _)| n == name).and_then(|(_, v)| v.as_deref())
    }

    #[test]
    fn reads_parameters_up_to_those_of_init() {
        let here = parse(HERE);
        assert_eq!(value(&here, "mitigations"), Some("auto,no_guest_host"));
        assert!(here.contains(&("quiet".into(), None)));
        assert!(here.iter().all(|(name, _)| name != "__addr"));
    }

    #[test]
    fn quotes_hold_a_value_together() {
        let all = parse("dyndbg=\"file a.c +p\" intel-iommu=on root=UUID=1-2\n");
        assert_eq!(value(&all, "dyndbg"), Some("file a.c +p"));
        assert_eq!(value(&all, "intel_iommu"), Some("on"));
        assert_eq!(value(&all, "root"), Some("UUID=1-2"), "only names lose their dashes");
    }

    #[test]
    fn a_torn_quote_ends_with_the_line() {
        assert_eq!(value(&parse("a=\"b c"), "a"), Some("b c"));
        assert_eq!(parse(""), vec![]);
    }
}
