//! Whether a document about a day is right. No I/O: takes the scenario and the document, returns a verdict.

use serde_json::Value;
use whyslow_faults::look::Look;
use whyslow_faults::report_checks::{self, Sight, Verb};
use whyslow_faults::rounds::Verdict;
use whyslow_faults::wrong::{Sort, Wrong};
use whyslow_faults::{Form, Truth, thresholds};

use crate::days::day::Cell;

/// The hypervisor may steal CPU time at any time.
const NOT_OURS: &str = "steal";

/// Share of its time: whyslow reports a loss from a slightly larger share (5 %) on.
const A_LITTLE: f64 = 0.035;

/// A day that was made, by the clocks of its processes.
#[derive(Debug)]
pub struct Made {
    pub cell: Cell,
    pub truth: Truth,
    /// Names and ids of the victim.
    pub whose: Vec<String>,
    /// ... and of the culprit.
    pub blame: Vec<String>,
    pub rules: &'static [&'static str],
    /// Text that the title must also contain.
    pub says: &'static str,
    /// The process or group that keeps the CPUs full.
    pub busy: Option<String>,
    /// Groups that exist to make the host busy: their losses, and losses to them, are another matter.
    pub aside: Vec<String>,
    /// The group above all groups of the test: losses of other tasks on this host are another matter, too.
    pub top: String,
    pub said: String,
    pub sight: Sight,
}

impl Made {
    /// Why the day did not come about, by the victim's clock.
    fn is_not_made(&self) -> Option<String> {
        let share = self.truth.share();
        match self.cell.form {
            Form::Fault => (share < thresholds::A_FAULT).then(|| "it lost little".to_owned()),
            _ => (share > thresholds::NO_FAULT).then(|| "it lost something".to_owned()),
        }
    }

    fn as_asked(&self, look: &Look) -> Result<(), Wrong> {
        let of_others = |finding: &&Value| {
            let [victim, culprit] =
                ["victim", "culprit"].map(|party| finding[party]["id"].as_str().unwrap_or_default());
            let is_aside = |id: &str| self.aside.iter().any(|group| group == id);
            // If several groups fill the CPUs, one is the culprit and the title names all; the day's own victim may not be a victim of theirs.
            let title = finding["title"].as_str().unwrap_or_default();
            let fills_too = || self.aside.iter().any(|group| title.contains(group.as_str()));
            let is_bystanders = || finding["rule"] == "full-cpus" && !is_one(&finding["victim"], &self.whose);
            finding["rule"] == NOT_OURS
                || is_aside(victim)
                || is_aside(culprit)
                || (is_bystanders() && fills_too())
                || !self.is_ours(&finding["victim"])
        };
        let causes = findings(look).iter().filter(|finding| finding["kind"] == "cause");
        let first = causes.filter(|cause| !of_others(cause)).max_by(|a, b| lost(a).total_cmp(&lost(b)));
        match (self.cell.form, first) {
            (Form::Fault, None) => Err("no cause".into()),
            (Form::Fault, Some(first)) => self.is_told(first),
            (_, Some(blame)) if self.is_as_little(blame) => Ok(()),
            (_, Some(blame)) => Err(Wrong::accused(format!("no task lost time, and: {}", blame["title"]))),
            (_, None) => self.is_busy(look),
        }
    }

    /// A twin's victim has lost a little, too, and the report states that loss and no more.
    fn is_as_little(&self, blame: &Value) -> bool {
        let more = lost(blame) - self.truth.lost_s();
        self.truth.share() > A_LITTLE
            && is_one(&blame["victim"], &self.whose)
            && is_one(&blame["culprit"], &self.blame)
            && self.rules.iter().any(|rule| blame["rule"] == *rule)
            && more <= thresholds::EXACT * self.truth.lost_s()
    }

    /// Whether it belongs to the test, or is the whole host.
    fn is_ours(&self, party: &Value) -> bool {
        let own = [self.top.clone(), "host".to_owned()];
        is_one(party, &own) || is_one(party, &self.whose) || is_one(party, &self.blame)
    }

