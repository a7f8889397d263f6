//! Whether what was said of masks is right. Pure: what was made and the document in, a verdict out.

use serde_json::Value;
use whyslow_faults::Wrong;
use whyslow_faults::look::Look;
use whyslow_faults::rounds::Verdict;
use whyslow_faults::said::{self, Sight, Verb};

pub const RULE: &str = "cpu-pinned";
/// What it rules out where it finds nothing.
const MATTER: &str = "an affinity mask";

/// Tasks that lose nothing to a mask.
#[derive(Debug)]
pub struct Quiet {
    pub names: Vec<String>,
    /// What they used.
    pub sights: Vec<Sight>,
    /// Why it did not come about, by the clocks of the test.
    pub is_not_made: Option<String>,
    /// What was drawn, and what they had.
    pub said: String,
}

/// It looked, and saw these.
pub fn saw(look: &Look, sights: &[Sight]) -> Result<(), Wrong> {
    look.is_sound(Verb::Exam)?;
    said::could_tell(&look.document, &[RULE])?;
    Ok(sights.iter().try_for_each(|sight| sight.is_in(&look.document))?)
}

/// Causes by masks.
fn causes(look: &Look) -> impl Iterator<Item = &Value> {
    let all = look.document["findings"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().filter(|found| found["rule"] == RULE && found["kind"] == "cause")
}

/// Causes by masks that name one of these as who lost.
pub fn accused<'l>(look: &'l Look, names: &[String]) -> Vec<&'l Value> {
    causes(look).filter(|found| names.iter().any(|name| found.to_string().contains(name))).collect()
}

/// Where nobody is accused, masks are ruled out. Where others of the host are they cannot be.
fn rules_out(look: &Look) -> Result<(), String> {
    let not = said::list(&look.document, "ruled_out")?;
    let is_reported = not.iter().any(|row| row["what"] == MATTER) || causes(look).next().is_some();
    if is_reported { Ok(()) } else { Err(format!("{MATTER} is neither told nor ruled out")) }
}

impl Quiet {
    /// Nobody of them is accused. Where it did not come about it may be true: then others, of lesser weight perhaps, had a part of
    /// the CPUs that were to be full.
    pub fn judge(&self, look: &Look) -> Verdict {
        let context = || format!("{} (all of it: {})", self.said, look.kept.display());
        let reported = saw(look, &self.sights).and_then(|()| Ok(rules_out(look)?));
        let accused = accused(look, &self.names);
        match (reported, &self.is_not_made, accused.first()) {
            (_, None, Some(found)) => {
                Verdict::Wrong(Wrong::accused(format!("{}: {}", found["title"], context())))
            }
            (Err(wrong), ..) => Verdict::Wrong(wrong.told(|what| format!("{what}: {}", context()))),
            (Ok(()), Some(why), _) => Verdict::Again(format!("{why}: {}", context())),
            (Ok(()), None, None) => Verdict::Passed,
        }
    }
}
