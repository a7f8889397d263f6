//! What is read once only is read while the window lasts, a little each second: at its end there is enough to do, and a host
//! that is slow may get no further there than the files that are read twice.

use std::time::Duration;

use super::budget::Budget;
use super::{Files, ROWS, Rate, Row, Seen};

/// CPU time that this may take each second, mostly of one second.
const SLICE: Duration = Duration::from_millis(30);

/// Not of processes (which ones are worth it is known at the end), nor of what is written meanwhile (the kernel's log), nor of
/// cgroups: there may be thousands.
fn may_be_early(row: &Row) -> bool {
    row.read == Rate::Once
        && !row.hazardous()
        && !row.pattern.contains("{pid}")
        && !row.pattern.contains("kmsg")
        && !row.pattern.starts_with("{v")
}

impl Files {
    /// Some of the rows that are left.
    pub(super) fn read_ahead(&mut self, at: Duration, seen: &mut Seen) {
        let slice = Budget::new(SLICE, SLICE * 10);
        let mut late = false;
        while let Some(row) = ROWS.get(self.ahead).filter(|_| !slice.spent()) {
            self.ahead += 1;
            if may_be_early(row) {
                self.read_row(row, self.whole_moment(), &mut late, at, seen);
            }
        }
    }

    /// Whether the row of this number was read ahead.
    pub(super) fn was_early(&self, number: usize, row: &Row) -> bool {
        number < self.ahead && may_be_early(row)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Moment;
    use super::*;

    #[test]
    fn each_row_is_read_early_or_at_the_end_and_none_twice() {
        let mut files = Files::open(std::path::Path::new("/"));
        let (mut early, mut late) = (Seen::default(), Seen::default());
        for second in 1..100 {
            files.read(Moment::Second, Duration::from_secs(second), &[], &mut early);
        }
        assert_eq!(files.ahead, ROWS.len());
        files.read(Moment::End, Duration::from_secs(100), &[], &mut late);
        let once = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        let count = |seen: &Seen| seen.frames.iter().filter(|frame| frame.name == once).count();
        assert_eq!((count(&early), count(&late)), (1, 0));
        let log = |seen: &Seen| seen.frames.iter().any(|frame| frame.name == "dev/kmsg");
        assert!(!log(&early));
    }
}
