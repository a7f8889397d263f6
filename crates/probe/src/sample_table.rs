//! From addresses to the tables of stacks: on-CPU samples and waits, with names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::time::Duration;

use whyslow_model::timeline::State;
use whyslow_model::{Missing, MissingNote, table};

use crate::bpf::{oncpu, text};
use crate::span_table::Timelines;
use crate::{child, spin_table, symbols};

/// Naming user code reads maps files (mmap_lock) and executables: it gets this long, in a child.
const USER_DEADLINE: Duration = Duration::from_millis(350);
/// Processes whose code is named: those with the most samples.
const MAX_PROCESSES: usize = 48;
/// Processes, and addresses of each, that are named before all others.
const MAX_HOT: usize = 16;
/// The child's answer is cut here.
const MAX_ANSWER: usize = 32 << 20;

/// Give names to what was seen on CPU: stacks, and the code in which threads were met often.
pub fn samples_of(
    seen: &oncpu::Raw,
    pace: oncpu::Pace,
    kernel: &mut symbols::KernelNames,
    missing: &mut Vec<MissingNote>,
) -> (Vec<table::Sample>, Vec<table::Spin>) {
    let user = user_names(&seen.hits, missing);
    let spins = spin_table::spins(seen, &user);
    (samples(&seen.hits, pace.period(), kernel, &user), spins)
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

/// Names of user code by process and address.
#[derive(Default)]
pub struct UserNames(HashMap<(u32, u64), symbols::Named>);

impl UserNames {
    /// The frames of one address.
    pub fn of(&self, tgid: u32, address: u64) -> Vec<String> {
        let named = self.0.get(&(tgid, address));
        named.map_or_else(|| vec!["[unknown]".to_owned()], |named| named.frames.clone())
    }

    /// What lies at one address.
    pub fn named(&self, tgid: u32, address: u64) -> Option<&symbols::Named> {
        self.0.get(&(tgid, address))
    }
}

/// User addresses to be named, by process, with how much they weigh.
pub type Wanted = HashMap<u32, (u64, BTreeSet<u64>)>;

fn user_names(hits: &[oncpu::Hit], missing: &mut Vec<MissingNote>) -> UserNames {
    let mut wanted = Wanted::new();
    for hit in hits {
        let (samples, addresses) = wanted.entry(hit.key.tgid).or_default();
        *samples += hit.count;
        addresses.extend(&hit.user);
        addresses.extend(Some(hit.key.ip).filter(|ip| *ip != 0));
    }
    name_in_order(&hottest(hits), wanted, missing)
}

/// The addresses at which processes were met most, by process: whose time goes into the fewest places comes first.
fn hottest(hits: &[oncpu::Hit]) -> Vec<(u32, Vec<u64>)> {
    let mut met: HashMap<u32, HashMap<u64, u64>> = HashMap::new();
    for hit in hits.iter().filter(|hit| hit.key.ip != 0) {
        *met.entry(hit.key.tgid).or_default().entry(hit.key.ip).or_default() += hit.count;
    }
    let mut hottest = Vec::new();
    for (tgid, addresses) in met {
        let mut addresses: Vec<(u64, u64)> = addresses.into_iter().map(|(at, count)| (count, at)).collect();
        addresses.sort_unstable_by(|a, b| b.cmp(a));
        addresses.truncate(MAX_HOT);
        let weight = addresses.iter().map(|(count, _)| *count).fold(0, u64::saturating_add);
        hottest.push((weight, tgid, addresses.into_iter().map(|(_, at)| at).collect()));
    }
    hottest.sort_unstable_by_key(|(weight, tgid, _)| (std::cmp::Reverse(*weight), *tgid));
    hottest.truncate(MAX_HOT);
    hottest.into_iter().map(|(_, tgid, addresses)| (tgid, addresses)).collect()
}

/// Ask for the names in a child, the heaviest processes first.
pub fn name_user(wanted: Wanted, missing: &mut Vec<MissingNote>) -> UserNames {
    name_in_order(&[], wanted, missing)
}

/// ... and before these, those of a few addresses: files and offsets, which cost little, then functions. A busy host has
/// processes whose symbols alone would take all the time that there is.
fn name_in_order(first: &[(u32, Vec<u64>)], wanted: Wanted, missing: &mut Vec<MissingNote>) -> UserNames {
    let mut busiest: Vec<_> =
        wanted.into_iter().filter(|(_, (_, addresses))| !addresses.is_empty()).collect();
    busiest.sort_by_key(|(tgid, (samples, _))| (std::cmp::Reverse(*samples), *tgid));
    let work = |out: &mut dyn Write| {
        let namer = symbols::UserNamer::default();
        let mut tell = |tgid: u32, named: HashMap<u64, symbols::Named>| {
            for (address, named) in named {
                let reported = (tgid, address, named.frames, named.module);
                let Ok(line) = serde_json::to_vec(&reported) else { continue };
                if out.write_all(&[line, b"\n".to_vec()].concat()).is_err() {
                    return; // nobody listens any more
                }
            }
        };
        first.iter().for_each(|(tgid, addresses)| tell(*tgid, namer.places(*tgid, addresses)));
        first.iter().for_each(|(tgid, addresses)| tell(*tgid, namer.names(*tgid, addresses)));
        for (tgid, (_, addresses)) in busiest.iter().take(MAX_PROCESSES) {
            let addresses: Vec<u64> = addresses.iter().copied().collect();
            tell(*tgid, namer.names(*tgid, &addresses));
        }
    };
    let what = "names of user code";
    let reported = match child::run(USER_DEADLINE, MAX_ANSWER, work) {
        Ok(reported) => reported,
        Err(err) => {
            missing.push(Missing::broken(what, err).into());
            return UserNames::default();
        }
    };
    if !reported.finished {
        let reason = format!(
            "not all were found within {} ms and the memory that is there",
            USER_DEADLINE.as_millis()
        );
        missing.push(Missing::skipped(what, reason).into());
    }
    let line = |line: &[u8]| serde_json::from_slice::<(u32, u64, Vec<String>, String)>(line).ok();
    let names = reported.bytes.split(|b| *b == b'\n').filter_map(line);
    let named = |(tgid, address, frames, module)| ((tgid, address), symbols::Named { frames, module });
    UserNames(names.map(named).collect())
}
