//! Makes the tables of stacks from addresses: on-CPU samples and waits, with names.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use whyslow_model::table;
use whyslow_model::timeline::State;

use crate::bpf::{oncpu, text};
use crate::span_table::Timelines;
use crate::user_code::UserNames;
use crate::{spin_table, symbols};

/// Look up the names of on-CPU samples: stacks, and the code in which threads were met often.
pub fn samples_of(
    seen: &oncpu::RawSamples,
    pace: oncpu::Pace,
    kernel: &mut symbols::KernelNames,
    user: &UserNames,
) -> (Vec<table::Sample>, Vec<table::Spin>) {
    let spins = spin_table::spins(seen, user);
    (samples(&seen.hits, pace.period(), kernel, user), spins)
}

fn samples(
    hits: &[oncpu::Hit],
    period: Duration,
    kernel: &mut symbols::KernelNames,
    user: &UserNames,
) -> Vec<table::Sample> {
    let period = period.as_nanos() as u64;
    let mut rows: BTreeMap<(u32, bool, Vec<String>, Vec<String>), table::Sample> = BTreeMap::new();
    for hit in hits {
        let stack = kernel.stack(&hit.kernel);
        let frames: Vec<String> = hit.user.iter().flat_map(|at| user.of(hit.key.tgid, *at)).collect();
        let row = rows.entry((hit.key.pid, hit.bare, stack.clone(), frames.clone())).or_insert_with(|| {
            table::Sample {
                pid: hit.key.pid,
                tgid: hit.key.tgid,
                comm: text(&hit.key.comm),
                kernel: stack,
                user: frames,
                bare: hit.bare,
                ..table::Sample::default()
            }
        });
        row.count += hit.count;
        row.ns += hit.count.saturating_mul(period);
    }
    rows.into_values().collect()
}

/// Waits by task and stack.
pub fn waits(timelines: &Timelines) -> Vec<table::Wait> {
    let stacks: HashMap<u32, &Vec<String>> = timelines.stacks.iter().map(|s| (s.id, &s.kernel)).collect();
    let mut rows: BTreeMap<(u32, &str, u32), table::Wait> = BTreeMap::new();
    for span in timelines.spans.iter().filter(|span| span.sampled_wait_ns > 0) {
        let state = match span.state {
            State::Io => "io",
            State::Blocked => "blocked",
            State::Sleep => "sleep",
            State::None | State::Running | State::Runnable => continue,
        };
        let Some(id) = span.stack else { continue };
        let row = rows.entry((span.pid, state, id)).or_insert_with(|| table::Wait {
            pid: span.pid,
            tgid: span.tgid,
            comm: span.comm.clone(),
            state: state.to_owned(),
            kernel: stacks.get(&id).map(|names| (*names).clone()).unwrap_or_default(),
            ..table::Wait::default()
        });
        row.ns += span.sampled_wait_ns;
        row.count += 1;
        row.worst_ns = row.worst_ns.max(span.woken_ns.saturating_sub(span.at_ns));
    }
    rows.into_values().collect()
}
