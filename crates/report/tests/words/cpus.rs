//! The table of CPUs.

use whyslow_model::{CpuAccount, Document};
use whyslow_report::{Style, cpus};

use super::{same, sample};

fn said(doc: &Document, verbose: bool) -> String {
    cpus(doc, &Style { verbose, ..Style::default() })
}

#[test]
fn a_slow_cpu_is_marked_and_its_reason_follows() {
    same(&said(&sample::full(), false), "cpus.txt");
}

#[test]
fn many_cpus_that_are_alike_are_one_row_and_the_slow_one_is_its_own() {
    let full = sample::full();
    let (well, slow) = (&full.cpus[0], &full.cpus[1]);
    let row = |cpu: u32| match cpu {
        40 => CpuAccount { cpu, ..slow.clone() },
        _ => CpuAccount { cpu, ..well.clone() },
    };
    let doc = Document { cpus: (0..128).map(row).collect(), ..sample::empty() };
    let page = said(&doc, false);
    let rows: Vec<&str> = page.lines().filter(|line| line.contains(" us ")).collect();
    let first: Vec<&str> = rows.iter().filter_map(|row| row.split_whitespace().next()).collect();
    assert_eq!(first, ["0-39", "!", "41-127"], "{page}");
    assert_eq!(said(&doc, true).lines().filter(|line| line.contains(" us ")).count(), 128);
    assert!(page.contains("CPU 40 is slow."));
}

#[test]
fn nothing_measured_is_no_healthy_host() {
    assert!(said(&sample::empty(), false).contains("No CPU was measured."));
    let mut doc = sample::full();
    doc.cpus.truncate(1);
    assert!(said(&doc, false).contains("No CPU is slow: 1 of 1 measured."));
}
