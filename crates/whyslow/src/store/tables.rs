//! The only list of the tables, by name, in the order in which they stand in the file.
//!
//! A new table needs a field in `model::table::Tables`, and a line here.

use std::io::{self, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;
use whyslow_model::table::Tables;

/// The place of a table in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Right after the files about the whole host: without this table, few rules have an answer.
    First,
    /// After the cgroups' files: the table is large, and only makes answers finer.
    Later,
}

macro_rules! tables {
    ($($name:ident $place:ident,)*) => {
        /// Calls `see` with each table that was recorded.
        pub fn each(tables: &Tables, see: &mut dyn FnMut(&'static str, Place, &dyn Rows)) {
            // Names every field: a table that is not in the list does not compile.
            let Tables { $($name),* } = tables;
            $(if let Some(rows) = $name {
                see(stringify!($name), Place::$place, rows);
            })*
        }

        /// The slot for the rows of the table `name`, and the static name of the table.
        pub fn slot<'t>(tables: &'t mut Tables, name: &str) -> Option<(&'static str, &'t mut dyn Slot)> {
            match name {
                $(stringify!($name) => Some((stringify!($name), &mut tables.$name)),)*
                _ => None,
            }
        }
    };
}

tables! {
    cpus First,
    cgroups First,
    groups First,
    users First,
    listeners First,
    disk First,
    io_files Later,
    tasks First,
    memory First,
    connects First,
    waits Later,
    samples Later,
    programs Later,
    stacks Later,
    locks Later,
    works Later,
    failed_calls First,
    latency_holders First,
    spins Later,
    calls Later,
    slow_calls Later,
    holds Later,
    requests Later,
    runs Later,
    spans Later,
    polls First,
    sockets First,
    speeds First,
    cross_calls Later,
    late_timers Later,
    gaps Later,
    irq_latencies Later,
    stalls Later,
    stat_reads Later,
    churn Later,
    populations Later,
    blocked Later,
    pings Later,
}

/// A table that can be written.
pub trait Rows {
    /// The number of rows.
    fn count(&self) -> usize;
    /// Appends row `at` to `out`, as one line of JSON.
    fn write(&self, at: usize, out: &mut dyn Write) -> io::Result<()>;
}

impl<T: Serialize> Rows for Vec<T> {
    fn count(&self) -> usize {
        self.len()
    }

    fn write(&self, at: usize, out: &mut dyn Write) -> io::Result<()> {
        if let Some(row) = self.get(at) {
            serde_json::to_writer(&mut *out, row)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// A table that can be filled.
pub trait Slot {
    /// Creates the table, even if no row follows, with room for so many rows if memory allows.
    fn begin(&mut self, rows: usize);
    /// Appends the row in this line.
    fn push(&mut self, line: &[u8]) -> serde_json::Result<()>;
    /// Memory of one row, without its heap data.
    fn row_size(&self) -> usize;
    /// The number of rows, if the table exists.
    fn count(&self) -> Option<usize>;
}

impl<T: DeserializeOwned> Slot for Option<Vec<T>> {
    fn begin(&mut self, rows: usize) {
        // A failed reservation is no error: the table grows row by row.
        let _ = self.get_or_insert_default().try_reserve_exact(rows);
    }

    fn push(&mut self, line: &[u8]) -> serde_json::Result<()> {
        // If the whole line is UTF-8, all its strings are: serde_json need not check each string again.
        let row = match std::str::from_utf8(line) {
            Ok(text) => serde_json::from_str(text)?,
            Err(_) => serde_json::from_slice(line)?,
        };
        self.get_or_insert_default().push(row);
        Ok(())
    }

    fn row_size(&self) -> usize {
        size_of::<T>()
    }

    fn count(&self) -> Option<usize> {
        self.as_ref().map(Vec::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whyslow_model::table::Task;

    #[test]
    fn only_recorded_tables_are_walked() {
        let tables = Tables { tasks: Some(vec![Task::default()]), ..Tables::default() };
        let mut seen = Vec::new();
        each(&tables, &mut |name, _, rows| seen.push((name, rows.count())));
        assert_eq!(seen, [("tasks", 1)]);
    }

    #[test]
    fn a_row_goes_where_its_table_is() {
        let mut tables = Tables::default();
        let (_, slot) = slot(&mut tables, "tasks").expect("tasks is a table");
        slot.push(br#"{"pid": 7, "from_the_future": []}"#).unwrap();
        assert!(slot.push(br#"{"pid": "seven"}"#).is_err());
        assert_eq!(tables.tasks, Some(vec![Task { pid: 7, ..Task::default() }]));
        assert!(super::slot(&mut tables, "passwd").is_none());
    }
}
