//! The kubelet's list of exclusive CPUs: `/var/lib/kubelet/cpu_manager_state`.
//!
//! ```text
//! {"policyName":"static","defaultCpuSet":"0-1,4-7","entries":{"<pod uid>":{"app":"2-3"}},"checksum":14413152}
//! ```
//!
//! One line of JSON (kubelet/cm/cpumanager/state/checkpoint.go, since Kubernetes 1.10). With the policy `none` no CPU is
//! exclusive.

use super::{Bad, cpulist};

const WANTED: &str = "policyName and defaultCpuSet";

/// CPUs that are not exclusive to a container; `None`: with this policy none ever are.
pub fn shared_cpus(text: &str) -> Result<Option<cpulist::CpuList>, Bad> {
    if field(text, "policyName").ok_or_else(|| Bad::new(WANTED, text))? != "static" {
        return Ok(None);
    }
    let shared = field(text, "defaultCpuSet").ok_or_else(|| Bad::new(WANTED, text))?;
    cpulist::parse(shared).map(Some)
}

/// A string of the outermost object: names of pods and containers are no keys of these names, and hold no quotes.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("\"{name}\""))?;
    let value = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    Some(value.split_once('"')?.0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const STATIC: &str = r#"{"policyName":"static","defaultCpuSet":"0-1,4-7","entries":{"4db4c74a":{"app":"2-3"}},"checksum":1}"#;

    #[test]
    fn tells_what_is_left_for_all() {
        assert_eq!(shared_cpus(STATIC).unwrap().unwrap().count(), 6);
        assert_eq!(
            shared_cpus(r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#),
            Ok(None)
        );
    }

    #[test]
    fn a_torn_text_is_bad() {
        for end in [10, 30, 40, 44] {
            assert!(shared_cpus(&STATIC[..end]).is_err(), "{}", &STATIC[..end]);
        }
    }
}
