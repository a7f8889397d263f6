//! Parses apt-cache's output, and finds the newest kernel.

use super::known::Known;

/// The release of the newest of these kernels among the lines of `apt-cache search`.
pub fn newest(search: &str, known: &Known) -> Option<String> {
    let release = |line: &str| {
        let name = line.split_whitespace().next()?.strip_prefix("linux-image-")?;
        Some(name.strip_suffix(known.signature)?.to_owned())
    };
    search
        .lines()
        .filter_map(release)
        .filter_map(|release| Some((order(&release, known)?, release)))
        .max()
        .map(|(_, release)| release)
}

/// The numbers by which releases are ordered; `None` if this is no kernel of that version and flavour.
///
/// Two forms: 6.1.0-56-amd64 and 6.12.117+deb12-amd64.
pub fn order(release: &str, known: &Known) -> Option<Vec<u64>> {
    let version = release.strip_suffix(known.flavour)?.strip_suffix('-')?;
    let rest = version.strip_prefix(known.version)?.strip_prefix('.')?;
    let (numbers, origin) = rest.split_once('+').unwrap_or((rest, ""));
    // A dash after the origin begins a flavour: 6.12.117+deb12-rt-amd64.
    if origin.contains('-') {
        return None;
    }
    numbers.split(['.', '-']).map(|number| number.parse().ok()).collect()
}

/// The packages of kernel headers and build programs that `apt-cache depends` names.
pub fn needed(depends: &str) -> Vec<String> {
    let wanted = |name: &&str| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-");
    let names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.map(str::trim).filter(wanted).map(str::to_owned).collect()
}

/// One repository from `apt-get indextargets`: its address and its release.
#[derive(Debug, PartialEq, Eq)]
pub struct Repository<'a> {
    pub uri: &'a str,
    pub release: &'a str,
}

/// The repositories that apt knows, from lines "URI RELEASE".
pub fn repositories(targets: &str) -> Vec<Repository<'_>> {
    let one = |line: &'_ str| -> Option<(usize, usize)> {
        let (uri, release) = line.split_once(' ')?;
        (!uri.is_empty() && !release.is_empty()).then_some((uri.len(), release.len()))
    };
    targets
        .lines()
        .filter_map(|line| one(line).and_then(|_| line.split_once(' ')))
        .map(|(uri, release)| Repository { uri, release: release.trim() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::kernels::known::{LABELS, called};

    const SEARCH: &str = "\
linux-image-6.1.0-9-amd64-unsigned - Linux 6.1 for 64-bit PCs
linux-image-6.1.0-56-amd64-unsigned - Linux 6.1 for 64-bit PCs
linux-image-6.1.0-57-cloud-amd64-unsigned - Linux 6.1 for x86-64 cloud
linux-image-6.1.0-57-rt-amd64-unsigned - Linux 6.1 for 64-bit PCs, PREEMPT_RT
linux-image-6.12.107+deb12-amd64-unsigned - Linux 6.12 for 64-bit PCs
linux-image-6.12.99+deb12-amd64-unsigned - Linux 6.12 for 64-bit PCs
linux-image-6.12.117+deb12-cloud-amd64-unsigned - Linux 6.12 for x86-64 cloud
linux-image-6.12.117+deb12-rt-amd64-unsigned - Linux 6.12 for 64-bit PCs, PREEMPT_RT
linux-image-6.1.0-60-amd64 - Linux 6.1 for 64-bit PCs (signed)
linux-image-6.18.9+deb13-amd64 - Linux 6.18.9 for 64-bit PCs (signed)
linux-image-6.18.15+deb13-amd64 - Linux 6.18.15 for 64-bit PCs (signed)
";

    #[test]
    fn the_newest_is_reported_by_numbers_and_is_a_full_kernel() {
        let newest = |search: &str, label: &str| newest(search, called(label).expect(label));
        assert_eq!(newest(SEARCH, "6.1").as_deref(), Some("6.1.0-56-amd64"));
        assert_eq!(newest(SEARCH, "6.12").as_deref(), Some("6.12.107+deb12-amd64"));
        assert_eq!(newest(SEARCH, "6.1-rt").as_deref(), Some("6.1.0-57-rt-amd64"));
        assert_eq!(newest(SEARCH, "6.12-rt").as_deref(), Some("6.12.117+deb12-rt-amd64"));
        assert_eq!(newest(SEARCH, "6.18").as_deref(), Some("6.18.15+deb13-amd64"));
        assert_eq!(newest(SEARCH, "5.10"), None);
        assert_eq!(newest("", "6.1"), None);
    }

    #[test]
    fn a_kernel_is_of_one_version_and_flavour() {
        let order = |release: &str, label: &str| order(release, called(label).expect(label));
        assert!(order("6.12.107+deb12-amd64", "6.1").is_none());
        assert!(order("6.1.0-56-amd64", "6.12").is_none());
        assert!(order("6.1.0-56-amd64", "6.1-rt").is_none());
        assert_eq!(order("6.1.0-56-amd64", "6.1"), Some(vec![0, 56]));
    }

    #[test]
    fn headers_come_with_what_builds_them() {
        let said = "linux-headers-6.1.0-56-amd64\n  Depends: linux-headers-6.1.0-56-common\n  \
                    Depends: linux-kbuild-6.1\n |Depends: linux-image-6.1.0-56-amd64\n  Depends: linux-compiler-gcc-12-x86\n";
        assert_eq!(needed(said), ["linux-headers-6.1.0-56-common", "linux-kbuild-6.1"]);
    }

    #[test]
    fn repositories_are_lines_of_two_words() {
        let found = repositories("http://a.example/x/ one-security\n\nnonsense\nhttp://b.example/ two\n");
        assert_eq!(found.len(), 2);
        assert_eq!(found.first(), Some(&Repository { uri: "http://a.example/x/", release: "one-security" }));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(linux-image-|Depends: |6\\.1[.0-9+-]*|-amd64-unsigned|[ \\n]|\\PC){0,40}") {
            for known in LABELS.into_iter().filter_map(called) {
                let _ = (newest(&text, known), order(&text, known));
            }
            let _ = (needed(&text), repositories(&text));
        }
    }
}
