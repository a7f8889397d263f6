//! A scenario: one file that says what is made, what whyslow must answer, and what it must not report.
//!
//! Drawn values are under `[draw]`; `"$name"` anywhere else is replaced by them. A string that consists only of `"$name"` becomes the drawn
//! value itself, which may be a number or a list; in a longer string its text is inserted.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use toml::{Table, Value};
use whyslow_faults::Draw;
use whyslow_faults::expected::{Answer, Never, Without};

use crate::Trouble;
use crate::plan::LookSpec;
use crate::testbed::part::{FaultSpec, LoadSpec};

/// A section of the document.
const RULED_OUT: &str = "ruled-out";
/// Letters of a drawn word: with a short prefix it fits in the name of a task.
const WORD: usize = 7;
/// CPUs of a guest if the scenario does not set them.
const VCPUS: usize = 2;

/// The purpose of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sort {
    /// One fault, which must be found.
    Fault,
    /// A healthy host: no task may be accused.
    Control,
    /// Two faults at once; both must be found.
    Double,
}

/// One file, not yet drawn.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The file's name without its ending.
    pub name: String,
    /// The parts that do not depend on draws.
    pub head: Head,
    body: Table,
}

/// The properties of a scenario before anything is drawn.
#[derive(Debug, Clone, Deserialize)]
pub struct Head {
    /// One sentence.
    pub about: String,
    /// "6.1", "6.12", "host".
    pub kernels: Vec<String>,
    /// It must be found; otherwise a miss is listed, but does not fail the run.
    #[serde(default = "yes")]
    pub promised: bool,
    /// A proof may draw it.
    #[serde(default)]
    pub ci: bool,
}

fn yes() -> bool {
    true
}

/// A scenario after all draws.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The guest.
    #[serde(default)]
    pub hardware: Table,
    /// The faults.
    #[serde(default)]
    pub fault: Vec<FaultSpec>,
    /// The other load.
    #[serde(default)]
    pub load: Vec<LoadSpec>,
    /// How whyslow is run.
    #[serde(default)]
    pub look: LookSpec,
    /// What it must answer.
    #[serde(default)]
    pub answer: Vec<Answer>,
    /// What it must not report.
    #[serde(default)]
    pub never: Never,
    /// Rules whose causes are not false accusations here, although no answer requests them.
    #[serde(default)]
    pub may: Vec<String>,
    /// The table of a recording that its rule needs (replay).
    #[serde(default)]
    pub without: Option<Without>,
    /// An earlier boot, in which whyslow makes a recording to compare with.
    #[serde(default)]
    pub baseline: Option<Baseline>,
}

/// A boot of another guest with the same faults and loads, but no fault turned on. whyslow's recording of it is `{baseline}` in the
/// arguments of the run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// Differences from the observed guest.
    pub hardware: Table,
    /// Length of the recording, in seconds.
    pub window_s: u64,
}

impl Script {
    /// The guest of the boot before.
    #[must_use]
    pub fn hardware_before(&self) -> Option<Table> {
        let mut hardware = self.hardware.clone();
        hardware.extend(self.baseline.as_ref()?.hardware.clone());
        Some(hardware)
    }
}

