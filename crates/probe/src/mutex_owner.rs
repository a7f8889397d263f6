//! Which threads hold the mutexes of waiters that slept before the window began? The word beside the mutex's own names the owner. It is
//! read from the waiter's memory (for threads that go to sleep in the window `user_lock.bpf.h` reads it).
//!
//! Reading takes the process's exec_update_lock and mmap_lock for reading (fs/proc/base.c, mem_open and mem_rw; both killable), and may have to
//! bring a page back from swap. So only a few words of followed processes are read, once, after the window, by a disposable child with a
//! deadline. Nothing is read from a process with a thread that waits for a kernel lock. An owner is reported only if the lock is still
//! taken and the word is the number of a thread of the same process; or of another process, if the mutex is shared and both processes have the
//! numbers that we know them by. The word of a robust mutex is its owner's number: nothing is read then.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use whyslow_model::Missing;
use whyslow_model::syscall::{CONTENDED, FUTEX, FUTEX_TID_MASK, FUTEX_WAITERS};
use whyslow_model::table::Span;

use crate::child;
use crate::pid_map::Numbers;

/// The offset from a mutex's word to its owner (glibc, nptl/pthreadP.h), and the bytes read.
const TO_OWNER: usize = 8;
const MUTEX: usize = 12;
/// Size of an answer: the index of the word, and its owner.
const ANSWER: usize = 8;
/// FUTEX_WAIT and FUTEX_WAIT_BITSET, without their flags.
const OPERATION: u64 = 0x7f;
const WAITS: [u64; 2] = [0, 9];
/// FUTEX_PRIVATE_FLAG: the futex belongs to one process.
const PRIVATE: u64 = 0x80;
/// A hung program has as many locks as threads; for other programs so many are enough.
const MOST: usize = 64;
/// A read takes some microseconds, a fork a few milliseconds.
const DEADLINE: Duration = Duration::from_millis(200);

/// A futex word: a thread in whose memory it lies, and its address.
type Word = (u32, u64);

/// Find the holders for threads of these processes that still wait.
pub fn note(spans: &mut [Span], followed: &[u32], numbers: Option<&Numbers>) -> Option<Missing> {
    let followed: HashSet<u32> = followed.iter().copied().collect();
    let of_them = spans.iter().filter(|span| followed.contains(&span.pid));
    let processes: HashSet<u32> = of_them.map(|span| span.tgid).collect();
    let locked: HashSet<u32> =
        spans.iter().filter(|span| span.open && span.lock.is_some()).map(|span| span.tgid).collect();
    let waits = |span: &&mut Span| {
        let operation = span.args[1] & OPERATION;
        span.open
            && span.holder == 0
            && span.syscall == Some(FUTEX)
            && (span.args[2] as u32 == CONTENDED || owner_in(span).is_some())
            && WAITS.contains(&operation)
            && processes.contains(&span.tgid)
            && !locked.contains(&span.tgid)
    };
    let threads: HashSet<(u32, u32)> = spans.iter().map(|span| (span.tgid, span.pid)).collect();
    let mut words: HashMap<(u32, u64), Word> = HashMap::new();
    for span in spans.iter_mut().filter(waits).filter(|span| owner_in(span).is_none()) {
        words.entry((span.tgid, span.args[0])).or_insert((span.pid, span.args[0]));
    }
    let shown = |pid| numbers.map_or(Some(pid), |numbers| numbers.inside(pid));
    let shown = |(pid, at): Word| Some((shown(pid)?, at));
    let asked: Vec<Word> = words.values().copied().filter_map(shown).take(MOST).collect();
    let (owners, is_whole) = read(&asked, DEADLINE);
    let back = numbers.map(Numbers::back);
    let global = |owner| back.as_ref().map_or(Some(owner), |back| back.get(&owner).copied());
    for span in spans.iter_mut().filter(waits) {
        let word = words.get(&(span.tgid, span.args[0])).copied().and_then(shown);
        let owner = word.and_then(|word| owners.get(&word)).copied();
        let owner = owner.or_else(|| owner_in(span)).and_then(global);
        // In a pid namespace the numbers that we know are not those in /proc.
        let is_shared = span.args[1] & PRIVATE == 0 && numbers.is_none();
        let is_thread = |owner: &u32| {
            let own = threads.contains(&(span.tgid, *owner));
            *owner != span.pid && (own || is_shared && are_known_by_their_numbers([span.tgid, *owner]))
        };
        span.holder = owner.filter(is_thread).unwrap_or(0);
    }
    let reason = || format!("their memory did not answer within {} ms", DEADLINE.as_millis());
    (!is_whole).then(|| {
        Missing::skipped("holders of mutexes for which programs waited since before the window", reason())
    })
}

