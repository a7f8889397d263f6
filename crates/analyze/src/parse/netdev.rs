//! What the devices of one network namespace received and sent: `/proc/net/dev`.
//!
//! ```text
//! Inter-|   Receive                                                |  Transmit
//!  face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
//!     lo: 4890 51 0 0 0 0 0 0 4890 51 0 0 0 0 0 0
//! ```
//!
//! A name has no colon (net/core/dev.c, dev_valid_name).

use super::{Bad, number};

/// One device, since it was created.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// "eth0".
    pub name: String,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets, either way, that were broken or dropped.
    pub errors: u64,
}

/// Parse the file.
pub fn parse(text: &str) -> Result<Vec<Device>, Bad> {
    text.lines().skip(2).filter(|line| !line.trim().is_empty()).map(device).collect()
}

fn device(line: &str) -> Result<Device, Bad> {
    let (name, numbers) = line.split_once(':').ok_or_else(|| Bad::new("a name and a colon", line))?;
    let fields: Vec<&str> = numbers.split_ascii_whitespace().collect();
    let field = |at: usize, what: &'static str| number::<u64>(fields.get(at).copied(), what, line);
    let errors = [(2, "errs"), (3, "drop"), (10, "errs"), (11, "drop")];
    let errors =
        errors.into_iter().try_fold(0u64, |sum, (at, what)| Ok(sum.saturating_add(field(at, what)?)));
    Ok(Device {
        name: name.trim().to_owned(),
        rx_bytes: field(0, "bytes")?,
        tx_bytes: field(8, "bytes")?,
        errors: errors?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: &str =
        "Inter-|   Receive                            |  Transmit\n face |bytes    packets errs drop\n";

    #[test]
    fn a_device_is_what_came_went_and_was_lost() {
        let text = format!(
            "{HEAD}    lo: 4890 51 0 0 0 0 0 0 4891 51 0 0 0 0 0 0\neth0:7 1 2 3 0 0 0 0 9 1 4 5 0 0 0 0\n"
        );
        let of =
            |name: &str, rx_bytes, tx_bytes, errors| Device { name: name.into(), rx_bytes, tx_bytes, errors };
        assert_eq!(parse(&text), Ok(vec![of("lo", 4890, 4891, 0), of("eth0", 7, 9, 14)]));
    }

    #[test]
    fn a_torn_line_is_said() {
        assert!(parse(&format!("{HEAD}eth0: 4890 51 0 0\n")).is_err());
        assert!(parse(&format!("{HEAD}eth0\n")).is_err());
        assert_eq!(parse(""), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(.{0,40}\n){0,5}") {
            let _ = parse(&text);
        }
    }
}
