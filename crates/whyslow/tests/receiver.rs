//! A reader that is too slow for its sender, in a network namespace of the test's own: found with reader, sender and time; its healthy twin is
//! not accused. Message size, pace and the reader's slowness are drawn; the time lost is told by the sender's own clock.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;
use whyslow_faults::ledger::{Fact, Ledger, Word};
use whyslow_faults::look::Look;
use whyslow_faults::rounds::{self, Outcome, Trouble};
use whyslow_faults::spec::{Network, Work};
use whyslow_faults::{Draw, Fence, Victim, bars, clock};

whyslow_faults::may_become_victim!();

/// What the reader does between two reads.
#[derive(Clone, Copy, PartialEq)]
enum Reader {
    Prompt,
    Computes,
    Sleeps,
}

/// Rules that would each tell a part of it.
const NETWORK: [&str; 4] = ["slow-receiver", "softnet-drops", "retransmits", "listen-overflow"];

fn kept_in() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Time that the sender was in its call, and when that was read.
fn waited(ledger: &Ledger) -> (u64, u64) {
    (ledger.fact(0, Fact::Busy).load(Ordering::Acquire), clock::now())
}

fn cell(kind: Reader, draw: &mut Draw, label: &str) -> Result<Outcome, Trouble> {
    let mut why = String::new();
    for attempt in 0..bars::TRIES {
        let fence = Fence::enter()?;
        let (port, bytes) = (draw.between(1024, 30_000) as u16, draw.between(100, 1500));
        let every_us = draw.between(400, 900);
        let slow_us = if kind == Reader::Prompt { 0 } else { every_us * draw.between(6, 20) };
        let (group, other) = (fence.group(&draw.word(6))?, fence.group(&draw.word(7))?);
        let work = Work::Pull { port, bytes, sleeps: kind == Reader::Sleeps };
        let mut spec = fence.spec(&group, &draw.word(9), 1, work);
        spec.network = Network::Own;
        let reader = Victim::spawn(spec)?;
        let mut spec = fence.spec(&other, &draw.word(8), 1, Work::Push { port, bytes, every_us });
        spec.network = Network::Of(reader.pid());
        let mut sender = Victim::spawn(spec)?;
        reader.ledger().word(Word::AcceptPause).store(slow_us, Ordering::Relaxed);
        reader.go();
        sender.go();
        sender.until_it_moves()?;
        std::thread::sleep(bars::SETTLE);
        let before = waited(sender.ledger());
        let length = format!("{}s", bars::WINDOW_S);
        let kept = kept_in().join(format!("{label}-{attempt}.json"));
        let whyslow = env!("CARGO_BIN_EXE_whyslow").as_ref();
        let look = Look::now(
            whyslow,
            &["exam", "--for", &length, "--json"],
            Duration::from_secs(bars::WINDOW_S),
            &kept,
        )?;
        let after = waited(sender.ledger());
        let share = (after.0 - before.0) as f64 / (after.1 - before.1) as f64;
        let lost = share * look.document["window_s"].as_f64().unwrap_or(0.0);
        let said = format!(
            "{bytes} bytes every {every_us} us, {slow_us} us a read, lost {lost:.2} s; {}",
            told(&look.document)
        );
        println!("{said}");
        match judge(kind, &look.document, &reader, &sender, lost) {
            Ok(()) => return Ok(Outcome::Passed),
            // A sender that has to wait for its CPU is in its call, too: on a busy host its clock tells more than it lost.
            Err(trouble) if attempt + 1 < bars::TRIES => why = format!("{trouble}: {said}"),
            Err(trouble) => return Err(format!("{trouble}: {said}; before: {why}").into()),
        }
    }
    Ok(Outcome::HostNotIdle(why))
}

fn of_network(document: &Value) -> Vec<&Value> {
    let all = document["findings"].as_array().into_iter().flatten();
    all.filter(|f| f["kind"] != "cannot_tell" && NETWORK.iter().any(|rule| f["rule"] == *rule)).collect()
}

fn told(document: &Value) -> String {
    let one = |f: &&Value| format!("{} {} lost {}: {}", f["kind"], f["rule"], f["lost_s"], f["title"]);
    of_network(document).iter().map(one).collect::<Vec<_>>().join("; ")
}

fn judge(kind: Reader, document: &Value, reader: &Victim, sender: &Victim, lost: f64) -> Result<(), Trouble> {
    let ours: Vec<_> = of_network(document)
        .into_iter()
        .filter(|f| {
            let words = f.to_string();
            words.contains(reader.comm()) || words.contains(sender.comm())
        })
        .collect();
    if kind == Reader::Prompt {
        return if ours.is_empty() { Ok(()) } else { Err("the innocent is told of".into()) };
    }
    let [found] = ours[..] else { return Err(format!("{} findings, not one", ours.len()).into()) };
    if found["kind"] != "cause" || found["rule"] != "slow-receiver" {
        return Err("no cause by slow-receiver".into());
    }
    let is = |whom: &str, pid: u32| found[whom]["id"].as_str() == Some(pid.to_string().as_str());
    if !is("victim", sender.pid()) || !is("culprit", reader.pid()) {
        return Err(format!("victim {}, culprit {}", found["victim"], found["culprit"]).into());
    }
    let state = if kind == Reader::Sleeps { "sleep" } else { "work" };
    if found["chain"][1]["edge"] != state {
        return Err(format!("the reader's hop is {}", found["chain"][1]).into());
    }
    let told = found["lost_s"].as_f64().unwrap_or(0.0);
    if (told - lost).abs() > bars::EXACT * lost {
        return Err(format!("lost {told}, not {lost:.2} s").into());
    }
    Ok(())
}

fn run(kind: Reader, label: &str) {
    rounds::run(&label, |_| true, kept_in(), |draw| cell(kind, draw, label));
}

#[test]
fn root_a_reader_that_computes_too_long_is_found_behind_its_sender() {
    run(Reader::Computes, "a reader that computes");
}

#[test]
fn root_a_reader_that_sleeps_is_found_behind_its_sender() {
    run(Reader::Sleeps, "a reader that sleeps");
}

#[test]
fn root_a_prompt_reader_is_not_accused() {
    run(Reader::Prompt, "a prompt reader");
}
