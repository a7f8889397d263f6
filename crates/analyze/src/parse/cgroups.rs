//! Controllers: `/proc/cgroups`.
//!
//! ```text
//! #subsys_name        hierarchy       num_cgroups     enabled
//! memory      4       13      1
//! ```
//!
//! `hierarchy` 0 is v2 (or mounted nowhere). `num_cgroups` counts the cgroups of the whole hierarchy, those removed and not
//! yet freed too. Controllers that only v2 has may be absent (6.10 and newer can be built without v1).

use super::{Bad, number};

/// One controller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Controller {
    /// "memory".
    pub name: String,
    /// Number of its hierarchy; 0: v2 or none.
    pub hierarchy: u32,
    /// Cgroups of that hierarchy, removed ones that are still there too.
    pub cgroups: u64,
    /// Not switched off on the kernel's command line.
    pub enabled: bool,
}

/// Parse the file.
pub fn parse(text: &str) -> Result<Vec<Controller>, Bad> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.map(controller).collect()
}

fn controller(line: &str) -> Result<Controller, Bad> {
    const WANTED: &str = "<name> <hierarchy> <cgroups> <enabled>";
    let mut fields = line.split_ascii_whitespace();
    Ok(Controller {
        name: fields.next().unwrap_or_default().to_owned(),
        hierarchy: number(fields.next(), WANTED, line)?,
        cgroups: number(fields.next(), WANTED, line)?,
        enabled: number::<u32>(fields.next(), WANTED, line)? != 0,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const HERE: &str = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t3\t1\t1\ncpu\t1\t1\t1\nmemory\t4\t13\t1\n\
        net_cls\t0\t1\t1\n";
    /// Linux 5.10, v2 only: every controller in hierarchy 0, all with the same count.
    const UNIFIED: &str = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t87\t1\nmemory\t0\t87\t1\n";
    /// Linux 6.1 on a board that boots with cgroup_disable=memory.
    const DISABLED: &str = "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t0\t1\t0\n";

    #[test]
    fn reads_the_count_by_controller() {
        let here = parse(HERE).unwrap();
        assert_eq!(here[2], Controller { name: "memory".into(), hierarchy: 4, cgroups: 13, enabled: true });
        assert_eq!(parse(UNIFIED).unwrap()[1].hierarchy, 0);
        assert!(!parse(DISABLED).unwrap()[0].enabled);
    }

    #[test]
    fn a_torn_line_is_bad() {
        assert!(parse("#subsys_name\nmemory\t4\t1").is_err());
    }
}
