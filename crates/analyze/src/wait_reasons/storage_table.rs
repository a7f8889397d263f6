//! Functions that wait for block devices.

use super::Class::{Dependency, Limit, Lock};
use super::storage::{command, io, page, queue_throttle, throttle, written};
use whyslow_model::wait::{Operation, WaitTarget};

use super::table::{Row, by, row};

/// block/*.c, mm/filemap.c, mm/page-writeback.c, fs/buffer.c, fs/direct-io.c, fs/iomap, fs/jbd2, fs/fs-writeback.c.
pub(super) const ROWS: &[Row] = &[
    row(
        &["balance_dirty_pages", "balance_dirty_pages_ratelimited", "balance_dirty_pages_ratelimited_flags"],
        WaitTarget::DirtyThrottling,
        Limit,
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
        |wait| io(wait, Operation::QueueSlot),
    ),
    row(
        &[
            "mem_cgroup_handle_over_high",
            "__mem_cgroup_handle_over_high",
            "mem_cgroup_oom_synchronize",
            "mem_cgroup_oom",
        ],
        WaitTarget::MemoryLimit,
        Limit,
    ),
    row(
        &["jbd2_log_wait_commit", "jbd2_complete_transaction", "ext4_fc_commit", "jbd2_fc_begin_commit"],
        WaitTarget::JournalCommit,
        Dependency,
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
        WaitTarget::RunningCommit,
        Dependency,
    ),
    row(&["jbd2_journal_wait_updates"], WaitTarget::RunningOperations, Dependency),
    row(
        &["xlog_wait_on_iclog", "xfs_log_force_seq", "xfs_log_force", "xlog_grant_head_wait", "xlog_wait"],
        WaitTarget::XfsLog,
        Dependency,
    ),
    row(
        &[
            "wait_current_trans",
            "btrfs_wait_for_commit",
            "wait_for_commit",
            "btrfs_commit_transaction",
            "btrfs_sync_log",
        ],
        WaitTarget::BtrfsTransaction,
        Dependency,
    ),
    row(
        &[
            "wb_wait_for_completion",
            "wait_sb_inodes",
            "inode_wait_for_writeback",
            "__inode_wait_for_writeback",
            "writeback_inodes_sb",
        ],
        WaitTarget::DirtyPages,
        Dependency,
    ),
    row(&["inode_dio_wait", "__inode_dio_wait", "inode_dio_wait_interruptible"], WaitTarget::DirectIo, Lock),
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
        |wait| io(wait, Operation::FileSystemBlock),
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
        |wait| io(wait, Operation::DirectIo),
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
        |wait| io(wait, Operation::SoftwareRaid),
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
        |wait| io(wait, Operation::FileSystemData),
    ),
    row(
        &["kcompactd_do_work", "compact_zone", "isolate_migratepages_block", "migrate_pages"],
        WaitTarget::MovedPages,
        Dependency,
    ),
];