/// The word of a robust or PI mutex names its owner.
fn owner_in(span: &Span) -> Option<u32> {
    let word = span.args[2] as u32;
    Some(word & FUTEX_TID_MASK).filter(|owner| word & FUTEX_WAITERS != 0 && *owner != 0)
}

/// Whether both are in our pid namespace: then the numbers that they give each other are those that we know them by.
fn are_known_by_their_numbers(pids: [u32; 2]) -> bool {
    let namespace = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/pid")).ok();
    let own = namespace("self");
    own.is_some() && pids.iter().all(|pid| namespace(&pid.to_string()) == own)
}

/// The owners, and whether all reads were answered.
fn read(words: &[Word], within: Duration) -> (HashMap<Word, u32>, bool) {
    if words.is_empty() {
        return (HashMap::new(), true);
    }
    // One byte more: the mark that the child is done.
    let told = child::run(within, words.len() * ANSWER + 1, |pipe| {
        for (at, word) in words.iter().enumerate() {
            if let Some(owner) = owner(*word) {
                let answer = [at as u32, owner].map(u32::to_ne_bytes).concat();
                if pipe.write_all(&answer).is_err() {
                    break;
                }
            }
        }
    });
    let (bytes, is_whole) = told.map(|told| (told.bytes, told.finished)).unwrap_or_default();
    let number = |bytes: &[u8]| bytes.try_into().map(u32::from_ne_bytes).ok();
    let answers = bytes.chunks_exact(ANSWER).filter_map(|answer| {
        let (at, owner) = answer.split_at_checked(ANSWER / 2)?;
        Some((*words.get(number(at)? as usize)?, number(owner)?))
    });
    (answers.collect(), is_whole)
}

/// The owner of a mutex that is taken and has waiters.
fn owner((pid, at): Word) -> Option<u32> {
    let mut bytes = [0; MUTEX];
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    memory.read_exact_at(&mut bytes, at).ok()?;
    let number = |at: usize| bytes.get(at..at + 4)?.try_into().map(u32::from_ne_bytes).ok();
    number(0).filter(|word| *word == CONTENDED).and_then(|_| number(TO_OWNER))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mutex of glibc: its word, a count, the owner.
    fn mutex(owner: u32) -> Box<[u32; 4]> {
        Box::new([CONTENDED, 1, owner, 0])
    }

    fn waits(pid: u32, tgid: u32, mutex: &[u32; 4]) -> Span {
        let args = [mutex.as_ptr() as u64, 0x80, u64::from(CONTENDED), 0];
        Span { pid, tgid, open: true, syscall: Some(FUTEX), args, ..Span::default() }
    }

    #[test]
    fn root_the_owner_is_read_where_it_is_a_thread_of_the_process() {
        let own = std::process::id();
        let (known, unknown) = (mutex(own + 1), mutex(own + 9));
        let other = Span { pid: own + 1, tgid: own, ..Span::default() };
        let mut spans = [waits(own, own, &known), waits(own, own, &unknown), other];
        note(&mut spans, &[own], None);
        assert_eq!(spans.map(|span| span.holder), [own + 1, 0, 0]);
    }

    #[test]
    fn root_the_owner_of_a_shared_mutex_may_be_another_process() {
        let own = std::process::id();
        let mut other = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let word = mutex(other.id());
        let private = waits(own, own, &word);
        let shared = |value: u32| Span { args: [private.args[0], 0, u64::from(value), 0], ..private.clone() };
        let robust = shared(FUTEX_WAITERS | other.id());
        let mut spans = [private.clone(), shared(CONTENDED), robust];
        note(&mut spans, &[own], None);
        let found = spans.map(|span| span.holder);
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(found, [0, other.id(), other.id()]);
    }

    #[test]
    fn none_is_read_where_somebody_waits_for_a_lock_of_the_kernel() {
        let own = std::process::id();
        let known = mutex(own + 1);
        let lock = Some(whyslow_model::timeline::LockWait::default());
        let other = Span { pid: own + 1, tgid: own, open: true, lock, ..Span::default() };
        let mut spans = [waits(own, own, &known), other];
        note(&mut spans, &[own], None);
        assert_eq!(spans[0].holder, 0);
    }
}
