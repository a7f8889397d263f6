//! The tables of all areas as one: the innermost function that is in it shows what a stack waits for.

use std::sync::LazyLock;

use whyslow_model::wait::WaitTarget;

use super::{Class, WaitContext, WaitKind, files_table, futex, kernel, process, storage_table, time};
use crate::hashing::Table;

/// Functions that wait, and what they wait for.
pub(crate) struct Row {
    pub at: &'static [&'static str],
    tell: Tell,
    /// The function counts only if it is the innermost: further out it does other things, too.
    innermost: bool,
}

enum Tell {
    As(WaitTarget, Class),
    By(fn(&WaitContext<'_>) -> WaitKind),
}

/// A task in one of the functions `at` waits for `what`.
pub(crate) const fn row(at: &'static [&'static str], what: WaitTarget, class: Class) -> Row {
    Row { at, tell: Tell::As(what, class), innermost: false }
}

/// ... if the function is the innermost.
pub(crate) const fn here(at: &'static [&'static str], what: WaitTarget, class: Class) -> Row {
    Row { at, tell: Tell::As(what, class), innermost: true }
}

/// A task in one of the functions `at` waits for what `tell` returns.
pub(crate) const fn by(at: &'static [&'static str], tell: fn(&WaitContext<'_>) -> WaitKind) -> Row {
    Row { at, tell: Tell::By(tell), innermost: false }
}

/// ... if the function is the innermost.
pub(crate) const fn by_here(at: &'static [&'static str], tell: fn(&WaitContext<'_>) -> WaitKind) -> Row {
    Row { at, tell: Tell::By(tell), innermost: true }
}

/// All areas.
pub(crate) const AREAS: &[&[Row]] =
    &[files_table::ROWS, futex::ROWS, storage_table::ROWS, kernel::ROWS, process::ROWS, time::ROWS];

static BY_FUNCTION: LazyLock<Table<&'static str, &'static Row>> = LazyLock::new(|| {
    let rows = AREAS.iter().flat_map(|area| area.iter());
    rows.flat_map(|row| row.at.iter().map(move |function| (*function, row))).collect()
});

/// A completion's waiter is named by its nearest callers: a frame further out is unrelated.
const NEAR: usize = 5;

/// What the innermost known function waits for.
pub(crate) fn ask(wait: &WaitContext<'_>) -> Option<WaitKind> {
    let plumbing = kernel::completion_depth(wait);
    let near = if plumbing > 0 { NEAR } else { usize::MAX };
    let row = wait
        .frames
        .iter()
        .skip(plumbing)
        .take(near)
        .enumerate()
        .find_map(|(depth, frame)| BY_FUNCTION.get(frame).filter(|row| depth == 0 || !row.innermost))?;
    Some(match row.tell {
        Tell::As(what, class) => WaitKind::target(what, class),
        Tell::By(tell) => tell(wait),
    })
}
