//! A cut or damaged file gives everything before the damage, and invents nothing.

use std::fs;

use whyslow::store;
use whyslow_model::{FileSnapshot, Recording};

use crate::store::sample::{self, Draw};

fn saved(rec: &Recording) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    store::save(rec, &folder.path().join("host.why")).unwrap();
    fs::read(folder.path().join("host.why")).unwrap()
}

fn opened(bytes: &[u8]) -> Result<Recording, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("host.why"), bytes).unwrap();
    store::open(&folder.path().join("host.why")).map_err(|e| format!("{e:#}"))
}

fn begins<T: PartialEq>(part: &Option<Vec<T>>, whole: &Option<Vec<T>>) -> bool {
    let whole = whole.as_deref().unwrap_or_default();
    part.as_deref().is_none_or(|part| whole.starts_with(part))
}

/// Everything in `part` is in `whole`; a file has its first and last frame, or none.
fn invents_nothing(part: &Recording, whole: &Recording) -> bool {
    let ends =
        |rec: &Recording, f: &FileSnapshot| Some((rec.first(&f.name).ok()?.at, rec.last(&f.name).ok()?.at));
    let mut rest = whole.snapshots.iter();
    part.meta == whole.meta
        && part.snapshots.iter().all(|f| rest.any(|g| f == g) && ends(part, f) == ends(whole, f))
        && begins(&part.tables.tasks, &whole.tables.tasks)
        && begins(&part.tables.cgroups, &whole.tables.cgroups)
        && begins(&part.tables.cpus, &whole.tables.cpus)
        && begins(&part.tables.disk, &whole.tables.disk)
        && begins(&part.tables.waits, &whole.tables.waits)
        && begins(&part.tables.samples, &whole.tables.samples)
        && part
            .missing
            .iter()
            .all(|note| whole.missing.contains(note) || note.text.starts_with("cannot read "))
}

/// What remains after a cut, printed with `--nocapture` for docs/recording.md.
#[test]
fn the_more_is_left_of_a_file_the_more_it_tells() {
    let rec = sample::recording(5_000, 11);
    let bytes = saved(&rec);
    let rows = |t: Option<usize>| t.unwrap_or(0);
    let mut before = (0, 0);
    println!(
        "{} bytes; left of it, in %: tasks, kernel files (of {}), waits, samples",
        bytes.len(),
        rec.snapshots.len()
    );
    for tenth in 1..10 {
        let part = opened(&bytes[..bytes.len() * tenth / 10]).unwrap();
        assert!(invents_nothing(&part, &rec), "{tenth}0 %");
        let tasks = rows(part.tables.tasks.as_ref().map(Vec::len));
        let waits = rows(part.tables.waits.as_ref().map(Vec::len));
        let samples = rows(part.tables.samples.as_ref().map(Vec::len));
        println!("| {tenth}0 % | {tasks} | {} | {waits} | {samples} |", part.snapshots.len());
        let reported = (tasks + waits + samples, part.snapshots.len());
        assert!(reported.0 >= before.0 && reported.1 >= before.1);
        before = reported;
        let why = part.torn.expect("a cut is noticed");
        assert!(why.starts_with("the file ends early, after "), "{why}");
    }
    assert!(before.0 > 5_000 && before.1 > 300, "{before:?}");
}

#[test]
fn a_cut_says_what_is_lost() {
    let rec = sample::recording(200, 3);
    let bytes = saved(&rec);
    let part = opened(&bytes[..bytes.len() / 3]).unwrap();
    let torn = part.torn.as_deref().unwrap_or_default();
    let at = format!("at byte {}", bytes.len() / 3);
    assert!(torn.starts_with("the file ends early, after ") && torn.contains(&at), "{torn}");
    assert!(torn.contains("; lost: ") && torn.contains("kernel files"), "{torn}");
    assert_eq!(
        part.why_missing("proc/modules").to_string(),
        "cannot read proc/modules: the recording ends before it"
    );
    let samples = part.why_missing("table samples").to_string();
    assert!(
        samples.contains(" of 100 rows") || samples.ends_with("the recording ends before it"),
        "{samples}"
    );
}

#[test]
fn every_cut_of_a_small_file_is_an_error_or_a_torn_recording() {
    let rec = sample::recording(4, 5);
    let bytes = saved(&rec);
    // Each byte of the head, then some bytes, then each byte at the end of the tar and of its last zstd frame.
    let some = (600..bytes.len()).step_by(197);
    for cut in (0..600).chain(some).chain(bytes.len() - 200..bytes.len()) {
        match opened(&bytes[..cut]) {
            Ok(part) => assert!(part.torn.is_some() && invents_nothing(&part, &rec), "cut at {cut}"),
            Err(why) => {
                assert!(why.starts_with("cannot open recording ") && cut < 600, "cut at {cut}: {why}")
            }
        }
    }
}

#[test]
fn a_flipped_bit_invents_nothing() {
    let seed = crate::store::seed();
    println!("seed {seed}");
    let mut draw = Draw::new(seed);
    let rec = sample::recording(300, seed);
    let bytes = saved(&rec);
    for _ in 0..400 {
        let (at, bit) = (draw.below(bytes.len() as u64) as usize, draw.below(8));
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << bit;
        if let Ok(part) = opened(&damaged) {
            assert!(invents_nothing(&part, &rec), "seed {seed}: bit {bit} of byte {at}");
            assert!(part.torn.is_some() || part == rec, "seed {seed}: bit {bit} of byte {at}");
        }
    }
}

/// Damage in the tar and in the JSON below an intact zstd layer: no checksum helps there.
#[test]
fn no_damage_makes_it_panic() {
    let seed = crate::store::seed();
    println!("seed {seed}");
    let mut draw = Draw::new(seed);
    let packed = saved(&sample::recording(40, seed));
    let plain = zstd::decode_all(packed.as_slice()).unwrap();
    for round in 0..600 {
        let (mut bytes, below) = if round % 2 == 0 { (packed.clone(), false) } else { (plain.clone(), true) };
        for _ in 0..=draw.below(20) {
            let at = draw.below(bytes.len() as u64) as usize;
            match draw.below(5) {
                0 => bytes[at] = draw.below(256) as u8,
                1 => bytes[at] ^= 1 << draw.below(8),
                2 => bytes.truncate(at.max(1)),
                3 => drop(bytes.drain(at..bytes.len().min(at + draw.below(600) as usize + 1))),
                _ => bytes
                    .splice(at..at, (0..draw.below(40)).map(|_| b"{}[]\",\n\x000:9-"[at % 12]))
                    .for_each(drop),
            }
            if bytes.is_empty() {
                bytes.push(0);
            }
        }
        let bytes = if below { zstd::encode_all(bytes.as_slice(), 1).unwrap() } else { bytes };
        if let Err(why) = opened(&bytes) {
            assert!(why.starts_with("cannot open recording "), "seed {seed}, round {round}: {why}");
        }
    }
}
