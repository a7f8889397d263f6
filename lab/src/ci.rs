//! Which scenarios one run of the proof (`lab run --ci`) runs.
//!
//! All that are meant for CI are shuffled anew for each *epoch* and cut into parts of so many; the run's number says
//! the epoch and the part. So numbers that follow each other run every scenario once in each epoch, and none goes
//! undrawn for longer than two epochs less one run. A run on a fresh machine knows no number of its own: it takes
//! the number of commits. Where that jumps, by whatever step, a draw is as good as any other: each scenario is run
//! with the chance part / all.

use whyslow_faults::Draw;

use crate::scenario::{Scenario, Sort};

/// How many of each sort one run runs.
const PARTS: [(Sort, usize); 3] = [(Sort::Fault, 8), (Sort::Control, 5), (Sort::Double, 1)];

/// What the run with this number runs: scenario and kernel.
#[must_use]
pub fn drawn(all: &[Scenario], number: u64) -> Vec<(&Scenario, &str)> {
    PARTS.iter().flat_map(|(sort, part)| of_sort(all, *sort, *part, number)).collect()
}

fn of_sort(all: &[Scenario], sort: Sort, part: usize, number: u64) -> Vec<(&Scenario, &str)> {
    let meant: Vec<&Scenario> =
        all.iter().filter(|scenario| scenario.head.ci && scenario.sort() == sort).collect();
    let parts = meant.len().div_ceil(part).max(1);
    let (epoch, turn) = (number / parts as u64, (number % parts as u64) as usize);
    let mut left: Vec<(usize, &Scenario)> = meant.iter().copied().enumerate().collect();
    let mut draw = Draw::with(epoch).branch(&format!("{sort:?}"));
    let mut order = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let at = draw.between(0, left.len() as u64 - 1) as usize;
        order.push(left.swap_remove(at));
    }
    // The last part begins earlier where it would be too short.
    let from = (turn * part).min(order.len().saturating_sub(part));
    let drawn = order.into_iter().skip(from).take(part);
    drawn.map(|(place, scenario)| (scenario, kernel(scenario, place, epoch))).collect()
}

/// Another one in each epoch, and not the same for all of them.
fn kernel(scenario: &Scenario, place: usize, epoch: u64) -> &str {
    let kernels = &scenario.head.kernels;
    let at = (epoch % kernels.len().max(1) as u64) as usize + place;
    kernels.get(at % kernels.len().max(1)).map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn many(faults: usize, controls: usize, doubles: usize) -> Vec<Scenario> {
        let make = |sort: &str, n: usize, answers: &str| {
            (0..n)
                .map(|i| {
                    let text = format!("about = \"x\"\nkernels = [\"6.1\", \"6.12\"]\nci = true\n{answers}");
                    Scenario::parse(&format!("{sort}-{i}"), &text).unwrap()
                })
                .collect::<Vec<_>>()
        };
        let mut all = make("fault", faults, "[[answer]]\n");
        all.extend(make("control", controls, ""));
        all.extend(make("double", doubles, "[[answer]]\n[[answer]]\nof = 1\n"));
        all
    }

    #[test]
    fn nothing_goes_undrawn_for_ten_runs_in_a_row() {
        for (faults, controls, doubles) in [(6, 2, 1), (12, 5, 3), (27, 22, 3), (40, 25, 5)] {
            let all = many(faults, controls, doubles);
            for from in 0..60 {
                let names: BTreeSet<&str> = (from..from + 10)
                    .flat_map(|number| drawn(&all, number))
                    .map(|(scenario, _)| scenario.name.as_str())
                    .collect();
                assert_eq!(names.len(), all.len(), "{faults} {controls} {doubles} from {from}");
            }
        }
    }

    #[test]
    fn each_run_draws_as_many_of_each_sort_and_none_twice() {
        let all = many(27, 22, 3);
        for number in 0..100 {
            let drawn = drawn(&all, number);
            let names: BTreeSet<&str> = drawn.iter().map(|(scenario, _)| scenario.name.as_str()).collect();
            assert_eq!((drawn.len(), names.len()), (14, 14));
            assert_eq!(names.iter().filter(|name| name.starts_with("fault")).count(), 8);
        }
    }

    #[test]
    fn steps_of_any_size_leave_nothing_out_for_ever() {
        let all = many(27, 22, 3);
        for step in 1..40 {
            let names: BTreeSet<&str> = (0..60)
                .flat_map(|run| drawn(&all, 7 + run * step))
                .map(|(scenario, _)| scenario.name.as_str())
                .collect();
            assert_eq!(names.len(), all.len(), "by {step}");
        }
    }

    #[test]
    fn every_kernel_has_its_turn() {
        let all = many(12, 5, 3);
        let both: BTreeSet<(&str, &str)> = (0..20)
            .flat_map(|number| drawn(&all, number))
            .map(|(scenario, kernel)| (scenario.name.as_str(), kernel))
            .collect();
        assert_eq!(both.len(), 2 * all.len());
    }
}
