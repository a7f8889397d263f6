//! Whatever a process calls itself, the page stays a page.

mod sample;

use proptest::prelude::*;
use whyslow_model::shell::Command;
use whyslow_model::wait::{Deed, Detail, IoAbout, Mismatch, Operation, Who};
use whyslow_model::{Document, Hop, Kind, Missing};
use whyslow_report::safe::{columns, is_unsafe};
use whyslow_report::{Style, blocked, chains, cpus, jobs, json, json_line, locks, pings, stalls, text, work};

/// Names as processes choose them: any characters, many of them those that a terminal obeys.
fn name() -> impl Strategy<Value = String> {
    let nasty =
        prop::sample::select(vec!["\x1b[31m", "\n", "\r", "\u{202e}", "\u{9b}2J", "\t", "数", " ", "a/b"]);
    prop_oneof![
        any::<String>(),
        "[a-z/\\x00-\\x20]{0,200}",
        prop::collection::vec(nasty, 0..60).prop_map(|v| v.concat())
    ]
}

/// A document that holds `names` wherever a document holds text.
fn with(names: &[String]) -> Document {
    let mut doc = sample::full();
    let mut next = names.iter().cycle().cloned();
    let mut name = || next.next().unwrap_or_default();
    name_waits(&mut doc, &mut name);
    (doc.host, doc.kernel, doc.started_at, doc.whyslow) = (name(), name(), name(), name());
    for f in &mut doc.findings {
        (f.rule, f.title) = (name(), name());
        (f.victim.id, f.victim.name, f.victim.unit, f.victim.container) =
            (name(), name(), Some(name()), Some(name()));
        (f.victim.description, f.victim.pod, f.victim.image) = (Some(name()), Some(name()), Some(name()));
        (f.overlaps, f.resource) = (vec![name()], Some(name()));
        if let Some(c) = &mut f.culprit {
            (c.id, c.name, c.function, c.file) = (name(), name(), Some(name()), Some(name()));
        }
        for h in &mut f.chain {
            let old = h.clone();
            *h = Hop { who: name().into(), detail: name().into(), grows_with: Some(name()), ..old };
        }
        for c in &mut f.check {
            (c.text, c.command) = (name(), Some(Command::of_quoted(name())));
        }
        for x in &mut f.fixes {
            (x.text, x.command) = (name(), Some(Command::of_quoted(name())));
        }
    }
    for c in &mut doc.contradictions {
        (c.rule, c.what, c.text) = (name(), name(), name());
    }
    for n in &mut doc.ruled_out {
        (n.what, n.evidence) = (name(), name());
    }
    for row in &mut doc.resources {
        (row.name, row.amount, row.saturated) = (name(), name(), Some(name()));
        (row.by, row.paid_by) = (Some(name()), Some(name()));
    }
    for state in &mut doc.account.by_state {
        state.state = name();
    }
    for row in &mut doc.account.by_cgroup {
        (row.id, row.name) = (name(), name());
    }
    doc.account.notes = vec![name(), name()];
    doc.account.doubts = vec![name()];
    doc.missing.push(Missing::broken(name(), name()).into());
    doc
}

fn any_who(name: &mut impl FnMut() -> String) -> Who {
    Who::Task { comm: name(), work: Some(name()) }
}

fn any_detail(name: &mut impl FnMut() -> String) -> Detail {
    let of = Box::new(Detail::Device {
        device: name(),
        operation: Operation::In(name()),
        about: Some(IoAbout::File { path: name(), deleted: true }),
    });
    Detail::Short { of, woken_by: Some(name()) }
}

fn name_waits(doc: &mut Document, name: &mut impl FnMut() -> String) {
    for chain in &mut doc.chains {
        for hop in &mut chain.hops {
            (hop.who, hop.detail, hop.grows_with) = (any_who(name), any_detail(name), Some(name()));
        }
        chain.tasks = vec![vec![(1, name().into()), (2, name().into())]; chain.hops.len()];
        (chain.leaf.id, chain.leaf.name, chain.leaf.function) = (name(), name(), Some(name()));
    }
}

