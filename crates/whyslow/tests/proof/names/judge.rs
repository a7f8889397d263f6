//! Whether the reported functions are right. No I/O: takes a document, samples and the program's own clock, returns a verdict.

use serde_json::Value;
use whyslow_faults::Wrong;
use whyslow_model::table::Sample;

/// Largest difference between a share and the program's own clock, as a part of the time.
const POINTS: f64 = 0.10;
/// Share of a function's samples that must have its callers, in order: the first samples are taken before the tables exist.
const WITH_CALLERS: f64 = 0.7;
/// Fewer samples do not give a reliable share.
const LEAST: u64 = 100;

/// What must be reported.
pub struct Expected {
    /// Two functions: each with its caller, and the caller of that one.
    pub names: [[String; 3]; 2],
    /// CPU time of each, in seconds.
    pub own: [f64; 2],
    /// Whether its callers can be known.
    pub has_callers: bool,
}

/// The document and the samples.
pub struct Said {
    pub document: Value,
    pub samples: Vec<Sample>,
}

/// Whether they are right.
pub fn judge(expected: &Expected, said: &Said) -> Result<(), Wrong> {
    let all: f64 = expected.own.iter().sum();
    for (names, own) in expected.names.iter().zip(expected.own) {
        let told = time_in(&said.document["wall"]["parts"], &names[0]);
        if (told - own).abs() > POINTS * all {
            let what = format!("{}: {told:.3} s, by its own clock {own:.3} of {all:.3}", names[0]);
            return Err(if told > 0.0 { Wrong::inexact(what) } else { Wrong::missed(what) });
        }
        if expected.has_callers {
            callers(names, &said.samples)?;
        }
    }
    Ok(())
}

/// CPU time of a function in the account.
fn time_in(parts: &Value, name: &str) -> f64 {
    let parts = parts.as_array().map_or(&[][..], Vec::as_slice);
    let own = |part: &Value| {
        let function = part["detail"]["user-code"]["function"].as_str();
        if function.is_some_and(|function| is(function, name)) {
            return part["time_s"].as_f64().unwrap_or(0.0);
        }
        time_in(&part["parts"], name)
    };
    parts.iter().map(own).sum()
}

/// A whole word, whatever stands before it: a crate, a return type.
fn is(function: &str, name: &str) -> bool {
    function == name || function.contains(name)
}

fn callers(names: &[String; 3], samples: &[Sample]) -> Result<(), String> {
    let inside = |sample: &&Sample| {
        sample.kernel.is_empty() && sample.user.first().is_some_and(|frame| is(frame, &names[0]))
    };
    let called = |sample: &&Sample| {
        names.iter().zip(&sample.user).all(|(name, frame)| is(frame, name)) && sample.user.len() > names.len()
    };
    let count = |samples: &mut dyn Iterator<Item = &Sample>| samples.map(|sample| sample.count).sum::<u64>();
    let all = count(&mut samples.iter().filter(inside));
    let with = count(&mut samples.iter().filter(inside).filter(called));
    if all < LEAST || (with as f64) < WITH_CALLERS * all as f64 {
        let some = samples.iter().filter(inside).max_by_key(|sample| sample.count).map(|sample| &sample.user);
        return Err(format!("{names:?}: {with} of {all} samples have their callers, most are {some:?}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> Expected {
        let names = [["a", "b", "c"], ["x", "y", "z"]].map(|lot| lot.map(str::to_owned));
        Expected { names, own: [0.6, 0.3], has_callers: true }
    }

    fn said(times: [f64; 2], users: [&[&str]; 2]) -> Said {
        let part = |name: &str, time: f64| serde_json::json!({"time_s": time, "detail": {"user-code": {"function": name}}, "parts": []});
        let parts = [part("a", times[0]), part("x", times[1])];
        let document = serde_json::json!({"wall": {"parts": [{"detail": {}, "parts": parts}]}});
        let sample = |user: &[&str]| Sample {
            user: user.iter().map(|frame| (*frame).to_owned()).collect(),
            count: 200,
            ..Sample::default()
        };
        Said { document, samples: users.map(sample).to_vec() }
    }

    #[test]
    fn missing_or_wrong_functions_and_callers_do_not_pass() {
        let right: [&[&str]; 2] = [&["a", "b", "c", "main"], &["x", "y", "z", "main"]];
        assert_eq!(judge(&expected(), &said([0.6, 0.3], right)), Ok(()));
        assert!(judge(&expected(), &Said { document: Value::Null, samples: Vec::new() }).is_err(), "echo");
        assert!(judge(&expected(), &said([0.3, 0.6], right)).is_err(), "the two functions are swapped");
        let short: [&[&str]; 2] = [&["a", "main"], &["x", "y", "z", "main"]];
        assert!(judge(&expected(), &said([0.6, 0.3], short)).is_err(), "callers");
        let other: [&[&str]; 2] = [&["a", "c", "b", "main"], &["x", "y", "z", "main"]];
        assert!(judge(&expected(), &said([0.6, 0.3], other)).is_err(), "in another order");
    }
}
