//! Free memory by block size: `/proc/buddyinfo`.
//!
//! ```text
//! Node 0, zone   Normal    831    309    393    255    157    121    181    255    109     39    542
//! ```
//!
//! Column n counts free blocks of 2^n pages.

use super::{Bad, number};

/// Free blocks of one zone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Free {
    /// NUMA node.
    pub node: u32,
    /// "Normal".
    pub zone: String,
    /// Free blocks by order.
    pub blocks: Vec<u64>,
}

/// Parse the file.
pub fn parse(text: &str) -> Result<Vec<Free>, Bad> {
    text.lines().filter(|line| !line.trim().is_empty()).map(zone).collect()
}

fn zone(line: &str) -> Result<Free, Bad> {
    const WANTED: &str = "Node <number>, zone <name> <counts>";
    let (node, rest) = line.split_once(',').ok_or_else(|| Bad::new(WANTED, line))?;
    let mut fields = rest.split_ascii_whitespace();
    let name = fields.nth(1).ok_or_else(|| Bad::new(WANTED, line))?;
    let blocks: Vec<u64> = fields.map(|f| number(Some(f), WANTED, line)).collect::<Result<_, _>>()?;
    if blocks.is_empty() {
        return Err(Bad::new(WANTED, line));
    }
    Ok(Free { node: number(node.strip_prefix("Node "), WANTED, line)?, zone: name.to_owned(), blocks })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const HERE: &str = "Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3 \n\
        Node 0, zone   Normal    831    309    393    255    157    121    181    255    109     39    542 \n";
    /// arm64 with 64 KiB pages: 14 orders.
    const MORE_ORDERS: &str = "Node 1, zone  DMA32 1 2 3 4 5 6 7 8 9 10 11 12 13 14\n";

    #[test]
    fn reads_blocks_by_order() {
        let here = parse(HERE).unwrap();
        assert_eq!((here[1].zone.as_str(), here[1].blocks[10]), ("Normal", 542));
        assert_eq!(parse(MORE_ORDERS).unwrap()[0].blocks.len(), 14);
    }

    #[test]
    fn a_torn_line_is_bad() {
        assert!(parse("Node 0, zone").is_err());
        assert!(parse("Node 0, zone   Normal").is_err());
    }
}
