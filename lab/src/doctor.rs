//! `whyslow doctor` on the host and in guests, compared with the page of the same kernel in docs/doctor.

use std::ffi::OsString;
use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::machine::{self, Ended, Hardware};
use crate::{Trouble, child, kernels, place};

/// The name of the running kernel among the kernels.
pub const HOST: &str = "host";
/// Loading every object takes 10 s under emulation, more on a busy host.
const LIMIT: Duration = Duration::from_secs(75);
/// The doctor's page, in the share.
const PAGE: &str = "doctor.txt";

/// The doctor's output for one kernel.
struct Page {
    /// The kernel, "6.1".
    label: String,
    text: String,
}

/// The result for one kernel.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All earlier capabilities are still there; their number.
    Same(usize),
    /// Capabilities that were there and are lost.
    Lost(Vec<String>),
    /// There was no earlier page; the number of capabilities now.
    New(usize),
}

/// Run the doctor on one kernel; with `write` the page is stored, without it the page is compared.
pub fn examine(kernel: &str, write: bool) -> Result<(String, Verdict), Trouble> {
    let page = if kernel == HOST { on_host()? } else { in_guest(kernel)? };
    let file = place::project()?.join("docs/doctor").join(format!("{}.txt", page.label));
    let before = fs::read_to_string(&file).unwrap_or_default();
    if write {
        let what = format!("write {}", file.display());
        let parent = file.parent().unwrap_or(&file);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&file, &page.text))
            .map_err(|error| Trouble::new(what, error))?;
    }
    let verdict = if write { compare("", &page.text) } else { compare(&before, &page.text) };
    Ok((page.label, verdict))
}

fn compare(before: &str, now: &str) -> Verdict {
    let (was, is) = (there(before), there(now));
    let lost: Vec<String> = was
        .iter()
        .filter(|capability| !is.contains(capability))
        .map(|capability| (*capability).to_owned())
        .collect();
    match (lost.is_empty(), was.is_empty()) {
        (false, _) => Verdict::Lost(lost),
        (true, true) => Verdict::New(is.len()),
        (true, false) => Verdict::Same(is.len()),
    }
}

/// The capabilities that a page calls ok: "ok    BPF: kernel locks: loads and attaches".
fn there(page: &str) -> Vec<&str> {
    page.lines()
        .filter_map(|line| line.strip_prefix("ok ").and_then(|capability| name(capability.trim_start())))
        .collect()
}

/// A capability's name ends at the first colon, that of an object at the second.
fn name(capability: &str) -> Option<&str> {
    const OBJECT: &str = "BPF: ";
    let from = if capability.starts_with(OBJECT) { OBJECT.len() } else { 0 };
    let end = capability.get(from..)?.find(':')?.saturating_add(from);
    capability.get(..end)
}

fn on_host() -> Result<Page, Trouble> {
    let mut doctor = Command::new(place::whyslow()?);
    let said = child::output("ask the doctor on this host", doctor.arg("doctor"), LIMIT)?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_err(|error| Trouble::new("ask for this kernel's release", error))?;
    // The text after the dash comes from the builder, not from the kernel.
    let plain = release.trim().split('-').next().unwrap_or_default();
    // A guest with a kernel of the same version has a page of its own.
    Ok(page(&format!("{}-host", version(plain)), plain, "not in a guest of the lab", &said))
}

fn in_guest(label: &str) -> Result<Page, Trouble> {
    let what = format!("ask the doctor on {label}");
    let kernel = kernels::fetch(label).map_err(|reason| Trouble::new(&what, reason))?;
    let script = format!("exec \"$0\" doctor >/mnt/{PAGE} 2>&1");
    let command = [OsString::from("sh"), "-c".into(), script.into(), place::whyslow()?.into()];
    // One CPU: a probe that attaches does so with any number of CPUs; see also `Ran::emulator_broke`.
    let hardware = Hardware { vcpus: 1, ..Hardware::default() };
    let mut run = place::Run::new()?;
    let ran = machine::run(&kernel, &hardware, run.share(), &command, LIMIT)?;
    let said = fs::read_to_string(run.share().join(PAGE)).unwrap_or_default();
    if ran.status != Ended::Exited(0) || !ran.complaints.is_empty() {
        let reason = format!("{:?} {}\n{said}", ran.status, ran.complaints.join("\n"));
        return Err(Trouble::new(&what, format!("{reason} (kept: {})", run.keep().display())));
    }
    Ok(page(label, &kernel.release, "in a guest", &said))
}

fn page(label: &str, release: &str, place: &str, said: &str) -> Page {
    let text = format!("$ whyslow doctor    # as root on Linux {release}, {place}\n{said}");
    Page { label: label.to_owned(), text }
}

/// "6.18.44-x" is a 6.18.
fn version(release: &str) -> String {
    release.trim().splitn(3, '.').take(2).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: &str = "$ whyslow doctor\nok    privilege: all\nok    BPF: task list: loads and attaches\n\
                        lost  kprobes: no\n      lost: nothing\nok    kernel types (BTF): /sys\n\n3 of 4 capabilities\n";

    #[test]
    fn capabilities_have_names() {
        assert_eq!(there(PAGE), ["privilege", "BPF: task list", "kernel types (BTF)"]);
        assert_eq!(version("6.18.44-fc\n"), "6.18");
    }

    #[test]
    fn probe_missing_from_a_new_page_is_lost() {
        assert_eq!(compare("", PAGE), Verdict::New(3));
        assert_eq!(compare(PAGE, PAGE), Verdict::Same(3));
        let worse = PAGE.replace("ok    BPF: task list", "lost  BPF: task list");
        assert_eq!(compare(PAGE, &worse), Verdict::Lost(vec!["BPF: task list".into()]));
        assert_eq!(compare(&worse, PAGE), Verdict::Same(3), "more than before is no loss");
        assert!(matches!(compare(PAGE, ""), Verdict::Lost(lost) if lost.len() == 3), "silence is a loss");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(ok +|BPF: |[a-z:]|\\n|\\PC){0,40}") {
            let _ = (compare(&text, &text), version(&text));
        }
    }
}