/// The same of a document about somebody watched.
fn watched_with(names: &[String]) -> Document {
    let mut doc = sample::waits::watched();
    let mut next = names.iter().cycle().cloned();
    let mut name = || next.next().unwrap_or_default();
    name_waits(&mut doc, &mut name);
    if let Some(wall) = &mut doc.wall {
        wall.of = name();
        wall.mismatches = vec![Mismatch::Switches { comm: name(), pid: 7, ours: 1, kernels: 2 }];
        for part in &mut wall.parts {
            (part.who, part.detail) = (any_who(&mut name), any_detail(&mut name));
            for part in &mut part.parts {
                (part.who, part.detail) = (any_who(&mut name), any_detail(&mut name));
            }
        }
    }
    for lock in &mut doc.locks {
        (lock.name, lock.address) = (name(), name());
        lock.sites.iter_mut().for_each(|site| site.site = name());
        lock.holders.iter_mut().for_each(|holder| {
            holder.who = any_who(&mut name);
            holder.did = vec![Deed::WaitedFor(any_detail(&mut name)), Deed::GaveBack { function: name() }];
        });
    }
    for wait in doc.blocked.iter_mut().flat_map(|all| &mut all.waits) {
        (wait.what, wait.site) = (name(), name());
        wait.examples = vec![name(), name()];
        for holder in wait.chains.iter_mut().flat_map(|chain| &mut chain.holders) {
            (holder.who, holder.what) = (any_who(&mut name), name());
        }
    }
    for root in doc.blocked.iter_mut().flat_map(|all| &mut all.roots) {
        (root.who, root.what) = (any_who(&mut name), name());
    }
    for stall in &mut doc.stalls {
        stall.unknown = stall.unknown.as_ref().map(|_| name());
        stall.thread = stall.thread.as_ref().map(|_| name());
        if let Some(culprit) = &mut stall.culprit {
            (culprit.who, culprit.group, culprit.call) = (name(), Some(name()), Some(name()));
            (culprit.file, culprit.function) = (Some(name()), Some(name()));
            culprit.stack = vec![name(), name()];
        }
    }
    let mut pings = sample::waits::pings();
    (pings.target, pings.address, pings.how) = (name(), name(), name());
    (pings.notes, pings.unwatched) = (vec![name()], None);
    pings.silent = Some(name());
    pings.ruled_out.iter_mut().for_each(|not| (not.what, not.evidence) = (name(), name()));
    pings.not_sent.iter_mut().for_each(|refused| refused.error = name());
    for explained in &mut pings.explained {
        explained.unknown = explained.unknown.as_ref().map(|_| name());
        explained.culprit.clone_from(&doc.stalls[0].culprit);
    }
    doc.pings = Some(pings);
    for call in &mut doc.calls {
        (call.syscall, call.path) = (name(), Some(name()));
    }
    doc.cpus = sample::full().cpus;
    for cpu in &mut doc.cpus {
        (cpu.governor, cpu.idle_state, cpu.reasons) = (Some(name()), Some(name()), vec![name(), name()]);
        cpu.not_measured = cpu.not_measured.as_ref().map(|_| name());
    }
    for call in &mut doc.slow_calls {
        (call.who, call.syscall, call.path) = (name(), name(), Some(name()));
    }
    doc
}

/// A command, or one path that has no place to break.
fn may_be_long(line: &str) -> bool {
    let words = line.trim_start().trim_start_matches("check").trim_start();
    words.starts_with("$ ")
        || (words.contains('/') && line.split(' ').any(|w| w.contains('/') && columns(w) > 60))
}

proptest! {
    #[test]
    fn no_control_character_and_no_line_over_80_columns(names in prop::collection::vec(name(), 1..40), verbose: bool) {
        let page = text(&with(&names), &Style { verbose, ..Style::default() });
        for line in page.lines() {
            prop_assert!(!line.chars().any(is_unsafe), "{line:?}");
            prop_assert!(columns(line) <= 80 || may_be_long(line), "{line:?}");
        }
        prop_assert!(page.chars().all(|c| c == '\n' || !is_unsafe(c)));
    }

    #[test]
    fn waits_keep_to_the_page_without_exception(names in prop::collection::vec(name(), 1..40), verbose: bool) {
        let doc = watched_with(&names);
        let style = Style { verbose, ..Style::default() };
        let pages = [text(&doc, &style), chains(&doc, &style), locks(&doc, &style), cpus(&doc, &style), work(&doc, &style), jobs(&doc, &style), blocked(&doc, &style)];
        for page in pages.into_iter().chain([stalls(&doc, &style), pings(&doc, &style)]) {
            for line in page.lines() {
                prop_assert!(!line.chars().any(is_unsafe), "{line:?}");
                prop_assert!(columns(line) <= 80, "{line:?}");
            }
        }
        prop_assert!(json_line(&doc).trim_end().chars().all(|c| !is_unsafe(c)));
    }

    #[test]
    fn json_never_holds_what_a_terminal_obeys_and_stays_json(names in prop::collection::vec(name(), 1..40)) {
        let doc = with(&names);
        let printed = json(&doc);
        prop_assert!(printed.chars().all(|c| c == '\n' || !is_unsafe(c)));
        let read: serde_json::Value = serde_json::from_str(&printed).unwrap();
        prop_assert_eq!(read["host"].as_str(), Some(doc.host.as_str()));
        prop_assert_eq!(read["findings"][0]["title"].as_str(), Some(doc.findings[0].title.as_str()));
    }
}

#[test]
fn a_name_with_a_newline_cannot_forge_a_line() {
    let mut doc = sample::full();
    doc.findings.retain(|f| f.kind == Kind::Cause);
    doc.findings[0].victim.name = "x\n2. innocent.service lost 9 h: fake".into();
    let page = text(&doc, &Style::default());
    assert!(!page.lines().any(|l| l.starts_with("2. innocent")), "{page}");
    assert!(page.contains("x\\x0a2. innocent.service"), "{page}");
}

#[test]
fn numbers_that_make_no_sense_are_not_a_panic() {
    let mut doc = sample::full();
    for bpf in [f64::NAN, f64::INFINITY, -1.0, f64::MAX] {
        doc.own_cost.bpf_s = Some(bpf);
        doc.window = std::time::Duration::MAX;
        doc.account.wall = std::time::Duration::MAX;
        doc.account.by_state.iter_mut().for_each(|s| s.time = std::time::Duration::MAX);
        assert!(text(&doc, &Style::default()).contains("an unknown time"));
        assert!(json(&doc).contains("own_cost"));
    }
}

#[test]
fn a_page_of_what_was_not_seen_is_a_page() {
    let page = text(&sample::unseen(), &Style::default());
    assert!(page.lines().all(|line| columns(line) <= 80), "{page}");
}
