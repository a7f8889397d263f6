//! What each CPU did with received packets: `/proc/net/softnet_stat`, one line for each online CPU, 32-bit hex.
//!
//! ```text
//! 00000b75 00000000 00000000 00000000 ... 00000001 00000000 00000000
//! ```
//!
//! Columns: 0 processed, 1 dropped (backlog full), 2 squeezed (budget ran out), 8 cpu_collision, 9 received_rps
//! (v2.6.35), 10 flow_limit (v3.11, 99bbc7074190), 11 backlog length and 12 CPU (v5.10, 7d58e6555870), 13 and 14 the
//! two backlogs (v6.4). Before column 12, offline CPUs leave a gap that the text does not show: the CPU is then the
//! number of the line.

use super::Bad;

/// One CPU's counters since boot. They wrap at 2^32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Softnet {
    /// The CPU.
    pub cpu: u32,
    /// Packets processed.
    pub processed: u32,
    /// Packets dropped because the CPU's backlog was full.
    pub dropped: u32,
    /// Times the softirq stopped with work left: its budget of packets or time was used up.
    pub squeezed: u32,
}

/// Parse the file.
pub fn parse(text: &str) -> Result<Vec<Softnet>, Bad> {
    text.lines().zip(0..).map(|(line, number)| one(line, number)).collect()
}

fn one(line: &str, number: u32) -> Result<Softnet, Bad> {
    let fields = line.split_ascii_whitespace().map(|field| u32::from_str_radix(field, 16));
    let fields: Vec<u32> = fields.collect::<Result<_, _>>().map_err(|_| Bad::new("hex columns", line))?;
    let [processed, dropped, squeezed, ..] = fields[..] else {
        return Err(Bad::new("at least 3 hex columns", line));
    };
    Ok(Softnet { cpu: fields.get(12).copied().unwrap_or(number), processed, dropped, squeezed })
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// v6.18, two CPUs; the second line stands for CPU 3.
    pub const V6_18: &str = "\
00000009 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
00000b75 00000002 0000001f 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000003 00000000 00000000
";

    #[test]
    fn fifteen_columns_name_their_cpu() {
        let cpus = parse(V6_18).unwrap();
        assert_eq!(cpus[1], Softnet { cpu: 3, processed: 0xb75, dropped: 2, squeezed: 31 });
    }

    #[test]
    fn ten_columns_count_lines() {
        let old =
            "000000ff 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000000\n";
        let cpus = parse(&old.repeat(2)).unwrap();
        assert_eq!(cpus[1], Softnet { cpu: 1, processed: 255, dropped: 0, squeezed: 1 });
    }

    #[test]
    fn a_torn_line_is_said() {
        assert_eq!(parse("0000 00").unwrap_err(), Bad::new("at least 3 hex columns", "0000 00"));
        assert!(parse("0000 0000 xyz").is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "([0-9a-f]{0,9} ?){0,16}\n?.*") {
            let _ = parse(&text);
        }
    }
}
