//! The words of the report. Golden texts keep them from drifting; after a change on purpose `WHYSLOW_BLESS=1` writes them anew,
//! and the diff says what changed.

mod cpus;
mod ends;
#[path = "../sample/mod.rs"]
mod sample;
mod waits;

use whyslow_model::Missing;
use whyslow_report::{Style, json, text};

fn said(doc: &whyslow_model::Document, verbose: bool) -> String {
    text(doc, &Style { colour: false, verbose })
}

/// It is the golden text of this name.
#[expect(
    clippy::disallowed_methods,
    reason = "the border holds for the crate: this test keeps its texts in files"
)]
fn same(got: &str, golden: &str) {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(golden);
    if std::env::var_os("WHYSLOW_BLESS").is_some() {
        std::fs::write(&file, got).unwrap();
    }
    let want = std::fs::read_to_string(&file).unwrap();
    assert!(got == want, "it says:\n{got}\nand should say:\n{want}");
}

#[test]
fn a_sick_host_gets_its_account_its_causes_and_what_to_do() {
    same(&said(&sample::full(), false), "sick.txt");
}

#[test]
fn verbose_adds_every_reason_and_every_cgroup() {
    same(&said(&sample::full(), true), "verbose.txt");
}

#[test]
fn an_empty_document_admits_that_it_knows_nothing() {
    same(&said(&sample::empty(), false), "nothing.txt");
}

#[test]
fn colour_changes_no_word() {
    let doc = sample::full();
    let mut bare = text(&doc, &Style { colour: true, verbose: true });
    for code in ["\x1b[0m", "\x1b[1m", "\x1b[1;31m", "\x1b[33m", "\x1b[36m", "\x1b[2m"] {
        bare = bare.replace(code, "");
    }
    assert_eq!(bare, said(&doc, true));
}

#[test]
fn a_cause_without_a_measured_loss_says_unknown_and_never_zero() {
    let mut doc = sample::full();
    doc.findings[0].lost = None;
    assert!(said(&doc, false).contains("web.service (shop-frontend) lost an unknown time"));
    assert!(json(&doc).contains("\"lost_s\": null"));
}

#[test]
fn the_account_fits_on_one_screen() {
    let lines = said(&sample::full(), false).lines().take_while(|l| !l.starts_with("Causes")).count();
    assert!(lines <= 24, "{lines} lines before the findings");
}

#[test]
fn much_that_is_ruled_out_is_named_in_short_and_explained_with_v() {
    let mut doc = sample::full();
    let not =
        |what: &str| whyslow_model::RuledOut { what: what.into(), evidence: format!("{what} was idle") };
    doc.ruled_out = ["the disk", "swap", "a quota", "steal", "a clock"].map(not).to_vec();
    let short = said(&doc, false);
    assert!(
        short.contains("Ruled out: the disk, swap, a quota, steal, a clock (-v gives the evidence)\n"),
        "{short}"
    );
    assert!(said(&doc, true).contains("\nRuled out: swap: swap was idle\n"));
    doc.ruled_out.truncate(4);
    assert!(said(&doc, false).contains("\nRuled out: swap: swap was idle\n"));
}

#[test]
fn a_contradiction_is_printed_as_one_and_in_full() {
    let mut doc = sample::full();
    doc.contradictions = vec![whyslow_model::Contradiction {
        rule: "memory-limit".into(),
        what: "a memory limit".into(),
        shown: sample::s(3.2),
        text: "the chains show 3.2 s of waits for a memory limit".into(),
    }];
    for page in [said(&doc, false), said(&doc, true)] {
        assert!(page.contains("contradiction memory-limit: the chains show 3.2 s of waits"), "{page}");
    }
}

/// Without -v, too: nobody guesses that a kernel is locked down.
#[test]
fn who_may_not_read_is_reported_the_way_out_once() {
    let mut doc = sample::full();
    let refused =
        |what: &str, way_out: &str| Missing::NotAllowed { what: what.into(), way_out: way_out.into() };
    doc.missing.extend([
        refused("a file", "ask its owner").into(),
        refused("kernel locks", "boot otherwise").into(),
        refused("block I/O", "boot otherwise").into(),
        refused("kallsyms", "run as root").into(),
    ]);
    let said = said(&doc, false);
    assert!(said.contains("\n2 of them may not be read: boot otherwise\n"), "{said}");
}
