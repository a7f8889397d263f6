//! From addresses to the tables of stacks: on-CPU samples and waits, with names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::time::Duration;

use whyslow_model::timeline::State;
use whyslow_model::{Missing, MissingNote, table};

use crate::bpf::{oncpu, text};
use crate::span_table::Timelines;
use crate::{child, symbols};

/// Naming user code reads maps files (mmap_lock) and executables: it gets this long, in a child.
const USER_DEADLINE: Duration = Duration::from_millis(350);
/// Processes whose code is named: those with the most samples.
const MAX_PROCESSES: usize = 48;
/// The child's answer is cut here.
const MAX_ANSWER: usize = 32 << 20;

/// Give names to what was seen on CPU.
pub fn samples_of(
    hits: Option<(Vec<oncpu::Hit>, oncpu::Pace)>,
    kernel: &mut symbols::KernelNames,
    missing: &mut Vec<MissingNote>,
) -> Option<Vec<table::Sample>> {
    hits.map(|(hits, pace)| {
        let user = user_names(&hits, missing);
        samples(&hits, pace.period(), kernel, &user)
    })
}

fn samples(
    hits: &[oncpu::Hit],
    period: Duration,
    kernel: &mut symbols::KernelNames,
    user: &UserNames,
) -> Vec<table::Sample> {
    let period = period.as_nanos() as u64;
    let mut rows: BTreeMap<(u32, Vec<String>, Vec<String>), table::Sample> = BTreeMap::new();
    for hit in hits {
        let stack = kernel.stack(&hit.kernel);
        let frames: Vec<String> = hit.user.iter().flat_map(|at| user.of(hit.key.tgid, *at)).collect();
        let row = rows.entry((hit.key.pid, stack.clone(), frames.clone())).or_insert_with(|| table::Sample {
            pid: hit.key.pid,
            tgid: hit.key.tgid,
            comm: text(&hit.key.comm),
            kernel: stack,
            user: frames,
            ..table::Sample::default()
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
    for span in timelines.spans.iter().filter(|span| span.stands_ns > 0) {
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
        row.ns += span.stands_ns;
        row.count += 1;
        row.worst_ns = row.worst_ns.max(span.woken_ns.saturating_sub(span.at_ns));
    }
    rows.into_values().collect()
}

/// Names of user code by process and address.
#[derive(Default)]
pub struct UserNames(HashMap<(u32, u64), Vec<String>>);

impl UserNames {
    /// The frames of one address.
    pub fn of(&self, tgid: u32, address: u64) -> Vec<String> {
        self.0.get(&(tgid, address)).cloned().unwrap_or_else(|| vec!["[unknown]".to_owned()])
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
    }
    name_user(wanted, missing)
}

/// Ask for the names in a child, the heaviest processes first.
pub fn name_user(wanted: Wanted, missing: &mut Vec<MissingNote>) -> UserNames {
    let mut busiest: Vec<_> =
        wanted.into_iter().filter(|(_, (_, addresses))| !addresses.is_empty()).collect();
    busiest.sort_by_key(|(tgid, (samples, _))| (std::cmp::Reverse(*samples), *tgid));
    let work = |out: &mut dyn Write| {
        let namer = symbols::UserNamer::default();
        for (tgid, (_, addresses)) in busiest.iter().take(MAX_PROCESSES) {
            let addresses: Vec<u64> = addresses.iter().copied().collect();
            for (address, names) in namer.names(*tgid, &addresses) {
                let Ok(line) = serde_json::to_vec(&(tgid, address, names)) else { continue };
                if out.write_all(&[line, b"\n".to_vec()].concat()).is_err() {
                    return;
                }
            }
        }
    };
    let what = "names of user code";
    let told = match child::run(USER_DEADLINE, MAX_ANSWER, work) {
        Ok(told) => told,
        Err(err) => {
            missing.push(Missing::broken(what, err).into());
            return UserNames::default();
        }
    };
    if !told.finished {
        let reason = format!("not all were found within {} ms", USER_DEADLINE.as_millis());
        missing.push(Missing::skipped(what, reason).into());
    }
    let line = |line: &[u8]| serde_json::from_slice::<(u32, u64, Vec<String>)>(line).ok();
    let names = told.bytes.split(|b| *b == b'\n').filter_map(line);
    UserNames(names.map(|(tgid, address, names)| ((tgid, address), names)).collect())
}
