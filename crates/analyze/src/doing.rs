//! What tasks did on a CPU, from samples.

use std::collections::HashMap;

use whyslow_model::table::Sample;

/// What a task did on CPU.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Doing {
    /// A stable word: "user", "kernel", "spinning" (kernel code that burns CPU to wait).
    pub word: &'static str,
    /// In words: "user code (main::work)", "css_killed_work_fn (kernel)", "spinning for CPUs to answer (smp_call_function_many_cond)".
    pub what: String,
    /// The function at work, where known.
    pub function: Option<String>,
}

/// What was seen on CPU, by thread.
#[derive(Debug, Default)]
pub struct OnCpu<'r> {
    by_pid: HashMap<u32, Vec<&'r Sample>>,
}

impl<'r> OnCpu<'r> {
    /// Of these samples.
    #[must_use]
    pub fn of(samples: &'r [Sample]) -> Self {
        let mut by_pid: HashMap<u32, Vec<&Sample>> = HashMap::new();
        for sample in samples {
            by_pid.entry(sample.pid).or_default().push(sample);
        }
        OnCpu { by_pid }
    }

    /// What thread `pid` did on CPU: (what, parts of 1.0 that add up to 1), the largest first. Empty: no samples.
    #[must_use]
    pub fn did(&self, pid: u32) -> Vec<(Doing, f64)> {
        let seen: u64 = self.by_pid.get(&pid).map_or(0, |rows| rows.iter().map(|row| row.count).sum());
        if seen == 0 {
            return Vec::new();
        }
        vec![(Doing { word: "user", what: "on CPU".to_owned(), function: None }, 1.0)]
    }
}
