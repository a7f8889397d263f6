//! Names of user code by address, of processes that still live: the callers of slow system calls.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::time::Duration;

use whyslow_model::{Missing, MissingNote};

use crate::{child, symbols};

/// Naming user code reads maps files (mmap_lock) and executables: it gets this long, in a child.
const DEADLINE: Duration = Duration::from_millis(350);
/// Processes whose code is named: those with the most weight.
const MAX_PROCESSES: usize = 48;
/// The child's answer is cut here.
const MAX_ANSWER: usize = 32 << 20;

/// User addresses to be named, by process, with how much they weigh.
pub type Wanted = HashMap<u32, (u64, BTreeSet<u64>)>;

/// Names by process and address.
#[derive(Default)]
pub struct Living(HashMap<(u32, u64), Vec<String>>);

impl Living {
    /// Ask for the names in a child, the heaviest processes first.
    pub fn named(wanted: Wanted, missing: &mut Vec<MissingNote>) -> Self {
        let mut busiest: Vec<_> =
            wanted.into_iter().filter(|(_, (_, addresses))| !addresses.is_empty()).collect();
        busiest.sort_by_key(|(tgid, (weight, _))| (std::cmp::Reverse(*weight), *tgid));
        let work = |out: &mut dyn Write| {
            let namer = symbols::UserNamer::default();
            for (tgid, (_, addresses)) in busiest.iter().take(MAX_PROCESSES) {
                let addresses: Vec<u64> = addresses.iter().copied().collect();
                for (address, frames) in namer.names(*tgid, &addresses) {
                    let Ok(line) = serde_json::to_vec(&(*tgid, address, frames)) else { continue };
                    if out.write_all(&[line, b"\n".to_vec()].concat()).is_err() {
                        return; // the parent is gone
                    }
                }
            }
        };
        let what = "names of user code";
        let reported = match child::run(DEADLINE, MAX_ANSWER, work) {
            Ok(reported) => reported,
            Err(err) => {
                missing.push(Missing::broken(what, err).into());
                return Living::default();
            }
        };
        if !reported.finished {
            let ms = DEADLINE.as_millis();
            let reason = format!("not all were found within {ms} ms and the available memory");
            missing.push(Missing::skipped(what, reason).into());
        }
        let line = |line: &[u8]| serde_json::from_slice::<(u32, u64, Vec<String>)>(line).ok();
        let names = reported.bytes.split(|b| *b == b'\n').filter_map(line);
        Living(names.map(|(tgid, address, frames)| ((tgid, address), frames)).collect())
    }

    /// The frames of one address.
    pub fn of(&self, tgid: u32, address: u64) -> Vec<String> {
        self.0.get(&(tgid, address)).cloned().unwrap_or_else(|| vec!["[unknown]".to_owned()])
    }
}
