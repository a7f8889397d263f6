//! Protocol counters: `/proc/net/netstat` and `/proc/net/snmp`, one network namespace's.
//!
//! ```text
//! Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens
//! Tcp: 1 200 120000 -1 17
//! ```
//!
//! Names and values in pairs of lines; the columns differ with the kernel, so only names count. `MaxConn` is -1:
//! negative values are not counters and are left out.

use std::collections::BTreeMap;

use super::Bad;

/// Counters since boot (or since the namespace was created), by protocol and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Netstat(BTreeMap<(String, String), u64>);

impl Netstat {
    /// One counter, if this kernel has it.
    #[must_use]
    pub fn get(&self, protocol: &str, name: &str) -> Option<u64> {
        self.0.get(&(protocol.to_owned(), name.to_owned())).copied()
    }

    /// Adds the counters of `other`.
    #[must_use]
    pub fn with(mut self, other: Netstat) -> Self {
        self.0.extend(other.0);
        self
    }
}

/// Parse one file.
pub fn parse(text: &str) -> Result<Netstat, Bad> {
    let mut all = BTreeMap::new();
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (protocol, names) = split(names)?;
        let (same, values_text) = split(values)?;
        let values_list: Vec<_> = values_text.split_ascii_whitespace().collect();
        let names: Vec<_> = names.split_ascii_whitespace().collect();
        if same != protocol || names.len() != values_list.len() {
            return Err(Bad::new("as many values as names", values));
        }
        for (name, value) in names.into_iter().zip(values_list) {
            let value: i128 = value.parse().map_err(|_| Bad::new("a number", values))?;
            if let Ok(value) = u64::try_from(value) {
                all.insert((protocol.to_owned(), name.to_owned()), value);
            }
        }
    }
    Ok(Netstat(all))
}

fn split(line: &str) -> Result<(&str, &str), Bad> {
    line.split_once(':').ok_or_else(|| Bad::new("<protocol>: ...", line))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub const SNMP: &str = "\
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors
Tcp: 1 200 120000 -1 13 9 2 1 4 512 498 3 0 2 0
UdpLite: InDatagrams NoPorts
UdpLite: 0 0
";

    #[test]
    fn counters_are_found_by_name() {
        let tcp = parse(SNMP).unwrap();
        assert_eq!(tcp.get("Tcp", "RetransSegs"), Some(3));
        assert_eq!(tcp.get("Tcp", "MaxConn"), None);
        assert_eq!(tcp.get("TcpExt", "ListenOverflows"), None);
    }

    #[test]
    fn a_torn_line_is_said() {
        let torn = parse("Tcp: InSegs OutSegs\nTcp: 5").unwrap_err();
        assert_eq!(torn.to_string(), "expected as many values as names in line \"Tcp: 5\"");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(Tcp: [A-C ]{0,5}\n|Tcp: [0-9 -]{0,9}\n|.*\n){0,6}") {
            let _ = parse(&text);
        }
    }
}
