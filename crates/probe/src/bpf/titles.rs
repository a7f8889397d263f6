//! The words that processes were started with, or call themselves by. The kernel half is `titles.bpf.h`.

use std::collections::HashMap;

use libbpf_rs::{MapCore, MapFlags};

use super::constants::titles_h;
use super::sched::title;
use super::value;
use crate::redact;

// SAFETY: generated from the C struct; integers and bytes only.
unsafe impl plain::Plain for title {}

/// By process, as BPF knows it.
#[derive(Default)]
pub struct Titles(HashMap<u32, title>);

impl Titles {
    /// All titles of the kernel half.
    pub(super) fn of(map: &impl MapCore) -> Self {
        let all = map.lookup_batch(map.max_entries(), MapFlags::ANY, MapFlags::ANY);
        let one = |(key, bytes): (Vec<u8>, Vec<u8>)| {
            Some((u32::from_ne_bytes(key.try_into().ok()?), value::<title>(&bytes)))
        };
        Titles(all.into_iter().flatten().filter_map(one).collect())
    }

    /// The words of the process whose first thread has this number and began then, without secrets.
    #[must_use]
    pub fn line(&self, tgid: u32, start_ns: u64) -> Option<String> {
        let known = self.0.get(&tgid).filter(|known| known.start == start_ns)?;
        let text: Vec<u8> = known.text.iter().take(known.len as usize).map(|c| *c as u8).collect();
        let text = stable(&text, known.same as usize);
        redact::title(text, known.area as usize, titles_h::TITLE as usize)
    }
}

/// The common beginning of the words at all reads, up to the end of a word. Nothing in common: the last words.
fn stable(text: &[u8], same: usize) -> &[u8] {
    let is_end = |byte: &u8| matches!(byte, b' ' | 0);
    let Some((common, rest)) = text.split_at_checked(same).filter(|(_, rest)| !rest.is_empty()) else {
        return text;
    };
    let whole = if rest.first().is_some_and(is_end) {
        common.len()
    } else {
        common.iter().rposition(is_end).unwrap_or(0)
    };
    text.get(..whole).filter(|words| !words.trim_ascii().is_empty()).unwrap_or(text)
}

#[cfg(test)]
#[path = "titles_tests.rs"]
mod tests;
