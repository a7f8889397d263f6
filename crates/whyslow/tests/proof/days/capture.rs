//! Recordings of days for replay (`make capture-days`): where `WHYSLOW_CAPTURE` names a folder, the recording of a day that was judged
//! right is kept there, with the truth beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use whyslow_faults::expected::{Answer, Captured, Expected, Facts, Never, Proof, Without};
use whyslow_faults::rounds::Verdict;
use whyslow_faults::{Form, thresholds};

use crate::days::day::Cell;
use crate::days::judge::Made;

/// The recording of a cell.
pub struct Capture {
    name: String,
    into: PathBuf,
}

impl Capture {
    /// The capture, if the environment requests it.
    pub fn of(cell: Cell) -> io::Result<Option<Self>> {
        let Some(into) = env::var_os("WHYSLOW_CAPTURE") else { return Ok(None) };
        fs::create_dir_all(&into)?;
        Ok(Some(Capture { name: cell.to_string(), into: into.into() }))
    }

    pub fn recording(&self) -> PathBuf {
        self.file("why")
    }

    fn file(&self, end: &str) -> PathBuf {
        self.into.join(format!("{}-host.{end}", self.name))
    }

    /// A truth from another try would belong to a recording that is gone. A recording without a truth is kept for debugging.
    pub fn end(&self, made: &Made, verdict: &Verdict) -> io::Result<()> {
        let truth = self.file("json");
        match verdict {
            Verdict::Passed => fs::write(truth, serde_json::to_vec_pretty(&self.truth(made))?),
            _ if truth.exists() => fs::remove_file(truth),
            _ => Ok(()),
        }
    }

    fn truth(&self, made: &Made) -> Captured {
        let truth = &made.truth;
        let (is_fault, what) =
            (made.cell.form == Form::Fault, format!("{}; its victims' pieces of work a second", made.said));
        let proof = match is_fault {
            true => {
                Proof::falls(what, truth.rate_with, truth.rate_without, 1.0 / (1.0 - thresholds::A_FAULT))
            }
            false => {
                Proof::stays(what, truth.rate_with, truth.rate_without, 1.0 / (1.0 - thresholds::NO_FAULT))
            }
        };
        let names = [("victim", made.whose.join("|")), ("culprit", made.blame.join("|"))];
        let names: BTreeMap<String, String> =
            names.into_iter().map(|(key, name)| (key.to_owned(), name)).collect();
        let answer = Answer {
            rank: 1,
            rules: made.rules.iter().map(ToString::to_string).collect(),
            names: vec!["{victim}".to_owned(), "{culprit}".to_owned()],
            lost: Some([1.0 - thresholds::EXACT, 1.0 + thresholds::EXACT]),
            ..Answer::default()
        };
        Captured {
            scenario: self.name.clone(),
            kernel: "host".to_owned(),
            expected: Expected {
                faults: vec![Facts { proof, lost_s: Some((truth.lost_s(), truth.lost_s())), names }],
                seen: vec![made.sight.clone()],
                answer: if is_fault { vec![answer] } else { Vec::new() },
                never: Never { any_cause: !is_fault, ..Never::default() },
                may: vec!["steal".to_owned()],
                ..Expected::default()
            },
            without: made
                .rules
                .last()
                .filter(|_| is_fault)
                .map(|rule| Without { table: table_of(rule).to_owned(), rule: (*rule).to_owned() }),
        }
    }
}

/// The table that a rule needs.
fn table_of(rule: &str) -> &'static str {
    match rule {
        "cache-taken" => "memory",
        "full-cpus" => "tasks",
        _ => "spans",
    }
}

/// The arguments of whyslow, with a recording if one is requested.
pub fn arguments(capture: Option<&Capture>) -> Vec<String> {
    let record = capture.map(|capture| ["-o".to_owned(), path(&capture.recording())]);
    ["exam".to_owned()].into_iter().chain(record.into_iter().flatten()).collect()
}

fn path(file: &Path) -> String {
    file.display().to_string()
}
