//! Real faults on the live kernel: whyslow against the victim's own clock.
//!
//! Each test makes its fault (crates/faults), asserts by the victim's clock that it exists, lets whyslow look for
//! `bars::WINDOW_S` seconds, and compares. A run draws which twins, crowds and pairs it makes, and prints those it
//! did not; `WHYSLOW_ALL=1` makes all, `WHYSLOW_SOAK=1` makes all `bars::SOAK_ROUNDS` times. `WHYSLOW_SEED` repeats
//! a run. What whyslow said is kept under `target/*/tmp/live`.

mod cell;
mod exam;
mod judge;
mod made;
mod outcome;
mod stand_ins;
mod testbed;

use cell::Cell;
use whyslow_faults::Kind;

macro_rules! live {
    ($($name:ident => $cell:expr;)*) => {
        $(
        #[test]
        fn $name() {
            outcome::run($cell);
        }
    )*

        /// All of them: what holds for each cell is asked of these.
        const CELLS: &[Cell] = &[$($cell),*];
    };
}

live! {
    root_a_cpu_quota_is_found => Cell::Fault(Kind::CpuQuota);
    root_a_cpu_quota_is_found_in_a_crowd => Cell::Crowd(Kind::CpuQuota);
    root_an_ample_cpu_quota_is_not_accused => Cell::Twin(Kind::CpuQuota);
    root_a_cpu_quota_that_delays_nothing_is_not_accused => Cell::Control(Kind::CpuQuota);

    root_threads_pinned_to_one_cpu_are_found => Cell::Fault(Kind::CpuPinned);
    root_threads_pinned_to_one_cpu_are_found_in_a_crowd => Cell::Crowd(Kind::CpuPinned);
    root_busy_threads_on_all_cpus_are_not_accused => Cell::Twin(Kind::CpuPinned);
    root_pinned_threads_that_need_little_are_not_accused => Cell::Control(Kind::CpuPinned);

    root_a_file_reread_past_the_memory_limit_is_found => Cell::Fault(Kind::MemoryLimit);
    root_a_file_reread_past_the_memory_limit_is_found_in_a_crowd => Cell::Crowd(Kind::MemoryLimit);
    root_a_memory_limit_with_room_is_not_accused => Cell::Twin(Kind::MemoryLimit);
    root_a_stream_through_a_memory_limit_is_not_accused => Cell::Control(Kind::MemoryLimit);

    root_throttled_block_io_is_found => Cell::Fault(Kind::BlkioThrottle);
    root_throttled_block_io_is_found_in_a_crowd => Cell::Crowd(Kind::BlkioThrottle);
    root_free_block_io_is_not_accused => Cell::Twin(Kind::BlkioThrottle);
    root_throttled_block_io_that_delays_nothing_is_not_accused => Cell::Control(Kind::BlkioThrottle);

    root_a_full_accept_queue_is_found => Cell::Fault(Kind::ListenOverflow);
    root_a_full_accept_queue_is_found_in_a_crowd => Cell::Crowd(Kind::ListenOverflow);
    root_a_prompt_server_is_not_accused => Cell::Twin(Kind::ListenOverflow);
    root_a_full_accept_queue_that_nobody_waits_for_is_not_accused => Cell::Control(Kind::ListenOverflow);

    root_a_swapping_cgroup_is_found => Cell::Fault(Kind::SwapIn);
    root_a_swapping_cgroup_is_found_in_a_crowd => Cell::Crowd(Kind::SwapIn);
    root_memory_that_fits_is_not_accused => Cell::Twin(Kind::SwapIn);
    root_forgotten_pages_in_swap_are_not_accused => Cell::Control(Kind::SwapIn);

    root_both_are_found_quota_and_pinned => Cell::Pair(Kind::CpuQuota, Kind::CpuPinned);
    root_both_are_found_quota_and_memory => Cell::Pair(Kind::CpuQuota, Kind::MemoryLimit);
    root_both_are_found_quota_and_blkio => Cell::Pair(Kind::CpuQuota, Kind::BlkioThrottle);
    root_both_are_found_quota_and_listen => Cell::Pair(Kind::CpuQuota, Kind::ListenOverflow);
    root_both_are_found_quota_and_swap => Cell::Pair(Kind::CpuQuota, Kind::SwapIn);
    root_both_are_found_pinned_and_memory => Cell::Pair(Kind::CpuPinned, Kind::MemoryLimit);
    root_both_are_found_pinned_and_blkio => Cell::Pair(Kind::CpuPinned, Kind::BlkioThrottle);
    root_both_are_found_pinned_and_listen => Cell::Pair(Kind::CpuPinned, Kind::ListenOverflow);
    root_both_are_found_pinned_and_swap => Cell::Pair(Kind::CpuPinned, Kind::SwapIn);
    root_both_are_found_memory_and_blkio => Cell::Pair(Kind::MemoryLimit, Kind::BlkioThrottle);
    root_both_are_found_memory_and_listen => Cell::Pair(Kind::MemoryLimit, Kind::ListenOverflow);
    root_both_are_found_memory_and_swap => Cell::Pair(Kind::MemoryLimit, Kind::SwapIn);
    root_both_are_found_blkio_and_listen => Cell::Pair(Kind::BlkioThrottle, Kind::ListenOverflow);
    root_both_are_found_blkio_and_swap => Cell::Pair(Kind::BlkioThrottle, Kind::SwapIn);
    root_both_are_found_listen_and_swap => Cell::Pair(Kind::ListenOverflow, Kind::SwapIn);

    root_an_idle_host_has_no_cause => Cell::Idle;
    root_an_honest_compile_has_no_cause => Cell::Compile(2);
    root_an_honest_crowd_of_compilers_has_no_cause => Cell::Compile(8);
}
