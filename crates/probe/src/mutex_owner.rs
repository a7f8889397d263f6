//! Who holds the mutexes for which threads wait that were asleep before we looked: the word beside the mutex's own tells, and is
//! read from their memory (`user_lock.bpf.h` reads it of those that go to sleep in the window).
//!
//! To read it takes the process's mmap_lock for reading (fs/proc/base.c, mem_rw; killable). So only a few words of followed processes
//! are read, once, after the window, by a thread that is not waited for beyond its deadline, and none of a process in which somebody
//! waits for a lock of the kernel. What is read goes no further, unless it is the number of a thread of the same process.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use whyslow_model::table::Span;

/// futex(2) on x86-64; "locked, and somebody waits" of glibc's mutexes; from a mutex's word to its owner.
const FUTEX: u32 = 202;
const CONTENDED: u32 = 2;
const TO_OWNER: u64 = 8;
/// FUTEX_WAIT and FUTEX_WAIT_BITSET, without their flags.
const OPERATION: u64 = 0x7f;
const WAITS: [u64; 2] = [0, 9];
/// A hung program has as many locks as it has threads; of the others these are enough to know.
const MOST: usize = 64;
/// A read takes some microseconds.
const DEADLINE: Duration = Duration::from_millis(100);

/// A word: whose memory it is in (a thread), and where.
type Word = (u32, u64);

/// Note the holders of those that wait still, of the processes of these threads.
pub fn note(spans: &mut [Span], followed: &[u32]) {
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
            && span.args[2] as u32 == CONTENDED
            && WAITS.contains(&operation)
            && processes.contains(&span.tgid)
            && !locked.contains(&span.tgid)
    };
    let threads: HashSet<(u32, u32)> = spans.iter().map(|span| (span.tgid, span.pid)).collect();
    let mut words: HashMap<(u32, u64), Word> = HashMap::new();
    for span in spans.iter_mut().filter(waits) {
        words.entry((span.tgid, span.args[0])).or_insert((span.pid, span.args[0]));
    }
    let owners = read(words.values().copied().take(MOST).collect(), DEADLINE);
    for span in spans.iter_mut().filter(waits) {
        let owner = words.get(&(span.tgid, span.args[0])).and_then(|word| owners.get(word)).copied();
        let is_thread = |owner: &u32| threads.contains(&(span.tgid, *owner)) && *owner != span.pid;
        span.holder = owner.filter(is_thread).unwrap_or(0);
    }
}

fn read(words: Vec<Word>, within: Duration) -> HashMap<Word, u32> {
    let mut owners = HashMap::new();
    if words.is_empty() {
        return owners;
    }
    let (tell, told) = mpsc::channel();
    let reader = thread::Builder::new().stack_size(64 << 10).spawn(move || {
        for word in words {
            if tell.send((word, owner(word))).is_err() {
                break;
            }
        }
    });
    let until = Instant::now() + within;
    while reader.is_ok() {
        match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok((word, Some(owner))) => _ = owners.insert(word, owner),
            Ok((_, None)) => {}
            Err(_) => break,
        }
    }
    owners
}

fn owner((pid, at): Word) -> Option<u32> {
    let mut bytes = [0; 4];
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    memory.read_exact_at(&mut bytes, at.checked_add(TO_OWNER)?).ok()?;
    Some(u32::from_ne_bytes(bytes))
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
    fn the_owner_is_read_where_it_is_a_thread_of_the_process() {
        let own = std::process::id();
        let (known, unknown) = (mutex(own + 1), mutex(own + 9));
        let other = Span { pid: own + 1, tgid: own, ..Span::default() };
        let mut spans = [waits(own, own, &known), waits(own, own, &unknown), other];
        note(&mut spans, &[own]);
        assert_eq!(spans.map(|span| span.holder), [own + 1, 0, 0]);
    }

    #[test]
    fn none_is_read_where_somebody_waits_for_a_lock_of_the_kernel() {
        let own = std::process::id();
        let known = mutex(own + 1);
        let lock = Some(whyslow_model::timeline::LockWait::default());
        let other = Span { pid: own + 1, tgid: own, open: true, lock, ..Span::default() };
        let mut spans = [waits(own, own, &known), other];
        note(&mut spans, &[own]);
        assert_eq!(spans[0].holder, 0);
    }
}
