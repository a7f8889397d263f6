//! What fills a memory limit: heap, tmpfs and shared memory, page cache, the kernel's own memory.
//!
//! The kernel evicts page cache when it needs room; the other kinds stay. Heap, and memory that processes share without a file, are freed when
//! their processes end; files in a tmpfs stay until they are removed. The kernel counts both kinds of shared memory as "shmem".

use std::fmt;

use whyslow_model::Bytes;

use crate::parse::flat::Flat;

/// A use with less than this part of all (1 in 4) is not reported as what fills the limit.
const NOTABLE: u64 = 4;

/// Memory charged to a cgroup and those below it, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Uses {
    /// Anonymous pages: heap and stacks.
    pub heap: u64,
    /// Files in tmpfs, and memory that processes share: POSIX, System V, anonymous mappings, memfd.
    pub shared: u64,
    /// Pages of files, which can be read again.
    pub cache: u64,
    /// Slab, page tables, stacks, socket buffers.
    pub kernel: u64,
}

impl Uses {
    /// From `memory.stat`, with the group's total use: on v1 the kernel's part is the rest of the total.
    #[must_use]
    pub fn of(stat: &Flat, usage: u64) -> Option<Self> {
        let get = |name: &str| stat.get(name).copied();
        // v1 has two sums side by side: of the group alone, and with all below it (mm/memcontrol-v1.c, memcg1_stat_format).
        if let (Some(heap), Some(cache), Some(shared)) =
            (get("total_rss"), get("total_cache"), get("total_shmem"))
        {
            let kernel = usage.saturating_sub(heap).saturating_sub(cache);
            return Some(Uses { heap, shared, cache: cache.saturating_sub(shared), kernel });
        }
        let (heap, file, shared) = (get("anon")?, get("file")?, get("shmem")?);
        // The kernel has this sum since v5.18 (a8c49af3be5f).
        let parts = ["kernel_stack", "pagetables", "percpu", "slab"];
        let sum = || parts.iter().filter_map(|name| get(name)).fold(0, u64::saturating_add);
        let kernel = get("kernel").unwrap_or_else(sum).saturating_add(get("sock").unwrap_or(0));
        Some(Uses { heap, shared, cache: file.saturating_sub(shared), kernel })
    }

    fn all(&self) -> u64 {
        [self.heap, self.shared, self.cache, self.kernel].into_iter().fold(0, u64::saturating_add)
    }

    fn is_notable(&self, part: u64) -> bool {
        part > 0 && part.saturating_mul(NOTABLE) >= self.all()
    }

    /// Whether files in tmpfs or shared memory are a good part of it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.is_notable(self.shared)
    }

    /// The uses that cannot be evicted and are a good part: "240 MiB of it are files in tmpfs or shared memory". The end of a sentence.
    #[must_use]
    pub fn notable(&self) -> String {
        let parts = [
            (self.shared, "files in tmpfs or shared memory"),
            (self.kernel, "the kernel's own"),
            (self.heap, "heap"),
        ];
        let said: Vec<String> = parts
            .into_iter()
            .filter(|(part, _)| self.is_notable(*part))
            .map(|(part, what)| format!("{} are {what}", Bytes(part)))
            .collect();
        if said.is_empty() { String::new() } else { format!(" ({})", said.join(", ")) }
    }
}

impl fmt::Display for Uses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Uses { heap, shared, cache, kernel } = *self;
        let (heap, shared, cache, kernel) = (Bytes(heap), Bytes(shared), Bytes(cache), Bytes(kernel));
        write!(f, "heap {heap}, tmpfs and shared memory {shared}, page cache {cache}, kernel {kernel}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::flat;

    const MIB: u64 = 1 << 20;

    #[test]
    fn on_v1_the_kernels_part_is_what_is_left() {
        // Linux 6.18, with a tmpfs; the first lines do not include the groups below.
        let text = "cache 4096\nrss 4096\nshmem 0\ntotal_cache 323141632\ntotal_rss 94842880\ntotal_shmem 251658240\n";
        let uses = Uses::of(&flat::parse(text).unwrap(), 419_430_400).unwrap();
        assert_eq!((uses.heap, uses.shared), (94_842_880, 251_658_240));
        assert_eq!((uses.cache, uses.kernel), (71_483_392, 1_445_888));
        assert!(uses.is_shared());
        assert_eq!(uses.notable(), " (240 MiB are files in tmpfs or shared memory)");
        let all = "heap 90 MiB, tmpfs and shared memory 240 MiB, page cache 68 MiB, kernel 1.4 MiB";
        assert_eq!(uses.to_string(), all);
    }

    #[test]
    fn on_v2_the_kernel_says_its_part_or_its_parts_are_summed() {
        let stat = |text: &str| Uses::of(&flat::parse(text).unwrap(), 0);
        let text = "anon 100\nfile 300\nkernel 50\nsock 7\nshmem 200\nslab 9\n";
        let uses = stat(text).unwrap();
        assert_eq!((uses.heap, uses.shared, uses.cache, uses.kernel), (100, 200, 100, 57));
        let older =
            "anon 100\nfile 300\nkernel_stack 16\npagetables 8\npercpu 1\nsock 7\nshmem 200\nslab 9\n";
        assert_eq!(stat(older).unwrap().kernel, 41);
    }

    #[test]
    fn it_cannot_tell_without_one_of_them() {
        assert_eq!(Uses::of(&flat::parse("anon 1\nfile 2\n").unwrap(), 9), None);
        assert_eq!(Uses::of(&Flat::new(), 9), None);
        assert_eq!(Uses::default().notable(), "", "nothing fills an empty limit");
        assert!(!Uses::default().is_shared());
    }

    #[test]
    fn several_parts_may_be_notable_and_page_cache_is_none() {
        let uses = Uses { heap: 40 * MIB, shared: 30 * MIB, cache: 0, kernel: 30 * MIB };
        let said =
            " (30 MiB are files in tmpfs or shared memory, 30 MiB are the kernel's own, 40 MiB are heap)";
        assert_eq!(uses.notable(), said);
        assert_eq!(Uses { cache: 64 * MIB, heap: MIB, ..Uses::default() }.notable(), "");
    }
}
