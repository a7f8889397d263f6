//! User-space locks with a known holder: a mutex of the C library, a lock on a file. One thread waits, with or without timeouts; the holder
//! sleeps, computes or is stopped. Or several threads wait for each other in a cycle, which timeouts break. The waiters' own clocks give
//! the times. And a parent that waits for children until its deadline.

mod cycle;
mod hold;
mod parent;

use std::path::PathBuf;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::{Draw, Span};

const ENV: &str = "WHYSLOW_USER_LOCK";

/// What is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Held {
    /// `pthread_mutex_t`, by another thread.
    Mutex,
    /// flock(2), by another process.
    Flock,
    /// fcntl(2) F_SETLKW, by another process.
    Fcntl,
    /// fcntl(2) F_OFD_SETLKW: a lock of an open file, which another process has open. The kernel does not record the owner.
    Ofd,
    /// flock(2) with LOCK_NB, by another process: a waiter that is refused sleeps and tries again.
    FlockRetried,
    /// fcntl(2) F_SETLK on a part of the file, with the same retries.
    FcntlRetried,
    /// flock(2), taken by a child of the holder that has ended since, as flock(1) does in a script.
    FlockOfChild,
    /// ... and tried again and again.
    FlockOfChildRetried,
    /// A thread waits for another thread to end (pthread_join(3)).
    Join,
}

/// How the waiter sleeps between two attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Nap {
    /// clock_nanosleep(2).
    Nanosleep,
    /// poll(2) without descriptors, with a timeout.
    Poll,
    /// select(2) without descriptors, with a timeout.
    Select,
}

/// What the holder does while it holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Meanwhile {
    Sleeps,
    Computes,
    /// Stopped by a signal; only where the holder is a process of its own.
    Stopped,
    /// Stopped by a debugger; only where the holder is a process of its own.
    Traced,
}

/// The scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// One thread waits for what another thread holds.
    Hold(Held, Meanwhile),
    /// So many threads, each of which waits for the mutex of the next.
    Cycle(usize),
    /// A parent waits for so many children until its own alarm.
    Parent(usize, Meanwhile),
    /// A pool waits for work, and there is none; the lock is free.
    Idle(usize),
    /// A process tries a free lock, acquires it, releases it and sleeps, again and again; another process holds another lock.
    Free(Held, Meanwhile),
}

/// All parameters of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub shape: Shape,
    /// The wait has timeouts, and ends with the last of them.
    pub timed: bool,
    pub ms: u64,
    /// For retried locks: how the waiter sleeps between tries, and for how long.
    pub nap: (Nap, u64),
    /// Names: of the waiter and of the holder; of all threads of a cycle.
    pub names: Vec<String>,
    pub dir: PathBuf,
    /// It continues for longer than any window.
    pub lasts: bool,
}

impl Plan {
    /// Draw all parameters that are not given.
    #[must_use]
    pub fn of(shape: Shape, dir: PathBuf, draw: &mut Draw) -> Self {
        let many = match shape {
            Shape::Hold(..) | Shape::Free(..) => 2,
            Shape::Parent(n, _) | Shape::Idle(n) => n + 1,
            Shape::Cycle(n) => n,
        };
        let names = (0..many).map(|_| draw.word(9)).collect();
        // Only the release, or the end of the holder, shows who held it; and join has no timeout.
        let says_itself = matches!(shape, Shape::Hold(Held::Ofd | Held::Join, _));
        let nap = (draw.pick(&[Nap::Nanosleep, Nap::Poll, Nap::Select]), draw.between(3, 45));
        Plan {
            shape,
            timed: draw.one_in(2) && !says_itself,
            ms: draw.between(700, 1800),
            nap,
            names,
            dir,
            lasts: false,
        }
    }

    /// The same, for longer than any window.
    #[must_use]
    pub fn lasting(self) -> Self {
        Plan { lasts: true, timed: false, ms: 20_000, ..self }
    }

    /// Whether the holder holds the lock and the waiter has begun to wait.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.dir.join("begun").exists()
    }

    /// The environment variable that carries the plan to the program.
    pub fn environment(&self) -> io::Result<(&'static str, String)> {
        Ok((ENV, serde_json::to_string(self).map_err(io::Error::other)?))
    }

    /// The wait of the first waiter, by its own clock.
    pub fn waited(&self) -> io::Result<Span> {
        let text = fs::read_to_string(self.dir.join("waited"))?;
        let mut clocks = text.split_whitespace().filter_map(|clock| clock.parse().ok());
        match (clocks.next(), clocks.next()) {
            (Some(from), Some(to)) => Ok(Span { from, to }),
            _ => Err(io::Error::other(format!("no times in {text:?}"))),
        }
    }
}

/// Be the program that the environment describes, for the rest of this process's life. Without it, return.
pub(crate) fn become_if_asked() {
    let Some(text) = std::env::var_os(ENV) else { return };
    let plan = serde_json::from_slice::<Plan>(text.as_encoded_bytes()).map_err(io::Error::other);
    let status = match plan.and_then(|plan| live(&plan)) {
        Ok(()) => 0,
        Err(err) => {
            eprintln!("cannot be a holder of locks: {err}");
            2
        }
    };
    crate::sys::leave(status);
}

fn live(plan: &Plan) -> io::Result<()> {
    const LIFETIME_S: u32 = 40;
    crate::sys::die_after(LIFETIME_S);
    match plan.shape {
        Shape::Hold(held, does) => hold::live(plan, held, does),
        Shape::Free(held, does) => hold::free(plan, held, does),
        Shape::Cycle(_) => cycle::live(plan),
        Shape::Parent(_, does) => parent::live(plan, does),
        Shape::Idle(_) => cycle::rest(plan),
    }
}

/// Record when the wait was.
fn note(plan: &Plan, from: u64, to: u64) -> io::Result<()> {
    fs::write(plan.dir.join("waited"), format!("{from} {to}\n"))
}

/// Act for this long.
fn act(does: Meanwhile, ms: u64) {
    let until = crate::clock::now() + ms * 1_000_000;
    match does {
        Meanwhile::Computes => {
            let mut turns = 0u64;
            while crate::clock::now() < until {
                turns = std::hint::black_box(turns.wrapping_add(1));
            }
        }
        Meanwhile::Sleeps | Meanwhile::Stopped | Meanwhile::Traced => crate::sys::sleep_until(until),
    }
}
