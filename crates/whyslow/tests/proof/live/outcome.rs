//! Run a cell, once or many times.

use std::path::PathBuf;

use whyslow_faults::Draw;
use whyslow_faults::rounds::{self, Outcome, Trouble};

use crate::live::cell::Cell;
use crate::live::{judge, testbed};

/// Where all is kept that whyslow said.
pub fn kept_in() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("live")
}

/// One cell as a test: not drawn, once, or the rounds of a soak.
pub fn run(cell: Cell) {
    rounds::run(&cell, |seed| cell.is_drawn(seed), &kept_in(), |draw| make(cell, draw));
}

fn make(cell: Cell, draw: &mut Draw) -> Result<Outcome, Trouble> {
    rounds::until_judged(&cell, |attempt| {
        let (made, look) = testbed::make(cell, draw, &format!("{cell}-{}-{attempt}", draw.seed()))?;
        Ok(judge::judge(&made, &look))
    })
}
