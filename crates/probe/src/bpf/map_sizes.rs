//! How large the tables are: whole, or halved so many times that they fit into our memory limit (`budget.rs`).

use std::sync::atomic::{AtomicU32, Ordering};

use libbpf_rs::{MapType, OpenObject};

/// Smaller ones would be full on any host.
pub const MOST_HALVINGS: u32 = 4;
/// A table keeps so many rows (a ring: bytes).
const LEAST_ROWS: u32 = 256;
const LEAST_BYTES: u32 = 64 << 10;
/// Arrays are by CPU, by kind, or by hash, and stay as they are; from here on they are by task.
const BY_TASK: u32 = 1 << 16;
/// A table whose rows are allocated when they are needed (include/uapi/linux/bpf.h).
const BPF_F_NO_PREALLOC: u32 = 1;

/// One run at a time.
static HALVINGS: AtomicU32 = AtomicU32::new(0);

/// From now on tables are halved so many times.
pub(crate) fn halve(times: u32) {
    HALVINGS.store(times.min(MOST_HALVINGS), Ordering::Relaxed);
}

pub(crate) fn halvings() -> u32 {
    HALVINGS.load(Ordering::Relaxed)
}

/// Rows of a table that has `whole` of them where there is room.
pub(crate) fn rows(whole: u32) -> u32 {
    smaller(whole, halvings(), LEAST_ROWS)
}

/// Make an object that is not loaded yet fit. Before maps are lent to it: the owner of those sets their size.
pub(crate) fn apply(object: &mut OpenObject) -> libbpf_rs::Result<()> {
    let times = halvings();
    if times == 0 {
        return Ok(());
    }
    for mut map in object.maps_mut() {
        let whole = map.max_entries();
        let least = match map.map_type() {
            MapType::Hash | MapType::LruHash if map.map_flags() & BPF_F_NO_PREALLOC == 0 => LEAST_ROWS,
            MapType::StackTrace | MapType::Stack => LEAST_ROWS,
            MapType::RingBuf => LEAST_BYTES,
            MapType::Array if whole >= BY_TASK => LEAST_ROWS,
            _ => continue,
        };
        map.set_max_entries(smaller(whole, times, least))?;
    }
    Ok(())
}

fn smaller(whole: u32, times: u32, least: u32) -> u32 {
    (whole >> times).max(least.min(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_get_smaller_but_not_useless_and_never_larger() {
        assert_eq!(smaller(65_536, 4, LEAST_ROWS), 4096);
        assert_eq!(smaller(1024, 4, LEAST_ROWS), 256);
        assert_eq!(smaller(1, 4, LEAST_ROWS), 1);
        assert_eq!(smaller(16 << 20, 4, LEAST_BYTES), 1 << 20, "a ring stays a power of two");
        assert_eq!(rows(16_384), 16_384, "they were not halved");
    }
}
