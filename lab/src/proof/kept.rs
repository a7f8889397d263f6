//! The results so far, one line each, after a first line that names their subject.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use whyslow_faults::proven::Row;

use crate::Trouble;

/// The subject of the rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The seed of its draws.
    pub seed: u64,
    /// Commit, programs, settings.
    pub of: Vec<String>,
    /// The date when it was begun.
    pub date: String,
}

/// One cell that was made once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// The test or scenario that made it: each makes one cell.
    pub item: String,
    /// "6.1", "host 6.18".
    pub kernel: String,
    /// Its result.
    pub row: Row,
}

/// All results, in order.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    head: Head,
    made: Vec<Made>,
}

impl Kept {
    /// The file's results for the same subject; otherwise it begins again. `seed`: a requested seed.
    pub fn open(path: &Path, head: Head, seed: Option<u64>, anew: bool) -> Result<Self, Trouble> {
        let before = if anew { None } else { read(path) };
        let is_of_it =
            |kept: &Kept| kept.head.of == head.of && seed.is_none_or(|seed| seed == kept.head.seed);
        let kept = before.filter(is_of_it).unwrap_or(Kept { path: path.to_owned(), head, made: Vec::new() });
        // Writes whole lines, without those of another proof.
        let write = || {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            let lines = kept.made.iter().map(line).collect::<io::Result<String>>()?;
            fs::write(path, line(&kept.head)? + &lines)
        };
        write().map_err(|err| Trouble::new(format!("write {}", path.display()), err))?;
        Ok(kept)
    }

    /// The subject.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Each try of each cell.
    pub fn all(&self) -> &[Made] {
        &self.made
    }

    /// The tries of one item, in order.
    pub fn of(&self, item: &str) -> Vec<&Made> {
        self.made.iter().filter(|made| made.item == item).collect()
    }

    /// Add a try.
    pub fn add(&mut self, made: Made) -> Result<(), Trouble> {
        let append = || {
            let mut file = OpenOptions::new().append(true).open(&self.path)?;
            file.write_all(line(&made)?.as_bytes())
        };
        append().map_err(|err| Trouble::new(format!("write {}", self.path.display()), err))?;
        self.made.push(made);
        Ok(())
    }
}

fn line(of: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(of)? + "\n")
}

/// Reads as far as possible: a machine may crash while a line is written.
fn read(path: &Path) -> Option<Kept> {
    let text = String::from_utf8_lossy(&fs::read(path).ok()?).into_owned();
    let mut lines = text.lines();
    let head = serde_json::from_str(lines.next()?).ok()?;
    let made = lines.map_while(|line| serde_json::from_str(line).ok()).collect();
    Some(Kept { path: path.to_owned(), head, made })
}

#[cfg(test)]
mod tests {
    use whyslow_faults::proven::Ended;

    use super::*;

    fn head(seed: u64, of: &str) -> Head {
        Head { seed, of: vec![of.to_owned()], date: format!("day {seed}") }
    }

    fn made(item: &str) -> Made {
        let row = Row::of("days", "x", Ended::Failed);
        Made { item: item.to_owned(), kernel: "6.1".to_owned(), row }
    }

    #[test]
    fn a_proof_goes_on_where_it_was_with_its_own_seed_and_date() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/rows");
        let mut kept = Kept::open(&path, head(7, "c1"), None, false).unwrap();
        ["a", "a", "b"].iter().for_each(|item| kept.add(made(item)).unwrap());
        for torn in ["{\"item\":\"c\",\"ker", "\0\0\0\n", "{}\n"] {
            let mut file = OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(torn.as_bytes()).unwrap();
            let again = Kept::open(&path, head(8, "c1"), None, false).unwrap();
            assert_eq!((again.head(), again.all().len()), (&head(7, "c1"), 3), "{torn:?}");
            assert_eq!((again.of("a").len(), again.of("c").len()), (2, 0));
        }
        let mut again = Kept::open(&path, head(8, "c1"), Some(7), false).unwrap();
        again.add(made("c")).unwrap();
        assert_eq!(Kept::open(&path, head(9, "c1"), None, false).unwrap().all().len(), 4);
    }

    #[test]
    fn rows_of_another_commit_or_seed_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let fill = || Kept::open(&path, head(7, "c1"), None, true).unwrap().add(made("a")).unwrap();
        for (of, seed, anew) in [("c2", None, false), ("c1", Some(8), false), ("c1", None, true)] {
            fill();
            let kept = Kept::open(&path, head(8, of), seed, anew).unwrap();
            assert!(kept.all().is_empty() && kept.head().seed == 8, "{of} {seed:?} {anew}");
        }
        fs::write(&path, "no head\n").unwrap();
        assert!(Kept::open(&path, head(8, "c1"), None, false).unwrap().all().is_empty());
    }
}
