//! Classes of kernel frames: what a stack was doing, by the functions in it.
//!
//! Functions are matched by their whole symbol: "shrink_node" is not "shrink_node_memcgs". Names and files are those of
//! Linux 5.15 to 6.18; where a function was renamed both names stand here.

use crate::stacks::symbol;

/// Reclaim at a cgroup's limit. mm/vmscan.c.
pub(crate) const LIMIT_RECLAIM: &[&str] = &["try_to_free_mem_cgroup_pages"];

/// Reclaim by a task that could get no page. mm/page_alloc.c, mm/vmscan.c.
pub(crate) const DIRECT_RECLAIM: &[&str] =
    &["__alloc_pages_direct_reclaim", "try_to_free_pages", "__perform_reclaim"];

/// Bringing pages back from swap. mm/memory.c, mm/swap_state.c, mm/page_io.c, mm/shmem.c.
pub(crate) const SWAP_IN: &[&str] = &[
    "do_swap_page",
    "swapin_readahead",
    "swap_cluster_readahead",
    "swap_vma_readahead",
    "read_swap_cache_async",
    "swap_read_folio",
    "swap_readpage", // swap_read_folio since v6.8, c9bdf768dd93
    "shmem_swapin_folio",
];

/// Filling the page cache from a device: choosing, allocating, charging and submitting. mm/readahead.c, mm/filemap.c,
/// fs/mpage.c, fs/iomap/buffered-io.c. Not here: filemap_get_pages alone, which finds pages that are there, too.
const REFILL: &[&str] = &[
    "page_cache_sync_ra",
    "page_cache_async_ra",
    "page_cache_ra_unbounded",
    "page_cache_ra_order",
    "do_page_cache_ra",
    "force_page_cache_ra",
    "ondemand_readahead",
    "read_pages",
    "do_sync_mmap_readahead",
    "do_async_mmap_readahead",
    "filemap_add_folio",
    "add_to_page_cache_lru", // filemap_add_folio since v5.16, 9dd3d069406c
    "filemap_create_folio",
    "filemap_read_folio",
    "mpage_readahead",
    "ext4_mpage_readpages",
    "iomap_readahead",
];

/// Waiting for a page of a file to come from its device. mm/filemap.c.
const FILE_READ: &[&str] = &[
    "filemap_get_pages",
    "filemap_update_page",
    "filemap_read_folio",
    "filemap_fault",
    "filemap_read",
    "do_read_cache_folio",
    "page_cache_sync_ra",
    "page_cache_async_ra",
];

/// Going to sleep for a page and coming back: CPU time that only a miss costs. mm/filemap.c, kernel/sched/core.c.
const PAGE_WAIT: &[&str] =
    &["folio_wait_bit_common", "folio_put_wait_locked", "__folio_lock_killable", "io_schedule"];

/// Pausing a writer until dirty pages are written back. mm/page-writeback.c.
const DIRTY_PAUSE: &[&str] = &["balance_dirty_pages", "balance_dirty_pages_ratelimited_flags"];

/// What a stack was doing about memory. Reclaim first: it may happen inside all the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// Reclaim at a cgroup's limit.
    LimitReclaim,
    /// Reclaim because the host is short of memory.
    DirectReclaim,
    /// Swapping in.
    SwapIn,
    /// Filling the page cache, or waiting for a page of a file.
    Refill,
    /// Pausing for writing too fast.
    DirtyPause,
    /// Something else.
    Other,
}

/// What a stack sampled on a CPU was doing.
#[must_use]
pub fn running(stack: &[String]) -> Doing {
    let doing = first(
        stack,
        &[
            (LIMIT_RECLAIM, Doing::LimitReclaim),
            (DIRECT_RECLAIM, Doing::DirectReclaim),
            (SWAP_IN, Doing::SwapIn),
            (REFILL, Doing::Refill),
        ],
    );
    let has = |class: &[&str]| stack.iter().any(|frame| class.contains(&symbol(frame)));
    if doing == Doing::Other && has(PAGE_WAIT) && has(FILE_READ) { Doing::Refill } else { doing }
}