    /// Check the headline: victim, culprit, loss.
    fn is_told(&self, first: &Value) -> Result<(), Wrong> {
        if !is_one(&first["victim"], &self.whose) {
            return Err(Wrong::accused(format!("not the victim: {}", first["victim"])));
        }
        let is_itself = first["culprit"]["id"] == first["victim"]["id"];
        if is_itself || !is_one(&first["culprit"], &self.blame) {
            return Err(Wrong::accused(format!("not the culprit: {}", first["culprit"])));
        }
        if !self.rules.iter().any(|rule| first["rule"] == *rule) {
            return Err(Wrong::inexact(format!("by {} and not by {:?}", first["rule"], self.rules)));
        }
        if !first["title"].as_str().unwrap_or_default().contains(self.says) {
            return Err(Wrong::inexact(format!("not a word of {:?}: {}", self.says, first["title"])));
        }
        let (told, truth) = (lost(first), self.truth.lost_s());
        if (told - truth).abs() > thresholds::EXACT * truth {
            let percent = thresholds::EXACT * 100.0;
            return Err(Wrong::inexact(format!(
                "lost {told:.2} s is not within {percent:.0} % of {truth:.2} s"
            )));
        }
        Ok(())
    }

    /// The group or process that keeps the CPUs full, if there is one.
    fn is_busy(&self, look: &Look) -> Result<(), Wrong> {
        let Some(group) = &self.busy else { return Ok(()) };
        let is_busy = |finding: &&Value| finding["kind"] == "busy" && finding["rule"] == "full-cpus";
        let busy = findings(look).iter().find(is_busy).ok_or("the report calls no process busy")?;
        match is_one(&busy["victim"], std::slice::from_ref(group)) || is_one(&busy["victim"], &self.blame) {
            true => Ok(()),
            false => Err(Wrong::accused(format!("busy is {} and not {group}", busy["victim"]))),
        }
    }
}

/// Whether a party has one of these names or ids.
pub fn is_one(party: &Value, names: &[String]) -> bool {
    let (id, name) = (party["id"].as_str().unwrap_or_default(), party["name"].as_str().unwrap_or_default());
    // A number may be part of another number.
    let says = |own: &String| {
        own.parse::<u32>().is_err() && (name.contains(own.as_str()) || id.contains(own.as_str()))
    };
    names.iter().any(|own| own == id || says(own))
}

fn lost(finding: &Value) -> f64 {
    finding["lost_s"].as_f64().unwrap_or(0.0)
}

pub fn findings(look: &Look) -> &[Value] {
    look.document["findings"].as_array().map_or(&[], Vec::as_slice)
}

/// All findings, for debugging.
pub fn context(look: &Look) -> String {
    let titles = findings(look).iter().map(|finding| {
        let [kind, rule, title] = ["kind", "rule", "title"].map(|name| finding[name].as_str().unwrap_or("?"));
        let (victim, culprit) = (&finding["victim"]["name"], &finding["culprit"]["name"]);
        format!("\n  {kind} {rule} {:.2} s: {title}; victim {victim}, culprit {culprit}", lost(finding))
    });
    let told: String = titles.collect();
    format!("{told}\n  ({})", look.kept.display())
}

/// Judge a document about the scenario.
pub fn judge(made: &Made, look: &Look) -> Verdict {
    let context = || format!("{}; truth: {}; {}", made.said, made.truth, context(look));
    let sound = || {
        look.is_sound(Verb::Exam)?;
        report_checks::could_tell(&look.document, made.rules)?;
        Ok::<_, Wrong>(made.sight.is_in(&look.document)?)
    };
    // A false accusation counts even where whyslow was not able to observe.
    let reported = match (made.is_not_made(), made.as_asked(look)) {
        (None, Err(wrong)) if wrong.sort == Sort::False => Err(wrong),
        (Some(why), _) => sound().map(|()| Some(why)),
        (None, asked) => sound().and(asked).map(|()| None),
    };
    match reported {
        Ok(None) => Verdict::Passed,
        Ok(Some(why)) => Verdict::Again(format!("{why}: {}", context())),
        Err(wrong) => Verdict::Wrong(wrong.told(|what| format!("{what}: {}", context()))),
    }
}
