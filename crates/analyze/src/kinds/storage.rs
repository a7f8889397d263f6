//! Waiting for block devices, and for memory that they have to make free.

use super::{Class, Wait, WaitKind};

/// Reclaim, whoever does it for whom: what it waits for meanwhile is told as reclaim. mm/vmscan.c, mm/page_alloc.c.
const RECLAIM: &[&str] = &[
    "try_to_free_mem_cgroup_pages",
    "try_to_free_pages",
    "__alloc_pages_direct_reclaim",
    "__perform_reclaim",
    "throttle_direct_reclaim",
    "reclaim_throttle",
    "congestion_wait",
    "wait_iff_congested",
    "do_try_to_free_pages",
    "node_reclaim",
    "shrink_node",
];

pub(super) fn ask_reclaim(wait: &Wait<'_>) -> Option<WaitKind> {
    let swaps_in = wait.is_io() && wait.passes(SWAP_IN);
    if !wait.passes(RECLAIM) {
        return swaps_in
            .then(|| WaitKind::new("swap-in", format!("{} (swap-in)", wait.device()), Class::Device));
    }
    let limit = if wait.passes(&["try_to_free_mem_cgroup_pages"]) { " at its cgroup's limit" } else { "" };
    if wait.is_io() && !wait.passes(&["reclaim_throttle", "congestion_wait", "throttle_direct_reclaim"]) {
        return Some(WaitKind::new("reclaim", format!("{} (reclaim{limit})", wait.device()), Class::Device));
    }
    Some(WaitKind::new("reclaim", format!("memory to be reclaimed{limit}"), Class::Needed))
}

/// mm/memory.c, mm/swap_state.c, mm/page_io.c, mm/shmem.c.
const SWAP_IN: &[&str] = &[
    "do_swap_page",
    "swapin_readahead",
    "shmem_swapin_folio",
    "swap_read_folio",
    "swap_readpage",
    "read_swap_cache_async",
];

/// A page is being read, or somebody has it locked for that.
pub(super) fn page(wait: &Wait<'_>) -> WaitKind {
    if wait.passes(SWAP_IN) {
        return WaitKind::new("swap-in", format!("{} (swap-in)", wait.device()), Class::Device);
    }
    if wait.passes(&["migration_entry_wait", "migration_entry_wait_on_locked", "__migration_entry_wait"]) {
        return WaitKind::new("compaction", "a page to be moved", Class::Needed);
    }
    let target = wait.span.target.as_ref();
    if wait.span.device.is_none() && target.is_some_and(|target| target.dev.starts_with("0:")) {
        // Network and FUSE file systems fill their pages themselves.
        return WaitKind::new("page", "a page of a file system without a device", Class::Needed);
    }
    if wait.passes(&["filemap_fault", "do_fault", "handle_mm_fault"]) {
        return io(wait, "page fault");
    }
    let writing =
        ["writeback_iter", "write_cache_pages", "mpage_prepare_extent_to_map", "folio_wait_writeback"];
    io(wait, if wait.passes(&writing) { "write" } else { "read" })
}

pub(super) fn written(wait: &Wait<'_>) -> &'static str {
    match wait.call {
        Some(74 | 75) => "fsync",
        Some(26) => "msync",
        Some(162 | 277 | 306) => "sync",
        _ => "write",
    }
}

pub(super) fn command(wait: &Wait<'_>) -> &'static str {
    if wait.passes(&["blkdev_issue_flush", "blkdev_fsync"]) {
        "flush of its cache"
    } else if wait.passes(&["blkdev_issue_discard", "blkdev_issue_zeroout"]) {
        "discard"
    } else {
        "I/O"
    }
}

pub(super) fn io(wait: &Wait<'_>, what: &str) -> WaitKind {
    WaitKind::new("block-io", format!("{} ({what})", wait.device()), Class::Device)
}

/// Writeback throttling holds back what would swamp the device; iocost and iolatency what a cgroup may not have.
pub(super) fn queue_throttle(wait: &Wait<'_>) -> WaitKind {
    if wait.passes(&["ioc_rqos_throttle", "blkcg_iolatency_throttle"]) {
        return throttle(wait);
    }
    WaitKind::new("wbt", format!("{} (writes held back by wbt)", wait.device()), Class::Device)
}

pub(super) fn throttle(wait: &Wait<'_>) -> WaitKind {
    WaitKind::new("io-throttle", format!("its cgroup's limit on {}", wait.device()), Class::Limit)
}

/// The kernel marks it as I/O wait: by its stack or call no more is known.
pub(super) fn ask_io(wait: &Wait<'_>) -> Option<WaitKind> {
    wait.is_io().then_some(())?;
    let what = wait.first().map(str::to_owned).or_else(|| wait.call_name()).unwrap_or_default();
    let device = wait.device();
    let told = if what.is_empty() { device } else { format!("{device} ({what})") };
    Some(WaitKind::new("block-io", told, Class::Device))
}
