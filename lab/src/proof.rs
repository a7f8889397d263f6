//! `lab proof`: statistical tests, one cell at a time; a cell that went wrong is made again with its own seed, five times at most, and all
//! results are published (docs/truth.md).
//!
//! Results are kept with the commit and the seed: an interrupted proof continues where it was. Only the first try of each cell counts for
//! how often whyslow is right; the other tries separate a defect from bad luck.

mod item;
mod kept;
mod page;
mod resources;
mod score;

use std::path::PathBuf;
use std::process::ExitCode;

use whyslow_faults::draw;

use crate::{Trouble, interrupt, live};
use item::Bench;
use kept::{Head, Kept, Made};
use page::Page;
use score::{Score, Standing, standing};

/// What to prove.
#[derive(Debug, Clone, clap::Args)]
pub struct Asked {
    /// Output of `cargo test --no-run --message-format=json`: the paths of the test binaries.
    binaries: PathBuf,
    /// The same for binaries that are optimised as they ship: for the tests of whyslow's own cost.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Only this suite: a module of the proof, resources, lock_chains, live, lab, costs.
    #[arg(long, value_name = "SUITE")]
    suite: Option<String>,
    /// Run all cells, not only drawn ones.
    #[arg(long)]
    all: bool,
    /// Repeat the draws of the run with this seed.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Begin again, whatever was made before.
    #[arg(long)]
    anew: bool,
    /// File for the rows of the results.
    #[arg(long, value_name = "FILE")]
    kept: PathBuf,
    /// The commit under test; without one nothing is published.
    #[arg(long, value_name = "ID")]
    commit: Option<String>,
    /// Today's date.
    #[arg(long, value_name = "YYYY-MM-DD", default_value = "")]
    date: String,
    /// The page that publishes it.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// The exit status of a program that a signal ended: a caller must not continue with other work.
const INTERRUPTED: u8 = 130;

/// Make the missing cells, and report; returns 1 if there is a defect, or if nothing was judged.
pub fn run(asked: &Asked) -> Result<ExitCode, Trouble> {
    live::as_root()?;
    let head = Head {
        seed: asked.seed.unwrap_or_else(draw::run_seed),
        of: item::subject(asked)?,
        date: asked.date.clone(),
    };
    // Uncommitted sources may differ each time.
    let anew = asked.anew || asked.commit.is_none();
    let mut kept = Kept::open(&asked.kept, head, asked.seed, anew)?;
    println!("proof: seed {}, made before: {}", kept.head().seed, kept.all().len());
    let bench = Bench::here(asked, kept.head().seed)?;
    let items = bench.items()?;
    for (at, item) in items.iter().enumerate() {
        let at = format!("{}/{}", at + 1, items.len());
        proven(&mut kept, &item.key, || bench.make(item, &at))?;
        if interrupt::asked() {
            break;
        }
    }
    let score = Score::of(&kept, items.iter().map(|item| item.key.as_str()));
    println!("\n{score}");
    if interrupt::asked() {
        println!("proof: interrupted; the same command goes on");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    match (&asked.page, &asked.commit) {
        (_, None) => println!("proof: not published: no commit holds what was proven"),
        _ if asked.seed.is_some() => println!("proof: not published: the seed was given"),
        (Some(page), Some(commit)) => {
            Page::read(page)?.with(&score, commit, &kept.head().date).write(page)?;
        }
        (None, _) => {}
    }
    Ok(ExitCode::from(u8::from(score.judged() == 0 || score.has_defect())))
}

/// Make a cell, and repeat it after a failure, until it is settled.
fn proven(
    kept: &mut Kept,
    item: &str,
    mut make: impl FnMut() -> Result<Made, Trouble>,
) -> Result<(), Trouble> {
    while matches!(standing(&kept.of(item)), Standing::New | Standing::Open) && !interrupt::asked() {
        let made = make();
        // After an interrupt the result is dropped: the next proof makes the cell again.
        if !interrupt::asked() {
            kept.add(made?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use whyslow_faults::proven::{Ended, Row};

    use super::*;

    fn made(ended: Ended) -> Made {
        Made { item: "a".to_owned(), kernel: "6.1".to_owned(), row: Row::of("days", "x", ended) }
    }

    /// How often a cell is made that ends this way each time, after so many earlier tries.
    fn times(before: usize, of: &[Ended]) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let head = Head { seed: 7, of: Vec::new(), date: String::new() };
        let mut kept = Kept::open(&folder.path().join("rows"), head, None, false).unwrap();
        of[..before].iter().for_each(|ended| kept.add(made(*ended)).unwrap());
        proven(&mut kept, "a", || Ok(made(of[kept_at(&folder)]))).unwrap();
        kept.all().len() - before
    }

    /// Lines of the file, except the first.
    fn kept_at(folder: &tempfile::TempDir) -> usize {
        std::fs::read_to_string(folder.path().join("rows")).unwrap().lines().count() - 1
    }

    #[test]
    fn failed_cell_is_made_again_until_its_rate_is_settled() {
        use Ended::{Failed, NotIdle, Passed};
        assert_eq!(times(0, &[Passed; 9]), 1);
        assert_eq!(times(0, &[NotIdle; 9]), 1);
        assert_eq!(times(0, &[Failed; 9]), 3);
        assert_eq!(times(0, &[Failed, Passed, Passed, Passed, Passed, Failed]), 5);
        assert_eq!(times(0, &[Failed, NotIdle, NotIdle, NotIdle, NotIdle, NotIdle, Failed]), 6);
        // Interrupted in the middle of it.
        assert_eq!(times(2, &[Failed, Passed, Failed, Failed, Failed]), 2);
        assert_eq!(times(1, &[Passed, Failed]), 0);
    }
}
