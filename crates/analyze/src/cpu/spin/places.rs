//! From rows of code and samples to the loops in which threads of a process wait.

use std::collections::BTreeMap;

use whyslow_model::table::Spin;

use super::arm64;
use super::calls::VDSO;
use super::loops::{Code, Loop};
use super::purpose::{Purpose, purpose};
use super::step::{Effect, Flow, Step};
use super::x86::X86;

/// PAUSE takes most of its loop's time (some 40 cycles on Zen, 140 since Skylake), and a sample falls on it or right behind
/// it: in spinners 26 to 100 % of the samples were that near, in other threads 0 to 3 %.
const AT_PAUSE: f64 = 0.2;
/// ... at most this many bytes from it.
const NEAR: usize = 16;
/// A thread that finds a lock taken again and again has the same registers from sample to sample. A thread that takes the lock at the
/// first try is sampled in the same few instructions, but with other work in its registers.
const UNCHANGED: f64 = 0.5;

/// A loop that waits, or a place right behind a PAUSE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The purpose of the loop.
    pub purpose: Purpose,
    /// The function, or file and offset.
    pub name: String,
    pub module: String,
    /// Samples by thread.
    pub by_thread: BTreeMap<u32, u64>,
    near: u64,
    same: u64,
    exchanges: bool,
    most: u64,
}

/// Places by (begin, end), relative to the lowest address that was sampled in the process.
pub type Places = BTreeMap<(u64, u64), Place>;

/// What the code around the samples of one process shows.
#[derive(Debug, Default)]
pub struct Seen {
    /// Places where threads of the process wait; each sample in user mode belongs to one at most.
    pub waiting: Places,
    /// By thread: samples in loops that work and call no function.
    pub computing: BTreeMap<u32, u64>,
}

/// Analyzes the code of one process's rows.
#[must_use]
pub fn seen(rows: &[&Spin]) -> Seen {
    let mut places = Seen::default();
    // The kernel's own code for reading a clock reads again if the clock was just changed (lib/vdso/gettimeofday.c): it looks like a
    // loop that waits, but goes round once. A thread that reads a clock all the time is reported by `calls`.
    for row in rows.iter().filter(|row| row.module != VDSO) {
        let Some(code) = bytes(&row.code) else { continue };
        if row.arch == "aarch64" {
            let code = Code::new(code.len(), |at| arm64::step(&code, at));
            note(&mut places, row, code, |_| false);
        } else if row.arch == "x86_64" {
            let mut x86 = X86::new(&code);
            note(&mut places, row, Code::new(code.len(), |at| x86.step(at)), |at| is_behind_pause(&code, at));
        }
    }
    places.waiting.retain(|_, place| place.is_believed());
    places
}

impl Place {
    fn samples(&self) -> u64 {
        self.by_thread.values().copied().fold(0, u64::saturating_add)
    }

    fn is_believed(&self) -> bool {
        let all = self.samples() as f64;
        match self.purpose {
            Purpose::Pauses => self.near as f64 >= AT_PAUSE * all,
            Purpose::Polls | Purpose::PollsCounted if self.exchanges => self.same as f64 >= UNCHANGED * all,
            Purpose::Polls | Purpose::PollsCounted | Purpose::Clock | Purpose::Empty => true,
            Purpose::Works(_) => false,
        }
    }
}

fn note<F: FnMut(usize) -> Option<Step>>(
    places: &mut Seen,
    row: &Spin,
    mut code: Code<F>,
    is_behind_pause: impl Fn(usize) -> bool,
) {
    let mut judged: BTreeMap<usize, Option<(Purpose, Loop)>> = BTreeMap::new();
    for met in row.met.iter().filter(|met| met.call.is_none()) {
        let Ok(at) = usize::try_from(met.offset) else { continue };
        let found = judged.entry(at).or_insert_with(|| {
            let around = code.around(at)?;
            Some((purpose(&around), around))
        });
        let (purpose, from, to, near, exchanges) = match found {
            Some((purpose, around)) if !matches!(purpose, Purpose::Works(_)) => {
                (*purpose, around.start(), around.end(), is_near_pause(around, at), exchanges(around))
            }
            // A function that contains only a PAUSE is called from a loop that may be anywhere.
            _ if is_behind_pause(at) => (Purpose::Pauses, at, at, true, false),
            Some((_, around)) if !calls(around) => {
                let of_thread = places.computing.entry(met.pid).or_default();
                *of_thread = of_thread.saturating_add(met.count);
                continue;
            }
            _ => continue,
        };
        let absolute = |at: usize| row.at.saturating_add(at as u64);
        let place = places.waiting.entry((absolute(from), absolute(to))).or_insert_with(|| Place {
            purpose,
            name: String::new(),
            module: String::new(),
            by_thread: BTreeMap::new(),
            near: 0,
            same: 0,
            exchanges,
            most: 0,
        });
        let of_thread = place.by_thread.entry(met.pid).or_default();
        *of_thread = of_thread.saturating_add(met.count);
        place.near = place.near.saturating_add(if near { met.count } else { 0 });
        place.same = place.same.saturating_add(met.same);
        if met.count > place.most {
            (place.most, place.name, place.module) = (met.count, row.place.clone(), row.module.clone());
        }
    }
}

fn is_near_pause(around: &Loop, at: usize) -> bool {
    around.steps.iter().any(|step| step.effect == Effect::Pause && step.at.abs_diff(at) <= NEAR)
}

fn calls(around: &Loop) -> bool {
    let leaves =
        |step: &Step| step.flow == Flow::Call || matches!(step.effect, Effect::Work("it calls" | "it traps"));
    around.steps.iter().any(leaves)
}

fn exchanges(around: &Loop) -> bool {
    around.steps.iter().any(|step| matches!(step.effect, Effect::Exchange { .. }))
}

fn is_behind_pause(code: &[u8], at: usize) -> bool {
    const PAUSE: &[u8] = &[0xf3, 0x90];
    let holds = |from: Option<usize>| {
        from.and_then(|from| code.get(from..from.saturating_add(PAUSE.len()))).is_some_and(|b| b == PAUSE)
    };
    holds(Some(at)) || holds(at.checked_sub(PAUSE.len()))
}

/// Bytes from hexadecimal digits; `None`: no code, or no digits.
fn bytes(text: &str) -> Option<Vec<u8>> {
    /// Windows are 256 bytes: longer code does not come from whyslow.
    const LONGEST: usize = 8192;
    if text.is_empty() || text.len() > LONGEST {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}
