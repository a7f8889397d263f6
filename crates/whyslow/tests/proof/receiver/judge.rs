//! Whether what was said of a sender and its reader is right. Pure: what was made and the document in, a verdict out.

use serde_json::Value;
use whyslow_faults::look::Look;
use whyslow_faults::rounds::Verdict;
use whyslow_faults::said::{self, Sight, Verb};
use whyslow_faults::{Wrong, bars};

/// What the reader does between two reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reader {
    Prompt,
    Computes,
    Sleeps,
}

/// A process at one end.
pub struct End {
    pub pid: u32,
    pub comm: String,
}

/// What was made, and what became of it by the clocks of both.
pub struct Made {
    pub kind: Reader,
    pub reader: End,
    pub sender: End,
    /// Of the window, the part that the sender was in its calls.
    pub share: f64,
    /// Of the window, the part that either end was ready and did not run: schedstat.
    pub late: f64,
    pub sights: Vec<Sight>,
    /// What was drawn.
    pub said: String,
}

/// The rule that must find it.
pub const RULE: &str = "slow-receiver";
/// Rules that would each tell a part of it.
const NETWORK: [&str; 4] = [RULE, "softnet-drops", "retransmits", "listen-overflow"];
/// An end that has to wait for its CPU so long makes the sender's clock tell more than its reader cost it.
pub const LATE: f64 = 0.05;

impl Made {
    fn lost_s(&self, look: &Look) -> f64 {
        self.share * look.document["window_s"].as_f64().unwrap_or(0.0)
    }

    /// In one line.
    pub fn reported(&self, look: &Look) -> String {
        let one = |f: &&Value| format!("{} {} lost {}: {}", f["kind"], f["rule"], f["lost_s"], f["title"]);
        let reported: Vec<String> = of_network(&look.document).iter().map(one).collect();
        let (lost, late) = (self.lost_s(look), 100.0 * self.late);
        format!(
            "{}, lost {lost:.2} s, late for {late:.1} %; {} (all of it: {})",
            self.said,
            reported.join("; "),
            look.kept.display()
        )
    }

    /// Why nothing more can be concluded, by the clocks of the test.
    fn is_void(&self) -> Option<String> {
        if self.kind == Reader::Prompt && self.share >= bars::NO_FAULT {
            return Some("the sender lost something all the same".to_owned());
        }
        (self.late >= LATE).then(|| "others had the CPUs of reader or sender".to_owned())
    }
}

fn of_network(document: &Value) -> Vec<&Value> {
    let all = document["findings"].as_array().into_iter().flatten();
    all.filter(|f| f["kind"] != "cannot_tell" && NETWORK.iter().any(|rule| f["rule"] == *rule)).collect()
}

/// Judge a look at what was made.
pub fn judge(made: &Made, look: &Look) -> Verdict {
    let wrong = |wrong: Wrong| Verdict::Wrong(wrong.told(|what| format!("{what}: {}", made.reported(look))));
    if let Err(what) = on_any_host(made, look) {
        return wrong(what);
    }
    match (made.is_void(), as_asked(made, look)) {
        (Some(why), _) => Verdict::Again(format!("{why}: {}", made.reported(look))),
        (None, Ok(())) => Verdict::Passed,
        (None, Err(what)) => wrong(what),
    }
}

fn ours<'l>(made: &Made, look: &'l Look) -> Vec<&'l Value> {
    let names = |f: &&Value| {
        let words = f.to_string();
        words.contains(&made.reader.comm) || words.contains(&made.sender.comm)
    };
    of_network(&look.document).into_iter().filter(names).collect()
}

/// It looked, and whom it accuses it accuses rightly, whoever else uses the host.
fn on_any_host(made: &Made, look: &Look) -> Result<(), Wrong> {
    is_rightly_accused(made, look)?;
    look.is_sound(Verb::Exam)?;
    said::could_tell(&look.document, &NETWORK)?;
    said::rules_out(&look.document)?;
    Ok(made.sights.iter().try_for_each(|sight| sight.is_in(&look.document))?)
}

fn is_rightly_accused(made: &Made, look: &Look) -> Result<(), Wrong> {
    let ours = ours(made, look);
    if made.kind == Reader::Prompt {
        // Of a sender that lost something all the same it may be true.
        let is_false = !ours.is_empty() && made.share < bars::NO_FAULT;
        return if is_false { Err(Wrong::accused("the innocent is told of")) } else { Ok(()) };
    }
    let is = |found: &Value, whom: &str, end: &End| found[whom]["id"].as_str() == Some(&end.pid.to_string());
    match ours[..] {
        [] => Ok(()),
        [found] if found["kind"] != "cause" || found["rule"] != RULE => {
            Err(format!("no cause by {RULE}").into())
        }
        [found]
            if !is(found, "victim", &made.sender)
                || !(is(found, "culprit", &made.reader) || is_its_cpu(made, found)) =>
        {
            Err(Wrong::accused(format!("victim {}, culprit {}", found["victim"], found["culprit"])))
        }
        [_] => Ok(()),
        _ => Err(Wrong::accused(format!("{} findings, not one", ours.len()))),
    }
}

/// Where an end had to wait for its CPU, that may be what the sender waited for.
fn is_its_cpu(made: &Made, found: &Value) -> bool {
    made.late >= LATE && found["culprit"]["kind"] == "cpu"
}

/// What can be asked where nobody else had the CPUs of the two.
fn as_asked(made: &Made, look: &Look) -> Result<(), Wrong> {
    let ours = ours(made, look);
    if made.kind == Reader::Prompt {
        return if ours.is_empty() { Ok(()) } else { Err(Wrong::accused("told of")) };
    }
    let [found] = ours[..] else { return Err("not found".into()) };
    if found["culprit"]["kind"] == "cpu" {
        return Err(Wrong::accused(format!("not the reader but {}", found["culprit"]["name"])));
    }
    let state = if made.kind == Reader::Sleeps { "sleep" } else { "work" };
    if found["chain"][1]["reason"] != state {
        return Err(Wrong::inexact(format!("the reader's hop is {}", found["chain"][1])));
    }
    let (reported, lost) = (found["lost_s"].as_f64().unwrap_or(0.0), made.lost_s(look));
    if (reported - lost).abs() > bars::EXACT * lost {
        return Err(Wrong::inexact(format!("lost {reported}, not {lost:.2} s")));
    }
    Ok(())
}
