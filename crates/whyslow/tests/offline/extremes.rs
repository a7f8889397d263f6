//! Tables with extreme numbers: each report ends, without a panic. A small host with rows in every table; some of its numbers become zero,
//! the largest value of the field, or ids that form circles.

use std::collections::HashMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use whyslow_analyze::examine;
use whyslow_faults::{Draw, story};
use whyslow_model::Recording;

#[path = "../scale/host.rs"]
mod host;

/// Ten times as large as what is drawn.
const TEN: host::Size =
    host::Size { tasks: 400, cgroups: 120, throttled: 60, cpus: 40, spans: 1200, samples: 400 };

/// The largest number that each field takes, by type and path.
type Largest = HashMap<(&'static str, String), Option<u64>>;

struct Mutation<'d> {
    draw: &'d mut Draw,
    largest: &'d mut Largest,
    /// One number in so many is changed.
    one_in: u64,
}

fn numbers(value: &Value, at: &str, paths: &mut Vec<String>) {
    match value {
        Value::Number(n) if n.is_u64() => paths.push(at.to_owned()),
        Value::Array(all) => {
            all.iter().enumerate().for_each(|(n, one)| numbers(one, &format!("{at}/{n}"), paths));
        }
        Value::Object(all) => all.iter().for_each(|(name, one)| numbers(one, &format!("{at}/{name}"), paths)),
        _ => {}
    }
}

impl Mutation<'_> {
    fn largest<T: DeserializeOwned>(&mut self, row: &Value, path: &str) -> Option<u64> {
        let takes = |most: &u64| {
            let mut tried = row.clone();
            *tried.pointer_mut(path)? = Value::from(*most);
            serde_json::from_value::<T>(tried).ok().map(|_| *most)
        };
        let key = (std::any::type_name::<T>(), path.to_owned());
        let all = [u64::MAX, u64::from(u32::MAX), u64::from(u16::MAX), u64::from(u8::MAX)];
        *self.largest.entry(key).or_insert_with(|| all.iter().find_map(takes))
    }

    fn row<T: Serialize + DeserializeOwned>(&mut self, row: &mut T) {
        let mut value = serde_json::to_value(&*row).unwrap();
        let mut paths = Vec::new();
        numbers(&value, "", &mut paths);
        for path in paths {
            if !self.draw.one_in(self.one_in) {
                continue;
            }
            let Some(most) = self.largest::<T>(&value, &path) else { continue };
            let extremes = [0, 1, 2, 1003, most / 2, most / 2 + 1, most - 1, most, most, most];
            let drawn = self.draw.pick(&extremes).min(most);
            if let Some(number) = value.pointer_mut(&path) {
                *number = Value::from(drawn);
            }
        }
        if let Ok(changed) = serde_json::from_value(value) {
            *row = changed;
        }
    }

    fn rows<T: Serialize + DeserializeOwned + Clone>(&mut self, rows: &mut Option<Vec<T>>) {
        if let Some(rows) = rows {
            rows.iter_mut().for_each(|row| self.row(row));
            if let Some(first) = rows.first().cloned().filter(|_| self.draw.one_in(3)) {
                rows.push(first); // ids that occur twice
            }
        }
        if self.draw.one_in(60) {
            *rows = None;
        }
    }
}

fn mutated(draw: &mut Draw, largest: &mut Largest) -> Recording {
    let mut rec = host::recording(TEN.part(10), draw.any());
    let one_in = draw.pick(&[1, 2, 5, 30]);
    let mut change = Mutation { draw, largest, one_in };
    let tables = &mut rec.tables;
    macro_rules! change {
        ($($name:ident)*) => { $(change.rows(&mut tables.$name);)* };
    }
    change!(tasks cgroups samples waits cpus memory disk connects listeners programs spans stacks runs holds);
    change!(locks works failed_calls latency_holders spins calls slow_calls polls sockets speeds cross_calls late_timers);
    change!(gaps irq_latencies stalls stat_reads churn populations blocked pings requests io_files groups users);
    if change.draw.one_in(2) {
        change.row(&mut rec.meta);
    }
    rec
}

#[test]
fn no_rows_however_wrong_make_a_report_panic() {
    let cases = std::env::var("WHYSLOW_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let mut largest = Largest::new();
    let mut bad = Vec::new();
    for round in 0..cases {
        let mut draw = Draw::of_run("extremes", round);
        let rec = mutated(&mut draw, &mut largest);
        let before = std::time::Instant::now();
        let reported = std::panic::catch_unwind(|| {
            let document = examine(&rec);
            // Such times do not add up, and ids occur twice; the report must not contradict itself all the same.
            let contradictions = story::contradicts(&serde_json::to_value(&document).unwrap());
            assert!(contradictions.is_empty(), "{contradictions:#?}");
            whyslow_report::text(&document, &whyslow_report::Style::default()).len()
                + whyslow_report::json(&document).len()
        });
        if reported.is_err() {
            bad.push(round);
        }
        assert!(before.elapsed().as_secs() < 60, "round {round} takes too long");
    }
    assert!(bad.is_empty(), "rounds {bad:?}: see the panics above");
}
