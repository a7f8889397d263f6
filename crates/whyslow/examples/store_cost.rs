//! What a recording costs on disk and in CPU time: the figures of docs/recording.md.
//!
//! `cargo run --release -p whyslow --example store_cost -- FOLDER` also leaves in FOLDER what it measured, for the
//! comparison with Parquet: `host.why`, `events.ndjson.zst`. A recording named after it is measured, too.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use whyslow::store;
use whyslow_model::Recording;
use whyslow_model::table::Tables;

#[path = "../tests/offline/store/sample.rs"]
mod sample;

#[path = "../tests/offline/store/long.rs"]
mod long;

/// One of many ordered events, as tracing would give them.
#[derive(serde::Serialize)]
struct Event {
    at_ns: u64,
    pid: u32,
    wait_ns: u64,
}

/// CPU time of this process.
fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` has room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The least CPU time of five runs, and the last result.
fn timed<T>(mut run: impl FnMut() -> T) -> (Duration, T) {
    let mut best = Duration::MAX;
    let mut result = None;
    for _ in 0..5 {
        let before = cpu();
        result = Some(run());
        best = best.min(cpu().saturating_sub(before));
    }
    (best, result.expect("it ran five times"))
}

fn main() -> anyhow::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| ".".into()));
    let path = folder.join("host.why");
    let rec = sample::recording(5_000, 1);
    report("all of it", &rec, &path)?;
    let only = |tables| Recording { tables, ..Recording::default() };
    let tasks = Tables { tasks: rec.tables.tasks.clone(), ..Tables::default() };
    report("5,000 tasks", &only(tasks), &path)?;
    let samples = Tables { samples: rec.tables.samples.clone(), ..Tables::default() };
    report("2,500 stacks", &only(samples), &path)?;
    report("kernel files", &Recording { tables: Tables::default(), ..rec.clone() }, &path)?;
    report("a command with 200,000 rows of timelines", &long::recording(200_000, 1), &path)?;
    if let Some(recorded) = std::env::args_os().nth(2) {
        report("the recording named", &store::open(&PathBuf::from(recorded))?, &path)?;
    }
    store::save(&rec, &path)?;
    events(&folder)
}

fn report(what: &str, rec: &Recording, path: &std::path::Path) -> anyhow::Result<()> {
    let (saving, saved) = timed(|| store::save(rec, path));
    saved?;
    let (opening, opened) = timed(|| store::open(path));
    anyhow::ensure!(opened? == *rec, "what was opened is not what was saved");
    let packed = fs::metadata(path)?.len();
    let unpacked = plain_size(path)?;
    println!("{what}: {unpacked} bytes, packed {packed}; CPU to save {saving:.1?}, to open {opening:.1?}");
    Ok(())
}

fn plain_size(path: &std::path::Path) -> io::Result<u64> {
    let mut size = Counter(0);
    zstd::stream::copy_decode(fs::File::open(path)?, &mut size)?;
    Ok(size.0)
}

fn events(folder: &std::path::Path) -> anyhow::Result<()> {
    let mut draw = sample::Draw::new(1);
    let mut at_ns = 0;
    let events: Vec<Event> = (0..1_000_000)
        .map(|_| {
            at_ns += draw.below(20_000);
            let bits = draw.below(24);
            Event { at_ns, pid: 1000 + draw.below(300) as u32, wait_ns: draw.below(1 << bits) }
        })
        .collect();
    let (cpu, written) = timed(|| -> io::Result<Vec<u8>> {
        let mut out = zstd::Encoder::new(Vec::new(), 1)?;
        for event in &events {
            serde_json::to_writer(&mut out, event)?;
            out.write_all(b"\n")?;
        }
        out.finish()
    });
    let written = written?;
    println!("1,000,000 rows of 3 columns as NDJSON + zstd: {} bytes, {cpu:.1?} of CPU", written.len());
    fs::write(folder.join("events.ndjson.zst"), written)?;
    Ok(())
}

struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
