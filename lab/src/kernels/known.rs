//! The kernels that the lab knows: the name of each, and the archive that has it.

/// One kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// "6.1-rt".
    pub label: &'static str,
    /// "6.1".
    pub version: &'static str,
    /// Suffix of its release.
    pub flavour: &'static str,
    /// Suffix of its package name, after the release.
    pub signature: &'static str,
    /// The suite of another release of the distribution, if the host's own has no such kernel.
    pub suite: Option<&'static str>,
}

/// Full kernels: the cloud ones have no 9p. Unsigned, because the signed ones come days later.
const PLAIN: &str = "amd64";
/// With real-time preemption.
const REALTIME: &str = "rt-amd64";
const UNSIGNED: &str = "-unsigned";

/// All, oldest first.
const ALL: [Known; 7] = [
    of_a_suite("5.10", "5.10", PLAIN, UNSIGNED, "bullseye-security"),
    of_a_suite("5.10-rt", "5.10", REALTIME, UNSIGNED, "bullseye"),
    of_the_host("6.1", "6.1", PLAIN),
    of_the_host("6.1-rt", "6.1", REALTIME),
    of_the_host("6.12", "6.12", PLAIN),
    of_the_host("6.12-rt", "6.12", REALTIME),
    // The distribution's first kernel with sched_ext (their 6.12 says "CONFIG_SCHED_CLASS_EXT is not set"); the archive keeps only signed
    // ones, and no headers.
    of_a_suite("6.18", "6.18", PLAIN, "", "trixie-backports"),
];

pub const LABELS: [&str; ALL.len()] = {
    let mut labels = [""; ALL.len()];
    let mut at = 0;
    while at < ALL.len() {
        labels[at] = ALL[at].label;
        at += 1;
    }
    labels
};

const fn of_the_host(label: &'static str, version: &'static str, flavour: &'static str) -> Known {
    Known { label, version, flavour, signature: UNSIGNED, suite: None }
}

const fn of_a_suite(
    label: &'static str,
    version: &'static str,
    flavour: &'static str,
    signature: &'static str,
    suite: &'static str,
) -> Known {
    Known { label, version, flavour, signature, suite: Some(suite) }
}

/// The kernel with that name.
pub fn called(label: &str) -> Option<&'static Known> {
    ALL.iter().find(|known| known.label == label)
}

impl Known {
    /// Whether its archive has the headers and tools to build modules for it: backports of signed kernels have none.
    #[must_use]
    pub fn has_headers(&self) -> bool {
        !self.signature.is_empty()
    }
}

/// Whether it may be absent: the archive of another release need not answer, and drops kernels at any time.
#[must_use]
pub fn is_optional(label: &str) -> bool {
    called(label).is_some_and(|known| known.suite.is_some())
}

impl Known {
    /// The package of a release.
    pub fn package(&self, release: &str) -> String {
        format!("linux-image-{release}{}", self.signature)
    }

    /// The search pattern for apt-cache.
    pub fn pattern(&self) -> String {
        let version = self.version.replace('.', "[.]");
        format!("^linux-image-{version}[.].*-{}{}$", self.flavour, self.signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kernels_of_other_releases_may_be_absent() {
        let optional: Vec<&str> = LABELS.into_iter().filter(|label| is_optional(label)).collect();
        assert_eq!(optional, ["5.10", "5.10-rt", "6.18"]);
        assert!(!is_optional("host"));
    }

    #[test]
    fn a_kernel_has_its_package() {
        let package = |label: &str, release: &str| called(label).expect(label).package(release);
        assert_eq!(package("6.1-rt", "6.1.0-56-rt-amd64"), "linux-image-6.1.0-56-rt-amd64-unsigned");
        assert_eq!(package("6.18", "6.18.15+deb13-amd64"), "linux-image-6.18.15+deb13-amd64");
        assert_eq!(
            called("6.1").map(Known::pattern).as_deref(),
            Some("^linux-image-6[.]1[.].*-amd64-unsigned$")
        );
    }
}
