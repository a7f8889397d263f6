//! The words of the report. Golden texts keep them from drifting; after a change on purpose `WHYSLOW_BLESS=1` writes them anew,
//! and the diff says what changed.

mod cpus;
mod ends;
#[path = "../sample/mod.rs"]
mod sample;
mod waits;

use whyslow_model::{About, Check, Finding, Kind, Missing};
use whyslow_report::{Style, json, text};

fn said(doc: &whyslow_model::Document, verbose: bool) -> String {
    text(doc, &Style { verbose, ..Style::default() })
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
fn missing_data_is_the_headline_unless_there_is_a_cause() {
    let flat = |doc: &whyslow_model::Document| said(doc, false).replace('\n', " ");
    let mut doc = sample::unseen();
    let words = "Could not look: BPF programs are refused; run as root, or grant CAP_BPF and CAP_PERFMON. \
                 What files tell shows no cause; 1 question could not be answered.";
    assert!(flat(&doc).contains(words), "{}", flat(&doc));
    for page in [whyslow_report::chains, whyslow_report::locks] {
        let page = page(&doc, &Style::default());
        assert!(page.contains("Could not look: BPF programs"), "{page}");
    }
    doc.findings.insert(0, sample::full().findings[0].clone());
    assert!(
        flat(&doc).contains("web.service (shop-frontend) lost") && !flat(&doc).contains("Could not look")
    );
    let mut doc = sample::empty();
    let lost = Missing::part_of("off-CPU stacks", "a table was full, and 110 of 1100 could not be noted");
    doc.missing = vec![lost.into()];
    let words =
        "No cause found, and not all was seen: off-CPU stacks: a table was full, and 110 of 1100 could";
    assert!(flat(&doc).contains(words), "{}", flat(&doc));
}

#[test]
fn of_what_was_asked_about_the_first_sentence_speaks() {
    let of = |idle: bool| {
        let mut doc = sample::empty();
        doc.about = Some(About { name: "nginx (pid 7)".into(), idle });
        said(&doc, false).replace('\n', " ")
    };
    assert!(of(true).contains("No cause found for nginx (pid 7): it is idle, and no task waits for it."));
    assert!(of(false).contains("No cause found for nginx (pid 7): no rule found lost time"), "{}", of(false));
}

#[test]
fn colour_changes_no_word() {
    let doc = sample::full();
    let mut bare = text(&doc, &Style { colour: true, verbose: true, columns: None });
    for code in ["\x1b[0m", "\x1b[1m", "\x1b[1;31m", "\x1b[33m", "\x1b[36m", "\x1b[2m"] {
        bare = bare.replace(code, "");
    }
    assert_eq!(bare, said(&doc, true));
}

#[test]
fn a_cause_without_a_loss_in_time_says_what_happened_and_never_zero() {
    let mut doc = sample::full();
    doc.findings[0].lost = None;
    let page = said(&doc, false);
    assert!(page.contains("web.service (shop-frontend): ") && !page.contains(" lost 0"), "{page}");
    assert!(json(&doc).contains("\"lost_s\": null"));
}

/// Lines below the sentence that answers.
fn below(page: &str) -> usize {
    page.lines().skip_while(|line| !line.is_empty()).count()
}

#[test]
fn an_exam_is_a_sentence_and_fifteen_lines_whatever_was_found() {
    let whole = sample::full();
    for (causes, risks, words) in (0..40).flat_map(|n| [(n, 0, 1), (n, 40, 50), (0, n, 9)]) {
        let mut doc = whole.clone();
        let long = |finding: &Finding| Finding { title: finding.title.repeat(words), ..finding.clone() };
        let of = |kind: Kind, n: usize| {
            whole.findings.iter().filter(move |f| f.kind == kind).map(long).cycle().take(n)
        };
        doc.findings =
            of(Kind::Cause, causes).chain(of(Kind::Risk, risks)).chain(of(Kind::CannotTell, risks)).collect();
        let page = said(&doc, false);
        assert!(below(&page) <= 15, "{causes} causes, {risks} risks:\n{page}");
    }
}

#[test]
fn a_terminal_has_its_own_width() {
    let doc = sample::full();
    let wide = |columns: u16| {
        let page = text(&doc, &Style { columns: Some(columns), ..Style::default() });
        let words = page.lines().filter(|line| !line.contains('$'));
        words.map(whyslow_report::safe::columns).max().unwrap_or(0)
    };
    assert!(wide(100) <= 100 && wide(100) > 80, "{}", wide(100));
    assert!(wide(60) <= 60 && wide(3) <= 60, "narrower than that nobody reads");
    assert!(wide(u16::MAX) <= 120);
}

#[test]
fn much_that_is_ruled_out_is_named_in_short_and_explained_with_v() {
    let mut doc = sample::full();
    let not =
        |what: &str| whyslow_model::RuledOut { what: what.into(), evidence: format!("{what} was idle") };
    doc.ruled_out = ["the disk", "swap", "a quota", "steal", "a clock"].map(not).to_vec();
    let short = said(&doc, false);
    let line = "Ruled out: 5 (-v says why): the disk, swap, a quota, steal, a clock\n";
    assert!(short.contains(line), "{short}");
    assert!(said(&doc, true).contains("\nRuled out: swap: swap was idle\n"));
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

/// Without -v, too: a locked-down kernel is named, and not guessed from the refusals.
#[test]
fn way_out_shared_by_the_most_refusals_is_printed_with_their_number() {
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

#[test]
fn a_table_that_was_full_is_told_beside_the_cause_that_rests_on_it() {
    let mut doc = sample::full();
    let text = "it may be more than is reported: 400 of 500 events were lost".to_owned();
    doc.findings[0].check.push(Check { text, command: None });
    assert!(said(&doc, false).contains("\ndoubt    it may be more than is reported: 400 of 500"));
}

#[test]
fn a_command_is_told_with_all_of_its_undo_or_not_at_all() {
    let doc = sample::full();
    let page = |fix: &str| {
        let mut doc = doc.clone();
        fix.clone_into(&mut doc.findings[0].fixes[0].text);
        said(&doc, false)
    };
    assert!(page("raise it (undo: echo 1 > /x)").contains("$ echo 200000 > "));
    for long in [format!("raise it (undo: echo 1 > /{})", "x".repeat(90)), "raise it ".repeat(60)] {
        let page = page(&long);
        assert!(
            !page.contains("$ echo 200000") && page.contains("\nfix      there is one: -v tells it"),
            "{page}"
        );
    }
}
