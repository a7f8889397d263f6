//! Why the verifier refused a program. User space gets EACCES or EINVAL, as if a privilege were missing; the reason is in the verifier's
//! log, which libbpf requests when a program did not load, and prints.

use std::cell::RefCell;

use libbpf_rs::PrintLevel;
use whyslow_model::Missing;

use crate::rights::Rights;

thread_local! {
    /// The last program that this thread could not load.
    static HEARD: RefCell<Option<Refusal>> = const { RefCell::new(None) };
}

/// Lines and bytes of the verifier's complaint that are reported.
const MOST_LINES: usize = 2;
const MOST_BYTES: usize = 240;

/// What a complaint of the verifier means for the kernel: (its words, the missing feature, the first version with it).
///
/// The numbers of helpers are from include/uapi/linux/bpf.h; kernels that do not know a helper call it `unknown#NUMBER`.
const OLDER: [(&str, &str, &str); 8] = [
    ("#141", "BPF helper bpf_get_task_stack", "Linux 5.9"),
    ("#158", "BPF helper bpf_get_current_task_btf", "Linux 5.11"),
    ("#162", "BPF helper bpf_sock_from_file", "Linux 5.11"),
    ("#175", "BPF helper bpf_task_pt_regs", "Linux 5.15"),
    ("#181", "BPF helper bpf_loop", "Linux 5.17"),
    ("BPF_STX uses reserved fields", "BPF atomic instructions", "Linux 5.12"),
    ("struct folio.", "folios (struct folio)", "Linux 5.16"),
    ("type PTR in", "BPF functions that take pointers", "Linux 5.13"),
];

/// Helpers that read the kernel: bpf_probe_read, bpf_probe_read_str, bpf_probe_read_kernel, bpf_probe_read_kernel_str. All kernels that we
/// run on have them, but kernels in lockdown do not offer them.
const READS: [&str; 4] = ["#4", "#45", "#113", "#115"];

/// A program that the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    program: String,
    complaint: String,
}

/// Receive libbpf's messages from now on, instead of having it write to stderr.
pub(super) fn listen() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, note)));
}

/// The last refusal of this thread, once.
pub(super) fn heard() -> Option<Refusal> {
    HEARD.with(|heard| heard.borrow_mut().take())
}

fn note(_level: PrintLevel, text: String) {
    if let Some(refusal) = Refusal::of(&text) {
        HEARD.with(|heard| *heard.borrow_mut() = Some(refusal));
    }
}

impl Refusal {
    /// From one message of libbpf: a log, or that a tracepoint is missing.
    fn of(message: &str) -> Option<Self> {
        let program = message.split('\'').nth(1)?.to_owned();
        let refusal = |complaint| Some(Refusal { program: program.clone(), complaint });
        if let Some((_, name)) = message.split_once("failed to find kernel BTF type ID of '") {
            return refusal(format!("{NO_TRACEPOINT}{}", name.split('\'').next()?));
        }
        let (_, log) = message.split_once("-- BEGIN PROG LOAD LOG --")?;
        let log = log.split("-- END PROG LOAD LOG --").next().unwrap_or(log);
        refusal(complaint(log))
    }

    /// The refusal as the report shows it.
    pub(super) fn reported(self, what: &str) -> Missing {
        if let Some(name) = self.complaint.strip_prefix(NO_TRACEPOINT) {
            return Missing::broken(what, format!("this kernel has no tracepoint {name}"));
        }
        let is_helper = self.complaint.contains("func ") || self.complaint.contains("cannot use helper ");
        if is_helper && READS.iter().any(|number| self.complaint.ends_with(number)) {
            // Since v5.14 (ff40e51043af) they are not offered to programs there; before, they fail where they run.
            return Missing::NotAllowed { what: what.to_owned(), way_out: Rights::own().confidential() };
        }
        let older = OLDER.iter().find(|(words, ..)| {
            if words.starts_with('#') {
                is_helper && self.complaint.ends_with(words)
            } else {
                self.complaint.contains(words)
            }
        });
        if let Some((_, lacking, needs)) = older {
            return Missing::NotInKernel {
                what: format!("{lacking}, for {what}"),
                needs: (*needs).to_owned(),
            };
        }
        let reason = format!("the kernel's verifier refused program {}: {}", self.program, self.complaint);
        Missing::broken(what, reason)
    }
}

const NO_TRACEPOINT: &str = "no tracepoint ";

/// The end of a log: lines other than instructions, lines of our source, the state of the registers, or statistics.
fn complaint(log: &str) -> String {
    let is_words = |line: &&str| {
        let first = line.split(' ').next().unwrap_or_default();
        let number = first.trim_end_matches(':');
        let is_code = number.len() < first.len() && number.parse::<u32>().is_ok();
        let is_state = line.starts_with(' ') || first.starts_with("R0") || first.ends_with("_w=");
        !(line.trim().is_empty() || is_code || is_state || line.starts_with(';') || first == "processed")
    };
    let mut lines: Vec<&str> =
        log.lines().rev().skip_while(|line| !is_words(line)).take_while(is_words).take(MOST_LINES).collect();
    lines.reverse();
    let text: String = lines.join("; ").chars().filter(|c| !c.is_control()).collect();
    let mut end = text.len().min(MOST_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    if text.is_empty() {
        "it did not say why".to_owned()
    } else {
        text.get(..end).unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
#[path = "refusal_tests.rs"]
mod tests;
