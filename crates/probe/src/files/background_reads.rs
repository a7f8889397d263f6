//! Rows that are read once are read during the window, a few each second: at its end there is enough to do, and on a slow host the
//! time there may only be enough for the files that are read twice.

use std::time::Duration;

use super::budget::Budget;
use super::{Files, ROWS, Rate, RawFiles, Row};

/// CPU time that this may take each second; it mostly needs one second.
const SLICE: Duration = Duration::from_millis(30);

/// Not early: files of processes (the busiest ones are only known at the end), files that are written meanwhile (the kernel's log), and
/// files of cgroups (there may be thousands).
fn may_be_early(row: &Row) -> bool {
    row.read == Rate::Once
        && !row.hazardous()
        && !row.pattern.contains("{pid}")
        && !row.pattern.contains("kmsg")
        && !row.pattern.starts_with("{v")
}

/// The row that shows whether a sched_ext program schedules the tasks: three small files, without which no share of a CPU can be
/// judged. Then the settings of CPUs and clocks: without them a slow host is not explained.
const FIRST: [&str; 3] =
    ["sys/kernel/sched_ext/", "sys/devices/system/cpu/", "sys/devices/system/clocksource/"];

/// The early rows, in the order in which they are read.
fn in_order() -> impl Iterator<Item = &'static Row> {
    let is_first = |row: &&Row| FIRST.iter().any(|folder| row.pattern.starts_with(folder));
    let rows = || ROWS.iter().filter(|row| may_be_early(row));
    rows().filter(is_first).chain(rows().filter(move |row| !is_first(row)))
}

impl Files {
    /// Read some of the remaining rows.
    pub(super) fn read_ahead(&mut self, at: Duration, seen: &mut RawFiles) {
        let slice = Budget::new(SLICE, SLICE * 10);
        let mut late = false;
        for row in in_order().skip(self.ahead) {
            if slice.spent() {
                break;
            }
            self.ahead += 1;
            self.read_row(row, self.whole_moment(), &mut late, at, seen);
        }
    }

    /// Whether the row was read ahead.
    pub(super) fn was_early(&self, row: &Row) -> bool {
        in_order().take(self.ahead).any(|read| read.id == row.id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Moment;
    use super::*;

    #[test]
    fn each_row_is_read_early_or_at_the_end_and_none_twice() {
        let mut files = Files::open(std::path::Path::new("/"));
        let (mut early, mut late) = (RawFiles::default(), RawFiles::default());
        for second in 1..100 {
            files.read(Moment::Second, Duration::from_secs(second), &[], &mut early);
        }
        assert_eq!(files.ahead, in_order().count());
        files.read(Moment::End, Duration::from_secs(100), &[], &mut late);
        let once = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        let count = |seen: &RawFiles| seen.snapshots.iter().filter(|snapshot| snapshot.name == once).count();
        assert_eq!((count(&early), count(&late)), (1, 0));
        let log = |seen: &RawFiles| seen.snapshots.iter().any(|snapshot| snapshot.name == "dev/kmsg");
        assert!(!log(&early));
    }
}
