//! Programs that spin and programs that work, on the live kernel: whyslow against the programs' own clocks.
//!
//! Each test starts one program of the set (crates/faults), alone or beside 20 busy processes, and runs whyslow for `thresholds::WINDOW_S`
//! seconds. whyslow must find a spinner: the process, its threads and runtime, and the reclaimable CPU time. It must not accuse an
//! honest program. Each row of the table shows what was reported and what was true; all rows are kept under `target/*/tmp/spin`, with
//! whyslow's documents.
//!
//! `WHYSLOW_SEED` repeats a run.

mod cell;
mod finding;
mod judge;
mod look;
mod stand_ins;
mod table;

use cell::Cell;
use whyslow_faults::spinners::{Loop, Program, Sbwt, SpinWait, Tool, unseen};

macro_rules! programs {
    ($($module:ident $program:expr;)*) => {
        $(mod $module {
            use crate::spin::*;

            #[test]
            fn root_is_reported_alone() {
                look::run(Cell { program: $program, crowded: false });
            }

            #[test]
            fn root_is_reported_in_a_crowd() {
                look::run(Cell { program: $program, crowded: true });
            }
        })*

        /// All programs: a test checks that each cell meets the conditions of every cell.
        const PROGRAMS: &[Program] = &[$($program),*];

        #[test]
        fn no_program_is_left_out() {
            let mut here = PROGRAMS.to_vec();
            let mut all: Vec<Program> = Program::seen().into_iter().chain(Program::unseen()).collect();
            here.sort();
            all.sort();
            assert_eq!(here, all);
        }
    };
}

programs! {
    flag_with_pause Program::Wait(SpinWait::FlagPause);
    flag_without_pause Program::Wait(SpinWait::FlagBare);
    sched_yield Program::Wait(SpinWait::Yield);
    pthread_spin_lock Program::Wait(SpinWait::SpinLock);
    empty_epoll_wait Program::Wait(SpinWait::Epoll);
    empty_recv Program::Wait(SpinWait::Recv);
    openmp_active Program::OpenMp;
    erlang_very_long Program::Erlang(Sbwt::VeryLong);
    erlang_default Program::Erlang(Sbwt::Default);
    java_on_spin_wait Program::Java;

    lcg Program::Loop(Loop::Lcg);
    xorshift Program::Loop(Loop::Xorshift);
    array_sum Program::Loop(Loop::ArraySum);
    qsort Program::Loop(Loop::Qsort);
    floats Program::Loop(Loop::Floats);
    gzip Program::Tool(Tool::Gzip);
    sha256sum Program::Tool(Tool::Sha256);
    compiler Program::Tool(Tool::Compiler);
    dd Program::Tool(Tool::Dd);
    python Program::Tool(Tool::Python);
    server Program::Server;
    erlang_none Program::Erlang(Sbwt::None);

    no_pause Program::Wait(SpinWait::Unseen(unseen::UnseenWait::NoPause));
    deadline Program::Wait(SpinWait::Unseen(unseen::UnseenWait::Deadline));
    usleep Program::Wait(SpinWait::Unseen(unseen::UnseenWait::Usleep));
    jit Program::Wait(SpinWait::Unseen(unseen::UnseenWait::Jit));
    try_lock Program::Wait(SpinWait::Unseen(unseen::UnseenWait::TryLock));
    go Program::Go;

    search Program::Loop(Loop::Unseen(unseen::Loop::Search));
    memchr Program::Loop(Loop::Unseen(unseen::Loop::Memchr));
    chase Program::Loop(Loop::Unseen(unseen::Loop::Chase));
    interpreter Program::Loop(Loop::Unseen(unseen::Loop::Interpreter));
    compare Program::Loop(Loop::Unseen(unseen::Loop::Compare));
    popcount Program::Loop(Loop::Unseen(unseen::Loop::Popcount));
}
