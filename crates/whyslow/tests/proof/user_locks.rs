//! User-space locks and waits for children on the live kernel: whyslow against the waiter's clock.
//!
//! Each cell makes a program (crates/faults, `user_lock`) that waits, by its own clock, for something with a known holder: a mutex of the C
//! library, a lock on a file; for each other in a cycle; for its children until its own alarm. `run`, or `attach` where nothing ends the
//! wait, must name the holder, what it did meanwhile, and the share. A pool without work has no chain. `WHYSLOW_SEED` repeats a run.

mod judge;
mod look;
mod stand_ins;

use std::fmt;

use whyslow_faults::Draw;
use whyslow_faults::rounds;
use whyslow_faults::user_lock::{Held, Meanwhile, Plan, Shape};

/// One live test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    Hold(Held),
    Cycle,
    Parent,
    Idle,
    Free,
    /// In a document about the whole host.
    HeldOnHost(Held),
    FreeOnHost,
}

const CELLS: [Cell; 17] = [
    Cell::Hold(Held::Mutex),
    Cell::Hold(Held::Flock),
    Cell::Hold(Held::Fcntl),
    Cell::Hold(Held::Ofd),
    Cell::Hold(Held::FlockRetried),
    Cell::Hold(Held::FcntlRetried),
    Cell::Hold(Held::Join),
    Cell::Cycle,
    Cell::Parent,
    Cell::Idle,
    Cell::Free,
    Cell::HeldOnHost(Held::Flock),
    Cell::HeldOnHost(Held::FlockRetried),
    Cell::HeldOnHost(Held::FcntlRetried),
    Cell::HeldOnHost(Held::FlockOfChild),
    Cell::HeldOnHost(Held::FlockOfChildRetried),
    Cell::FreeOnHost,
];

impl Cell {
    fn shape(self, draw: &mut Draw) -> Shape {
        let two = [Meanwhile::Sleeps, Meanwhile::Computes];
        match self {
            Cell::Hold(held @ (Held::Mutex | Held::Join)) => Shape::Hold(held, draw.pick(&two)),
            Cell::Hold(held) | Cell::HeldOnHost(held) => {
                const DEEDS: [Meanwhile; 4] =
                    [Meanwhile::Sleeps, Meanwhile::Computes, Meanwhile::Stopped, Meanwhile::Traced];
                Shape::Hold(held, draw.pick(&DEEDS))
            }
            Cell::Cycle => Shape::Cycle(draw.between(2, 5) as usize),
            Cell::Parent => Shape::Parent(draw.between(1, 3) as usize, draw.pick(&two)),
            Cell::Idle => Shape::Idle(draw.between(2, 8) as usize),
            Cell::Free | Cell::FreeOnHost => {
                Shape::Free(draw.pick(&[Held::FlockRetried, Held::FcntlRetried]), draw.pick(&two))
            }
        }
    }
}

impl Cell {
    fn plan(self, dir: std::path::PathBuf, draw: &mut Draw) -> Plan {
        let plan = Plan::of(self.shape(draw), dir, draw);
        let on_host = matches!(self, Cell::HeldOnHost(_) | Cell::FreeOnHost);
        if on_host { plan.lasting() } else { plan }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Hold(held) => write!(f, "held-{}", format!("{held:?}").to_lowercase()),
            Cell::HeldOnHost(held) => write!(f, "on-host-{}", format!("{held:?}").to_lowercase()),
            Cell::FreeOnHost => f.write_str("on-host-free"),
            other => f.write_str(&format!("{other:?}").to_lowercase()),
        }
    }
}

macro_rules! cells {
    ($($test:ident $cell:expr;)*) => {
        $(#[test]
        fn $test() {
            rounds::run(&$cell, &crate::kept_in("user-locks"), |draw| look::make($cell, draw));
        })*
    };
}

cells! {
    root_the_holder_of_a_mutex_is_named Cell::Hold(Held::Mutex);
    root_the_holder_of_a_flock_is_named Cell::Hold(Held::Flock);
    root_the_holder_of_a_record_lock_is_named Cell::Hold(Held::Fcntl);
    root_the_holder_of_a_lock_of_an_open_file_is_named Cell::Hold(Held::Ofd);
    root_the_holder_of_a_flock_that_is_tried_again_and_again_is_named Cell::Hold(Held::FlockRetried);
    root_the_holder_of_a_record_lock_that_is_tried_again_and_again_is_named Cell::Hold(Held::FcntlRetried);
    root_who_sleeps_after_a_lock_that_it_got_waits_for_nobody Cell::Free;
    root_on_a_whole_host_the_holder_of_a_flock_is_named Cell::HeldOnHost(Held::Flock);
    root_on_a_whole_host_the_holder_of_a_flock_that_is_tried_again_and_again_is_named Cell::HeldOnHost(Held::FlockRetried);
    root_on_a_whole_host_the_holder_of_a_record_lock_that_is_tried_again_and_again_is_named Cell::HeldOnHost(Held::FcntlRetried);
    root_on_a_whole_host_the_holder_of_a_flock_that_its_child_took_is_named Cell::HeldOnHost(Held::FlockOfChild);
    root_on_a_whole_host_the_holder_of_a_flock_that_its_child_took_and_is_tried_again_is_named Cell::HeldOnHost(Held::FlockOfChildRetried);
    root_on_a_whole_host_who_sleeps_after_a_lock_that_it_got_has_no_chain Cell::FreeOnHost;
    root_a_joined_thread_is_named Cell::Hold(Held::Join);
    root_a_cycle_of_mutexes_is_a_deadlock Cell::Cycle;
    root_a_parent_with_a_deadline_waits_for_what_its_children_do Cell::Parent;
    root_a_pool_without_work_has_no_chain Cell::Idle;
}
