//! Makes the simulated case folders again: `cargo run --release -p whyslow --example hosts -- FOLDER`. Prints what is true of
//! each: time lost, from a second run without what is wrong. Expectations are written by hand, beside.

use std::fs;
use std::path::PathBuf;

#[path = "../tests/hosts/scheduler.rs"]
mod scheduler;
#[path = "../tests/hosts/shapes.rs"]
mod shapes;
#[path = "../tests/hosts/write.rs"]
mod write;

fn main() -> anyhow::Result<()> {
    let folder =
        PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "crates/whyslow/tests/cases".to_owned()));
    for shape in shapes::all() {
        let lost = shape.without.as_ref().map_or(0.0, |(without, whom)| shape.host.lost(without, whom));
        println!("{:>32}: {lost:.2} s lost", shape.name);
        let recording = write::recording(&shape);
        let at = folder.join(shape.name);
        // Its rows are 20 MB.
        if recording.tables.tasks.as_ref().is_some_and(|rows| rows.len() > 10_000) {
            fs::create_dir_all(&at)?;
            whyslow::store::save(&recording, &at.join("host.why"))?;
        } else {
            write_host(&recording, &at.join("host"))?;
        }
    }
    Ok(())
}

/// As `tar -x` of a recording leaves it: the last of each file in its place, the first below `earlier`.
fn write_host(recording: &whyslow_model::Recording, at: &std::path::Path) -> anyhow::Result<()> {
    let put = |path: PathBuf, bytes: &[u8]| {
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        fs::write(path, bytes)
    };
    for frame in &recording.snapshots {
        let last = recording.last(&frame.name).is_ok_and(|last| std::ptr::eq(last, frame));
        let path = if last { at.join(&frame.name) } else { at.join("earlier/0000000").join(&frame.name) };
        put(path, &frame.bytes)?;
    }
    put(at.join("whyslow.json"), format!("{}\n", serde_json::to_string_pretty(&recording.meta)?).as_bytes())?;
    let tables = &recording.tables;
    let table = |name: &str, rows: Option<Vec<serde_json::Value>>| match rows {
        Some(rows) => {
            let lines: String = rows.into_iter().map(|row| format!("{}\n", short(row))).collect();
            put(at.join(format!("tables/{name}.ndjson")), lines.as_bytes())
        }
        None => Ok(()),
    };
    table("tasks", values(tables.tasks.as_deref())?)?;
    table("cgroups", values(tables.cgroups.as_deref())?)?;
    table("runs", values(tables.runs.as_deref())?)?;
    table("speeds", values(tables.speeds.as_deref())?)?;
    Ok(())
}

fn values<T: serde::Serialize>(rows: Option<&[T]>) -> anyhow::Result<Option<Vec<serde_json::Value>>> {
    Ok(rows.map(|rows| rows.iter().map(serde_json::to_value).collect::<Result<_, _>>()).transpose()?)
}

/// What is zero, empty or false is left out, as it is read back.
fn short(row: serde_json::Value) -> serde_json::Value {
    let serde_json::Value::Object(fields) = row else { return row };
    let says = |value: &serde_json::Value| {
        !(value.is_null()
            || *value == 0
            || *value == false
            || *value == ""
            || value.as_array().is_some_and(Vec::is_empty))
    };
    serde_json::Value::Object(fields.into_iter().filter(|(_, value)| says(value)).collect())
}
