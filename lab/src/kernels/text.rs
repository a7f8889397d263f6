//! What apt-cache says, and which kernel is newest.

/// The release of the newest full kernel of `label` among the lines of `apt-cache search`.
///
/// Not the cloud kernels (they have no 9p) and not those with real-time preemption.
pub fn newest(search: &str, label: &str) -> Option<String> {
    let name = |line: &str| Some(line.split_whitespace().next()?.strip_prefix("linux-image-")?.to_owned());
    search
        .lines()
        .filter_map(|line| name(line)?.strip_suffix("-unsigned").map(str::to_owned))
        .filter_map(|release| Some((order(&release, label)?, release)))
        .max()
        .map(|(_, release)| release)
}

/// The numbers by which releases of `label` are ordered; none if this is no full kernel of that version.
///
/// Two forms: 6.1.0-56-amd64 and 6.12.117+deb12-amd64.
pub fn order(release: &str, label: &str) -> Option<Vec<u64>> {
    let version = release.strip_suffix("-amd64")?;
    let rest = version.strip_prefix(label)?.strip_prefix('.')?;
    let (numbers, origin) = rest.split_once('+').unwrap_or((rest, ""));
    // A dash behind the origin is a flavour: 6.12.117+deb12-rt-amd64.
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

/// One repository out of `apt-get indextargets`: where it is, and which release.
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
";

    #[test]
    fn the_newest_is_told_by_numbers_and_is_a_full_kernel() {
        assert_eq!(newest(SEARCH, "6.1").as_deref(), Some("6.1.0-56-amd64"));
        assert_eq!(newest(SEARCH, "6.12").as_deref(), Some("6.12.107+deb12-amd64"));
        assert_eq!(newest(SEARCH, "5.10"), None);
        assert_eq!(newest("", "6.1"), None);
    }

    #[test]
    fn a_label_is_no_prefix_of_another() {
        assert!(order("6.12.107+deb12-amd64", "6.1").is_none());
        assert!(order("6.1.0-56-amd64", "6.12").is_none());
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
            let _ = (newest(&text, "6.1"), order(&text, "6.1"), needed(&text), repositories(&text));
        }
    }
}