/// What a stack that sleeps was waiting for.
#[must_use]
pub fn waiting(stack: &[String]) -> Doing {
    first(
        stack,
        &[
            (LIMIT_RECLAIM, Doing::LimitReclaim),
            (DIRECT_RECLAIM, Doing::DirectReclaim),
            (SWAP_IN, Doing::SwapIn),
            (FILE_READ, Doing::Refill),
            (DIRTY_PAUSE, Doing::DirtyPause),
        ],
    )
}

fn first(stack: &[String], classes: &[(&[&str], Doing)]) -> Doing {
    let has = |class: &[&str]| stack.iter().any(|frame| class.contains(&symbol(frame)));
    classes.iter().find(|(class, _)| has(class)).map_or(Doing::Other, |(_, doing)| *doing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn going_to_sleep_for_a_page_is_part_of_the_miss_and_looking_a_page_up_is_not() {
        let stack = |frames: &[&str]| frames.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>();
        let sleeps = stack(&[
            "__schedule",
            "io_schedule",
            "folio_wait_bit_common",
            "filemap_get_pages",
            "filemap_read",
        ]);
        assert_eq!(running(&sleeps), Doing::Refill);
        assert_eq!(
            running(&stack(&["filemap_get_read_batch", "filemap_get_pages", "filemap_read"])),
            Doing::Other
        );
        assert_eq!(
            running(&stack(&["__schedule", "io_schedule", "folio_wait_bit_common", "folio_wait_writeback"])),
            Doing::Other
        );
    }

    fn stack(frames: &[&str]) -> Vec<String> {
        frames.iter().map(|f| (*f).to_owned()).collect()
    }

    #[test]
    fn offsets_modules_and_clones_are_no_part_of_the_name() {
        for frame in [
            "read_pages",
            "read_pages+0x1f/0x80",
            "read_pages [ext4]",
            "read_pages.isra.0",
            "read_pages+0x1f [x]",
        ] {
            assert_eq!(symbol(frame), "read_pages");
        }
        assert_eq!(symbol(""), "");
        assert_eq!(symbol("[unknown]"), "");
    }

    #[test]
    fn names_are_matched_whole() {
        assert_eq!(running(&stack(&["read_pages_of_mine"])), Doing::Other);
    }

    #[test]
    fn reclaim_inside_a_read_is_reclaim() {
        let read = ["filemap_add_folio", "page_cache_ra_unbounded", "filemap_get_pages", "filemap_read"];
        assert_eq!(running(&stack(&read)), Doing::Refill);
        let reclaim: Vec<_> =
            ["shrink_folio_list", "try_to_free_mem_cgroup_pages"].into_iter().chain(read).collect();
        assert_eq!(running(&stack(&reclaim)), Doing::LimitReclaim);
        assert_eq!(waiting(&stack(&reclaim)), Doing::LimitReclaim);
    }

    #[test]
    fn copying_a_cached_page_is_no_refill_but_waiting_for_one_is() {
        assert_eq!(
            running(&stack(&["_copy_to_iter", "copy_page_to_iter", "filemap_read", "vfs_read"])),
            Doing::Other
        );
        assert_eq!(
            running(&stack(&["filemap_get_read_batch", "filemap_get_pages", "filemap_read"])),
            Doing::Other
        );
        assert_eq!(
            waiting(&stack(&["folio_wait_bit_common", "filemap_get_pages", "filemap_read"])),
            Doing::Refill
        );
    }

    #[test]
    fn a_fault_on_a_swapped_page_is_swap_in() {
        assert_eq!(
            running(&stack(&["zram_submit_bio", "swap_read_folio+0x1", "do_swap_page"])),
            Doing::SwapIn
        );
        assert_eq!(waiting(&stack(&["io_schedule", "__folio_lock_or_retry", "do_swap_page"])), Doing::SwapIn);
    }
}