impl Scenario {
    /// From the text of a file.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let body: Table = toml::from_str(text).map_err(|err| format!("{name}: {err}"))?;
        let head = Head::deserialize(body.clone()).map_err(|err| format!("{name}: {err}"))?;
        if head.kernels.is_empty() {
            return Err(format!("{name}: it names no kernel"));
        }
        Ok(Scenario { name: name.to_owned(), head, body })
    }

    /// All scenarios of the project.
    pub fn of(project: &Path) -> Result<Vec<Self>, Trouble> {
        Scenario::all(&project.join("lab/scenarios"))
            .map_err(|reason| Trouble::new("read the scenarios", reason))
    }

    /// All scenarios in a folder, by name.
    pub fn all(folder: &Path) -> Result<Vec<Self>, String> {
        let entries =
            fs::read_dir(folder).map_err(|err| format!("cannot read {}: {err}", folder.display()))?;
        let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
        files.sort();
        let read = |path: &std::path::PathBuf| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let text =
                fs::read_to_string(path).map_err(|err| format!("cannot read {}: {err}", path.display()))?;
            Scenario::parse(&name, &text)
        };
        files.iter().map(read).collect()
    }

    /// Its purpose, from its answers.
    #[must_use]
    pub fn sort(&self) -> Sort {
        let answers = self.body.get("answer").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let of = |answer: &Value| answer.get("of").and_then(Value::as_integer).unwrap_or(0);
        // Healthy hosts have answers that must be ruled out, too.
        let answers: Vec<&Value> =
            answers.iter().filter(|answer| answer.get("in") != Some(&RULED_OUT.into())).collect();
        match answers.first().map(|answer| of(answer)) {
            None => Sort::Control,
            Some(one) if answers.iter().all(|answer| of(answer) == one) => Sort::Fault,
            Some(_) => Sort::Double,
        }
    }

    /// Number of CPUs of its guest.
    #[must_use]
    pub fn vcpus(&self) -> usize {
        let reported = self.body.get("hardware").and_then(|hardware| hardware.get("vcpus")?.as_integer());
        reported.and_then(|n| usize::try_from(n).ok()).unwrap_or(VCPUS).max(1)
    }

    /// Draw all open values. The draws of a name do not depend on which other names there are.
    pub fn drawn(&self, draw: &Draw, cpus: usize) -> Result<(Script, BTreeMap<String, Value>), String> {
        let trouble = |what: String| format!("{}: {what}", self.name);
        let asked = match self.body.get("draw") {
            None => Table::new(),
            Some(Value::Table(asked)) => asked.clone(),
            Some(_) => return Err(trouble("draw is no table".into())),
        };
        let mut drawn = BTreeMap::new();
        for (name, how) in &asked {
            let value = draw_one(how, &mut draw.branch(name), cpus)
                .ok_or_else(|| trouble(format!("cannot draw {name}: {how:?}")))?;
            drawn.insert(name.clone(), value);
        }
        let mut body = Value::Table(self.body.clone());
        for name in ["draw", "about", "kernels", "promised", "ci"] {
            body.as_table_mut().map(|table| table.remove(name));
        }
        substitute(&mut body, &drawn).map_err(trouble)?;
        let script = Script::deserialize(body).map_err(|err| trouble(err.to_string()))?;
        match script.answer.iter().find(|answer| answer.of >= script.fault.len()) {
            Some(answer) => {
                Err(trouble(format!("an answer is about fault {}, which is not there", answer.of)))
            }
            None => Ok((script, drawn)),
        }
    }
}

/// `{ between = [a, b] }`, `{ of = [...] }`, `"word"`, `"cpu"`.
fn draw_one(how: &Value, draw: &mut Draw, cpus: usize) -> Option<Value> {
    match how {
        Value::String(text) if text == "word" => Some(Value::String(draw.word(WORD))),
        Value::String(text) if text == "cpu" => {
            let last = u64::try_from(cpus.max(1)).ok()?.saturating_sub(1);
            Some(Value::Integer(i64::try_from(draw.between(0, last)).ok()?))
        }
        Value::Table(table) if table.len() == 1 => {
            let (key, value) = table.iter().next()?;
            let list = value.as_array()?;
            match (key.as_str(), list.as_slice()) {
                ("between", [Value::Integer(low), Value::Integer(high)]) if low <= high => {
                    let room = high.checked_sub(*low).and_then(|room| u64::try_from(room).ok())?;
                    let above = i64::try_from(draw.between(0, room)).ok()?;
                    Some(Value::Integer(low.checked_add(above)?))
                }
                ("between", [Value::Float(low), Value::Float(high)]) if low < high => {
                    Some(Value::Float(draw.real(*low, *high)))
                }
                ("of", [_, ..]) => Some(draw.pick(list)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn substitute(value: &mut Value, drawn: &BTreeMap<String, Value>) -> Result<(), String> {
    match value {
        Value::String(text) if text.contains('$') => *value = filled(text, drawn)?,
        Value::Array(list) => list.iter_mut().try_for_each(|one| substitute(one, drawn))?,
        Value::Table(table) => table.iter_mut().try_for_each(|(_, one)| substitute(one, drawn))?,
        _ => {}
    }
    Ok(())
}

fn filled(text: &str, drawn: &BTreeMap<String, Value>) -> Result<Value, String> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        let end = after.find(|c| !is_of_name(c)).unwrap_or(after.len());
        let (name, left) = after.split_at(end);
        let value = drawn.get(name).ok_or_else(|| format!("\"{text}\": ${name} is not drawn"))?;
        if before.is_empty() && left.is_empty() && out.is_empty() {
            return Ok(value.clone());
        }
        out.push_str(before);
        match value {
            Value::String(word) => out.push_str(word),
            Value::Integer(number) => out.push_str(&number.to_string()),
            Value::Float(number) => out.push_str(&number.to_string()),
            other => return Err(format!("\"{text}\": {other:?} cannot stand in a text")),
        }
        rest = left;
    }
    out.push_str(rest);
    Ok(Value::String(out))
}

#[cfg(test)]
#[path = "scenario_tests.rs"]
mod tests;
