//! Real wait chains on the live kernel: whyslow against the clocks of the waiting threads.
//!
//! Each test builds a lock chain (crates/faults), asserts by its threads' own clocks that the chain came about, and compares whyslow's
//! document: `run`, `attach` and `chains` must report the chain, its order and the time of each hop; `locks` must report the waits for each
//! kernel lock, and its holders. A healthy lock chain, an idle host and a compiling host must give no chain of the test's tasks.
//! `WHYSLOW_SEED` repeats a run, `WHYSLOW_NEEDS_GO=1` fails where Go is missing, `WHYSLOW_EMULATED=1` is for guests with emulated CPUs (see
//! crates/faults/src/thresholds.rs). whyslow's documents are kept under `target/*/tmp/lock_chains`, or `WHYSLOW_KEPT`.

mod cell;
mod chains;
mod climb;
mod goroutines;
mod judge;
mod locks;
mod make;
mod quiet;
mod stand_ins;

use cell::{Cell, Verb};
use whyslow_faults::lock_chain::LinkKind;

whyslow_faults::may_become_victim!();

macro_rules! the_cell {
    (run $kind:ident) => {
        crate::Cell::Chain(crate::Verb::Run, crate::LinkKind::$kind)
    };
    (attach $kind:ident) => {
        crate::Cell::Chain(crate::Verb::Attach, crate::LinkKind::$kind)
    };
    (chains $kind:ident) => {
        crate::Cell::Chain(crate::Verb::Chains, crate::LinkKind::$kind)
    };
    (crowd $kind:ident) => {
        crate::Cell::Crowd(crate::LinkKind::$kind)
    };
    (locks $kind:ident) => {
        crate::Cell::Locks(crate::LinkKind::$kind)
    };
    (healthy $kind:ident) => {
        crate::Cell::Healthy(crate::LinkKind::$kind)
    };
}

macro_rules! a_test {
    ($cell:expr, run) => {
        #[test]
        fn root_run_tells_the_chain() {
            crate::make::run($cell);
        }
    };
    ($cell:expr, attach) => {
        #[test]
        fn root_attach_tells_the_chain() {
            crate::make::run($cell);
        }
    };
    ($cell:expr, chains) => {
        #[test]
        fn root_chains_tells_the_chain() {
            crate::make::run($cell);
        }
    };
    ($cell:expr, crowd) => {
        #[test]
        fn root_run_tells_the_chain_in_a_crowd() {
            crate::make::run($cell);
        }
    };
    ($cell:expr, locks) => {
        #[test]
        fn root_locks_tells_waits_and_holders() {
            crate::make::run($cell);
        }
    };
    ($cell:expr, healthy) => {
        #[test]
        fn root_a_healthy_one_is_not_reported() {
            crate::make::run($cell);
        }
    };
}

macro_rules! lock_chains {
    ({ $($module:ident $kind:ident: $($test:ident)*;)* } { $($name:ident => $other:expr;)* }) => {
        $(
            mod $module {
                $(a_test!(the_cell!($test $kind), $test);)*
            }
        )*
        $(
            #[test]
            fn $name() {
                make::run($other);
            }
        )*

        /// All cells: a test checks that each of them meets the conditions of every cell.
        const CELLS: &[Cell] = &[$($(the_cell!($test $kind),)*)* $($other,)*];
    };
}

// On a whole host a wait for a byte is no loss: a program may be built that way; a thread that Go has parked for a mutex looks like one
// that is parked for lack of work. An attach to a cgroup holds its lock for one grace period, which may be shorter than what whyslow
// reports for a whole host.
lock_chains! {{
    futex Futex: run attach chains crowd healthy;
    pi_futex Pi: run attach chains crowd healthy;
    pthread Pthread: run attach chains crowd healthy;
    std_mutex Std: run attach chains crowd healthy;
    go_mutex Go: run attach crowd healthy;
    pipe Pipe: run attach crowd healthy;
    unix Unix: run attach crowd healthy;
    tcp Tcp: run attach crowd healthy;
    udp Udp: run attach crowd healthy;
    peers Peers: run attach crowd healthy;
    file File: run attach chains crowd locks healthy;
    directory Directory: run attach chains crowd locks healthy;
    pipe_lock PipeLock: run attach chains crowd locks healthy;
    address_space AddressSpace: run attach chains crowd locks healthy;
    cgroups Cgroups: run attach crowd locks healthy;
    mixed Mixed: run attach chains crowd healthy;
} {
    root_two_lock_chains_at_once_are_both_reported => Cell::Two;
    root_an_idle_host_has_no_chain => Cell::Idle;
    root_compilers_have_no_chain => Cell::Compile(2);
}}
