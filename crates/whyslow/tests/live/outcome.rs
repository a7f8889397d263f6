//! Run a cell, once or many times.

use std::path::PathBuf;

use whyslow_faults::Draw;
use whyslow_faults::rounds::{self, Outcome, Trouble};

use crate::cell::Cell;
use crate::{honest, pair, quiet, single};

/// Where all is kept that whyslow said.
pub fn kept_in() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("live")
}

/// One cell as a test: not drawn, once, or the rounds of a soak.
pub fn run(cell: Cell) {
    rounds::run(&cell, |seed| cell.is_drawn(seed), &kept_in(), |draw| make(cell, draw));
}

fn make(cell: Cell, draw: &mut Draw) -> Result<Outcome, Trouble> {
    let label = format!("{cell}-{}", draw.seed());
    match cell {
        Cell::Fault(kind) => single::fault(kind, draw, &label),
        Cell::Crowd(kind) => single::in_a_crowd(kind, draw, &label),
        Cell::Twin(_) | Cell::Decoy(_) => quiet::check(cell, draw, &label),
        Cell::Pair(a, b) => pair::check([a, b], draw, &label),
        Cell::Idle => honest::idle(&label),
        Cell::Compile(jobs) => honest::compile(jobs, draw, &label),
    }
}
