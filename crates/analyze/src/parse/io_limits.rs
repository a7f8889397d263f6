//! Limits on a cgroup's block I/O: `io.max` (v2) and `blkio.throttle.{read,write}_{bps,iops}_device` (v1).
//!
//! ```text
//! 254:0 rbps=1048576 wbps=max riops=max wiops=120
//! 254:0 1048576
//! ```
//!
//! One line for each device (major:minor). A v1 file holds one number, whose unit is in the file's name: the caller passes it.

use whyslow_model::Bytes;

use super::Bad;

/// The limit of one device in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// "1.0 MiB/s", "120 requests/s", or both.
    pub words: String,
    /// Bytes a second.
    pub bytes: Option<u64>,
    /// Requests a second.
    pub requests: Option<u64>,
    /// The line as it is in the file.
    pub line: String,
}

/// The limit of `dev` on reads or writes; `None`: it has none. `iops` is the unit of a v1 file.
pub fn of_device(text: &str, dev: &str, write: bool, iops: bool) -> Result<Option<Limit>, Bad> {
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        if fields.next() != Some(dev) {
            continue;
        }
        let op = if write { 'w' } else { 'r' };
        let (mut words, mut bytes, mut requests) = (Vec::new(), None, None);
        for field in fields {
            match one(field, op, iops).ok_or_else(|| Bad::new("<major:minor> <limits>", line))? {
                Some(("iops", number)) => {
                    words.push(format!("{number} requests/s"));
                    requests = Some(number);
                }
                Some((_, number)) => {
                    words.push(format!("{}/s", Bytes(number)));
                    bytes = Some(number);
                }
                None => {}
            }
        }
        if !words.is_empty() {
            let words = words.join(" and ");
            return Ok(Some(Limit { words, bytes, requests, line: line.to_owned() }));
        }
    }
    Ok(None)
}

/// Unit and number of one field; nothing for no limit or for the other direction; `None` if the field is invalid.
fn one(field: &str, op: char, iops: bool) -> Option<Option<(&str, u64)>> {
    let (unit, value) = match field.split_once('=') {
        Some((key, value)) if key.starts_with(op) => (key.get(1..)?, value),
        Some(_) => return Some(None),
        None => (if iops { "iops" } else { "bps" }, field),
    };
    if value == "max" {
        return Some(None);
    }
    Some(Some((unit, value.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const V2: &str =
        "8:0 rbps=max wbps=max riops=max wiops=5\n254:0 rbps=1048576 wbps=max riops=120 wiops=max\n";
    const V1: &str = "254:0 1048576\n7:1 30\n";

    fn words(text: &str, dev: &str, write: bool, iops: bool) -> Option<String> {
        of_device(text, dev, write, iops).unwrap().map(|limit| limit.words)
    }

    #[test]
    fn io_max_holds_all_limits_of_a_device_in_a_line() {
        assert_eq!(words(V2, "254:0", false, false).as_deref(), Some("1.0 MiB/s and 120 requests/s"));
        assert_eq!(words(V2, "8:0", true, false).as_deref(), Some("5 requests/s"));
        assert_eq!(words(V2, "254:0", true, false), None);
        assert_eq!(words(V2, "9:9", false, false), None);
    }

    #[test]
    fn a_v1_file_holds_one() {
        assert_eq!(words(V1, "254:0", false, false).as_deref(), Some("1.0 MiB/s"));
        assert_eq!(words(V1, "7:1", false, true).as_deref(), Some("30 requests/s"));
        assert_eq!(of_device(V1, "7:1", false, true).unwrap().unwrap().line, "7:1 30");
    }

    #[test]
    fn a_torn_line_is_reported() {
        let torn = of_device("254:0 rbps=10485", "254:0", false, false).unwrap();
        assert_eq!(torn.unwrap().words, "10 KiB/s");
        let torn = of_device("254:0 rbps=", "254:0", false, false).unwrap_err();
        assert_eq!(torn.to_string(), "expected <major:minor> <limits> in line \"254:0 rbps=\"");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*", dev in ".*", write: bool, iops: bool) {
            let _ = of_device(&text, &dev, write, iops);
        }

        #[test]
        fn nothing_like_a_limit_makes_it_panic(value in "[rwbpsio=max0-9é ]*") {
            let _ = of_device(&format!("254:0 {value}"), "254:0", true, false);
        }
    }
}
