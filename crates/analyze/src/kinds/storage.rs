//! Waiting for block devices, and for memory that they have to make free.

use super::table::{Row, by, row};
use super::{Class, Wait, WaitKind};

/// block/*.c, mm/filemap.c, mm/page-writeback.c, fs/buffer.c, fs/direct-io.c, fs/iomap, fs/jbd2, fs/fs-writeback.c.
pub(super) const ROWS: &[Row] = &[
    row(
        &["balance_dirty_pages", "balance_dirty_pages_ratelimited", "balance_dirty_pages_ratelimited_flags"],
        "dirty-throttling",
        "dirty pages to be written (balance_dirty_pages)",
        Class::Limit,
    ),
    by(&["rq_qos_wait", "wbt_wait", "__rq_qos_throttle", "__wbt_wait"], queue_throttle),
    by(
        &[
            "blk_throtl_bio",
            "__blk_throtl_bio",
            "blk_cgroup_bio_start",
            "blkcg_maybe_throttle_current",
            "blkcg_maybe_throttle_blkg",
            "blkcg_iolatency_throttle",
            "ioc_rqos_throttle",
        ],
        throttle,
    ),
    by(
        &[
            "blk_mq_get_tag",
            "__blk_mq_alloc_requests",
            "blk_queue_enter",
            "__bio_queue_enter",
            "blk_mq_freeze_queue_wait",
        ],
        |wait| io(wait, "a free place in the queue"),
    ),
    row(
        &[
            "mem_cgroup_handle_over_high",
            "__mem_cgroup_handle_over_high",
            "mem_cgroup_oom_synchronize",
            "mem_cgroup_oom",
        ],
        "memory-limit",
        "its cgroup's memory limit",
        Class::Limit,
    ),
    row(
        &["jbd2_log_wait_commit", "jbd2_complete_transaction", "ext4_fc_commit", "jbd2_fc_begin_commit"],
        "journal",
        "a journal commit",
        Class::Needed,
    ),
    row(
        &[
            "wait_transaction_locked",
            "wait_transaction_switching",
            "add_transaction_credits",
            "start_this_handle",
            "do_get_write_access",
            "jbd2_journal_lock_updates",
            "__jbd2_log_wait_for_space",
            "jbd2_log_do_checkpoint",
        ],
        "journal",
        "the journal's running commit",
        Class::Needed,
    ),
    row(&["jbd2_journal_wait_updates"], "journal", "running file system operations to end", Class::Needed),
    row(
        &["xlog_wait_on_iclog", "xfs_log_force_seq", "xfs_log_force", "xlog_grant_head_wait", "xlog_wait"],
        "journal",
        "the XFS log",
        Class::Needed,
    ),
    row(
        &[
            "wait_current_trans",
            "btrfs_wait_for_commit",
            "wait_for_commit",
            "btrfs_commit_transaction",
            "btrfs_sync_log",
        ],
        "journal",
        "a btrfs transaction",
        Class::Needed,
    ),
    row(
        &[
            "wb_wait_for_completion",
            "wait_sb_inodes",
            "inode_wait_for_writeback",
            "__inode_wait_for_writeback",
            "writeback_inodes_sb",
        ],
        "writeback",
        "dirty pages to be written",
        Class::Needed,
    ),
    row(
        &["inode_dio_wait", "__inode_dio_wait", "inode_dio_wait_interruptible"],
        "lock",
        "direct I/O on the same file",
        Class::Held,
    ),
    by(
        &[
            "folio_wait_writeback",
            "folio_wait_writeback_killable",
            "folio_wait_stable",
            "wait_on_page_writeback",
            "wait_for_stable_page",
            "__filemap_fdatawait_range",
            "filemap_fdatawait_range",
            "file_write_and_wait_range",
        ],
        |wait| io(wait, written(wait)),
    ),
    by(
        &[
            "folio_wait_bit_common",
            "wait_on_page_bit_common",
            "folio_wait_bit",
            "wait_on_page_bit",
            "__folio_lock",
            "__lock_page",
            "__folio_lock_killable",
            "__folio_lock_or_retry",
            "folio_put_wait_locked",
            "put_and_wait_on_page_locked",
            "__lock_page_killable",
            "__lock_page_or_retry",
        ],
        page,
    ),
    by(
        &[
            "__wait_on_buffer",
            "__lock_buffer",
            "wait_on_buffer",
            "__sync_dirty_buffer",
            "sync_dirty_buffer",
            "__bh_read",
            "ext4_read_bh",
        ],
        |wait| io(wait, "a block of the file system"),
    ),
    by(
        &[
            "submit_bio_wait",
            "blk_wait_io",
            "bio_await",
            "blk_execute_rq",
            "blkdev_issue_flush",
            "__blkdev_issue_discard",
        ],
        |wait| io(wait, command(wait)),
    ),
    by(
        &[
            "__iomap_dio_rw",
            "iomap_dio_rw",
            "dio_await_one",
            "dio_await_completion",
            "do_blockdev_direct_IO",
            "__blockdev_direct_IO",
            "__blkdev_direct_IO",
            "__blkdev_direct_IO_simple",
            "blkdev_direct_IO",
        ],
        |wait| io(wait, "direct I/O"),
    ),
    by(
        &[
            "wait_barrier",
            "raid1_write_request",
            "raid5_get_active_stripe",
            "md_super_wait",
            "md_flush_request",
            "dm_wait_for_completion",
        ],
        |wait| io(wait, "software RAID"),
    ),
    by(
        &[
            "xfs_buf_iowait",
            "xfs_buf_lock",
            "xfs_iunpin_wait",
            "btree_csum_one_bio",
            "read_extent_buffer_pages",
            "wait_on_extent_bit",
            "wait_extent_bit",
            "btrfs_wait_ordered_range",
            "btrfs_start_ordered_extent_nowriteback",
        ],
        |wait| io(wait, "the file system's data"),
    ),
    row(
        &["kcompactd_do_work", "compact_zone", "isolate_migratepages_block", "migrate_pages"],
        "compaction",
        "pages to be moved",
        Class::Needed,
    ),
];

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
fn page(wait: &Wait<'_>) -> WaitKind {
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

fn written(wait: &Wait<'_>) -> &'static str {
    match wait.call {
        Some(74 | 75) => "fsync",
        Some(26) => "msync",
        Some(162 | 277 | 306) => "sync",
        _ => "write",
    }
}

fn command(wait: &Wait<'_>) -> &'static str {
    if wait.passes(&["blkdev_issue_flush", "blkdev_fsync"]) {
        "flush of its cache"
    } else if wait.passes(&["blkdev_issue_discard", "blkdev_issue_zeroout"]) {
        "discard"
    } else {
        "I/O"
    }
}

fn io(wait: &Wait<'_>, what: &str) -> WaitKind {
    WaitKind::new("block-io", format!("{} ({what})", wait.device()), Class::Device)
}

/// Writeback throttling holds back what would swamp the device; iocost and iolatency what a cgroup may not have.
fn queue_throttle(wait: &Wait<'_>) -> WaitKind {
    if wait.passes(&["ioc_rqos_throttle", "blkcg_iolatency_throttle"]) {
        return throttle(wait);
    }
    WaitKind::new("io-throttle", format!("{} (writes held back by wbt)", wait.device()), Class::Device)
}

fn throttle(wait: &Wait<'_>) -> WaitKind {
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
