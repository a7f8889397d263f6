//! Memory zones: `/proc/zoneinfo`.
//!
//! ```text
//! Node 0, zone   Normal
//!   pages free     3840
//!         min      36
//!         low      45
//!         high     54
//!         managed  3840
//! ```
//!
//! Each zone's free pages and the watermarks at which reclaim starts (low) and tasks reclaim themselves (min). All in pages.
//! Everything else (per-node statistics, per-CPU lists) is left out.

use super::{Bad, number};

/// One zone, in pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zone {
    /// NUMA node.
    pub node: u32,
    /// "DMA32", "Normal".
    pub name: String,
    /// Free.
    pub free: u64,
    /// Below it, a task that allocates must reclaim.
    pub min: u64,
    /// Below it, kswapd reclaims.
    pub low: u64,
    /// Up to it, kswapd reclaims.
    pub high: u64,
    /// All pages that the allocator manages.
    pub managed: u64,
}

/// Parse the file. Zones without pages are left out.
pub fn parse(text: &str) -> Result<Vec<Zone>, Bad> {
    let mut zones: Vec<Zone> = Vec::new();
    for line in text.lines() {
        if line.starts_with("Node ") {
            zones.push(zone(line)?);
            continue;
        }
        let Some(zone) = zones.last_mut() else { continue };
        let mut fields = line.split_ascii_whitespace();
        let first = fields.next();
        let name = if first == Some("pages") { fields.next() } else { first };
        let place = match name {
            Some("free") => &mut zone.free,
            Some("min") => &mut zone.min,
            Some("low") => &mut zone.low,
            Some("high") => &mut zone.high,
            Some("managed") => &mut zone.managed,
            _ => continue,
        };
        // Per-CPU lists have "high: 14" with a colon, which is another name.
        *place = number(fields.next(), "<name> <pages>", line)?;
    }
    zones.retain(|zone| zone.managed > 0);
    Ok(zones)
}

fn zone(line: &str) -> Result<Zone, Bad> {
    let bad = || Bad::new("Node <number>, zone <name>", line);
    let (node, name) = line.split_once(',').ok_or_else(bad)?;
    let node = number(node.strip_prefix("Node "), "Node <number>, zone <name>", line)?;
    let name = name.trim().strip_prefix("zone").ok_or_else(bad)?.trim();
    Ok(Zone { node, name: name.to_owned(), ..Zone::default() })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const HERE: &str = "Node 0, zone      DMA\n  per-node stats\n      nr_inactive_anon 3136\n  pages free     3840\n        \
        boost    0\n        min      36\n        low      45\n        high     54\n        promo    63\n        \
        spanned  4095\n        managed  3840\n        protection: (0, 3019, 6987, 6987, 6987)\n  pagesets\n    cpu: 0\n              \
        count:    10\n              high:     14\nNode 0, zone  Movable\n  pages free     0\n        min      0\n        managed  0\n";
    /// Linux 4.18: no boost, no promo.
    const OLD: &str = "Node 1, zone   Normal\n  pages free     1200\n        min      100\n        low      125\n        \
        high     150\n        managed  90000\n";

    #[test]
    fn reads_watermarks_and_not_the_lists_of_cpus() {
        let zones = parse(HERE).unwrap();
        assert_eq!(zones.len(), 1, "a zone without pages is none");
        let want =
            Zone { node: 0, name: "DMA".into(), free: 3840, min: 36, low: 45, high: 54, managed: 3840 };
        assert_eq!(zones[0], want);
        assert_eq!(parse(OLD).unwrap()[0].node, 1);
    }

    #[test]
    fn a_torn_line_is_bad() {
        assert!(parse("Node 0, zo").is_err());
        assert!(parse("Node 0, zone DMA\n  pages free     38x").is_err());
    }
}
