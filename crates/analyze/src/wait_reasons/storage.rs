//! Waits for block devices, and for memory that they must make free.

use whyslow_model::wait::{Detail, Operation, Reason, WaitTarget};

use super::{Class, WaitContext, WaitKind};
use crate::memory::stacks::{DIRECT_RECLAIM, LIMIT_RECLAIM, SWAP_IN};

/// Functions below the begin of reclaim, whichever task reclaims: a wait inside them is reported
/// as reclaim. mm/vmscan.c, mm/page_alloc.c.
const INSIDE_RECLAIM: &[&str] = &[
    "throttle_direct_reclaim",
    "reclaim_throttle",
    "congestion_wait",
    "wait_iff_congested",
    "do_try_to_free_pages",
    "node_reclaim",
    "shrink_node",
];

pub(super) fn ask_reclaim(wait: &WaitContext<'_>) -> Option<WaitKind> {
    let swaps_in = wait.is_io() && wait.passes(SWAP_IN);
    let at_limit = wait.passes(LIMIT_RECLAIM);
    if !at_limit && !wait.passes(DIRECT_RECLAIM) && !wait.passes(INSIDE_RECLAIM) {
        return swaps_in.then(|| at_device(Reason::SwapIn, wait, Operation::SwapIn));
    }
    if wait.is_io() && !wait.passes(&["reclaim_throttle", "congestion_wait", "throttle_direct_reclaim"]) {
        let operation = if at_limit { Operation::ReclaimAtLimit } else { Operation::Reclaim };
        return Some(at_device(Reason::Reclaim, wait, operation));
    }
    let memory = if at_limit { WaitTarget::MemoryAtLimit } else { WaitTarget::Memory };
    Some(WaitKind::target(memory, Class::Dependency))
}

/// A page is being read, or another task has locked it for that.
pub(super) fn page(wait: &WaitContext<'_>) -> WaitKind {
    if wait.passes(SWAP_IN) {
        return at_device(Reason::SwapIn, wait, Operation::SwapIn);
    }
    if wait.passes(&["migration_entry_wait", "migration_entry_wait_on_locked", "__migration_entry_wait"]) {
        return WaitKind::target(WaitTarget::MovedPage, Class::Dependency);
    }
    let target = wait.span.target.as_ref();
    if wait.span.device.is_none() && target.is_some_and(|target| target.dev.starts_with("0:")) {
        // Network and FUSE file systems fill their pages themselves.
        return WaitKind::target(WaitTarget::PageWithoutDevice, Class::Dependency);
    }
    if wait.passes(&["filemap_fault", "do_fault", "handle_mm_fault"]) {
        return io(wait, Operation::PageFault);
    }
    let writing =
        ["writeback_iter", "write_cache_pages", "mpage_prepare_extent_to_map", "folio_wait_writeback"];
    io(wait, if wait.passes(&writing) { Operation::Write } else { Operation::Read })
}

pub(super) fn written(wait: &WaitContext<'_>) -> Operation {
    match wait.call {
        Some(74 | 75) => Operation::Fsync,
        Some(26) => Operation::Msync,
        Some(162 | 277 | 306) => Operation::Sync,
        _ => Operation::Write,
    }
}

pub(super) fn command(wait: &WaitContext<'_>) -> Operation {
    if wait.passes(&["blkdev_issue_flush", "blkdev_fsync"]) {
        Operation::CacheFlush
    } else if wait.passes(&["blkdev_issue_discard", "blkdev_issue_zeroout"]) {
        Operation::Discard
    } else {
        Operation::Command
    }
}

pub(super) fn io(wait: &WaitContext<'_>, operation: Operation) -> WaitKind {
    at_device(Reason::BlockIo, wait, operation)
}

fn at_device(reason: Reason, wait: &WaitContext<'_>, operation: Operation) -> WaitKind {
    let device = wait.device();
    let about = wait.stacks.about(wait.span.tgid, &device, &operation);
    WaitKind::new(reason, Detail::Device { device, operation, about }, Class::Device)
}

/// Writeback throttling limits the requests that a device gets; iocost and iolatency limit those of a cgroup.
pub(super) fn queue_throttle(wait: &WaitContext<'_>) -> WaitKind {
    if wait.passes(&["ioc_rqos_throttle", "blkcg_iolatency_throttle"]) {
        return throttle(wait);
    }
    at_device(Reason::Wbt, wait, Operation::WritebackThrottling)
}

pub(super) fn throttle(wait: &WaitContext<'_>) -> WaitKind {
    WaitKind::new(Reason::IoThrottle, Detail::IoLimit { device: wait.device() }, Class::Limit)
}

/// The kernel marks the wait as I/O: its stack or call shows no more.
pub(super) fn ask_io(wait: &WaitContext<'_>) -> Option<WaitKind> {
    wait.is_io().then_some(())?;
    let what = wait.first().map(str::to_owned).or_else(|| wait.call_name());
    Some(io(wait, what.map_or(Operation::NotKnown, Operation::of_function)))
}
