//! A list of CPUs or nodes, as in [`CpuList`]: a torn list is an error.

use super::Bad;
pub use whyslow_model::CpuList;

/// Parse the list. An empty text is an empty list: a cpuset may be empty.
pub fn parse(text: &str) -> Result<CpuList, Bad> {
    const WANTED: &str = "CPU numbers and ranges, as 0-3,8";
    CpuList::parse(text).ok_or_else(|| Bad::new(WANTED, text))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const MANY: &str = "0-3,8,16-23\n";

    #[test]
    fn a_torn_list_is_bad() {
        assert_eq!(parse(MANY).unwrap().count(), 13);
        let why = parse("0-3,").unwrap_err().to_string();
        assert!(why.starts_with("expected CPU numbers and ranges, as 0-3,8 in line"), "{why}");
    }
}
