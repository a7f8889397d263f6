//! Which kernels whyslow is tested on.

/// Kernels on which the lab or a host ran every test and found every expected cause.
const WHOLE: [&str; 3] = ["6.1", "6.12", "6.18"];
/// Kernels on which the lab only tests that the probes load.
const IN_PART: [&str; 1] = ["5.10"];

/// The claim for the kernel with this release: "6.12.117+deb12-amd64" is a 6.12.
#[must_use]
pub fn of(release: &str) -> String {
    let version: String =
        release.split(['-', '+']).next().unwrap_or("").splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    let whole = WHOLE.join(", ");
    if WHOLE.contains(&version.as_str()) {
        format!("Linux {version} is tested: the list is {whole}.")
    } else if IN_PART.contains(&version.as_str()) {
        format!(
            "Linux {version} is tested in part: the probes load, except those listed as lost above. Tested in full: {whole}."
        )
    } else {
        format!("This kernel is not tested; {whole} are. Each capability above was tried just now.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_known_by_its_version() {
        assert!(of("6.12.117+deb12-amd64").starts_with("Linux 6.12 is tested: "));
        assert!(of("6.1.0-56-amd64").starts_with("Linux 6.1 is tested: "));
        assert!(of("6.18.44-x").starts_with("Linux 6.18 is tested: "));
        assert!(of("5.10.0-46-amd64").contains("in part"));
        for other in ["6.11.0", "6", "", "5.1.0", "torn", "61.2"] {
            assert!(of(other).starts_with("This kernel is not tested"), "{other}");
        }
    }
}
