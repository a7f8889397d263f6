//! Files and rows that were taken out of the kernel's tables within the window: these have limited room, and a process that comes late in a
//! long window needs a name, too.

use std::collections::{BTreeMap, HashMap, HashSet};

use libbpf_rs::{MapCore as _, MapFlags, MapMut};
use whyslow_model::table::IoFile;

use super::files::{self, Key};
use super::skel::types::{block_file, file_io, file_io_key};
use crate::bpf::value;

/// The files of the most expensive rows stay in the kernel: they are the likeliest to be seen again, and would be sent anew. An eighth of
/// the table at most: it is checked again when half of it has come since.
const HOT: usize = 256;
/// Rows that are kept here: some times as many as a recording has.
const MOST: usize = 4096;

/// Rows and files taken so far.
#[derive(Debug, Default)]
pub struct Taken {
    /// Ids that had been given at the last take.
    told: u32,
    pub rows: BTreeMap<Key, IoFile>,
    /// By id.
    pub files: HashMap<u32, IoFile>,
}

impl Taken {
    /// Sums start anew; files stay known.
    pub fn begin(&mut self) {
        self.rows.clear();
    }

    /// Take the rows and files, if files with so many ids have come since. Where the kernel cannot read and delete in one step (before
    /// 5.14) all stay where they are.
    pub fn take(&mut self, told: u32, rows: &MapMut<'_>, files: &MapMut<'_>) {
        // The table is half full then; with limited memory it is smaller.
        if told.wrapping_sub(self.told) < files.max_entries() / 2 {
            return;
        }
        self.told = told;
        let mut costs: Vec<(u64, u32)> = Vec::new();
        for key in keys(rows) {
            let Ok(Some(row)) = rows.lookup_and_delete(&key) else { continue };
            let (key, row): (file_io_key, file_io) = (value(&key), value(&row));
            costs.push((row.device_ns, key.file));
            files::add(self.rows.entry(files::parts(&key)).or_default(), &files::row(&row));
        }
        costs.sort_unstable_by_key(|(ns, _)| std::cmp::Reverse(*ns));
        let hot: HashSet<u32> =
            costs.iter().take(HOT.min(files.max_entries() as usize / 8)).map(|(_, file)| *file).collect();
        for key in keys(files) {
            let Ok(Some(bytes)) = files.lookup(&key, MapFlags::ANY) else { continue };
            let file: block_file = value(&bytes);
            if file.id != 0 {
                self.files.entry(file.id).or_insert_with(|| files::about(IoFile::default(), &file));
            }
            if !hot.contains(&file.id) {
                let _ = files.delete(&key); // the kernel half then sends it again
            }
        }
        self.keep_the_most_expensive();
    }

    fn keep_the_most_expensive(&mut self) {
        if self.rows.len() <= MOST {
            return;
        }
        let mut costs: Vec<u64> = self.rows.values().map(|row| row.device_ns).collect();
        let (_, least, _) = costs.select_nth_unstable_by(MOST / 2, |a, b| b.cmp(a));
        let least = *least;
        let (kept, others): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.rows).into_iter().partition(|(_, row)| row.device_ns > least);
        self.rows = kept;
        for ((dev, op, ..), row) in others {
            files::add(self.rows.entry((dev, op, 0, 0)).or_default(), &IoFile { comm: String::new(), ..row });
        }
        let named: HashSet<u32> = self.rows.keys().map(|(.., file)| *file).collect();
        self.files.retain(|id, _| named.contains(id));
    }
}

/// All at once: after a deleted key a walk begins anew, and rows that come meanwhile would prolong it.
fn keys(map: &MapMut<'_>) -> Vec<Vec<u8>> {
    map.keys().take(map.max_entries() as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cheap_rows_become_one_and_their_files_are_forgotten() {
        let mut taken = Taken::default();
        for id in 1..=MOST as u32 + 1 {
            let row = IoFile { device_ns: u64::from(id), requests: 1, comm: "x".into(), ..IoFile::default() };
            taken.rows.insert((8, 0, 7, id), row);
            taken.files.insert(id, IoFile { path: format!("/{id}"), ..IoFile::default() });
        }
        let all = |taken: &Taken| {
            taken
                .rows
                .values()
                .map(|row| (row.requests, row.device_ns))
                .fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1))
        };
        let before = all(&taken);
        taken.keep_the_most_expensive();
        assert_eq!(all(&taken), before);
        assert_eq!((taken.rows.len(), taken.files.len()), (MOST / 2 + 1, MOST / 2));
        assert_eq!(taken.rows[&(8, 0, 0, 0)].comm, "");
        assert!(taken.files.contains_key(&(MOST as u32 + 1)) && !taken.files.contains_key(&1));
    }
}
