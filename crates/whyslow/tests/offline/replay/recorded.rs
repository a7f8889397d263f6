//! Recordings with their truth and their reports.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use serde_json::Value;
use whyslow::store;
use whyslow_analyze::examine;
use whyslow_faults::expected::Captured;
use whyslow_report::json;

/// A recording.
pub struct Recorded {
    /// Its name: scenario and kernel.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
    /// The truth.
    pub truth: Captured,
    /// The report.
    pub document: Value,
    /// The exit status of the report.
    pub status: i32,
}

/// The folder of the recordings.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/replay")
}

/// All recordings, by name.
pub fn all() -> &'static [Recorded] {
    static ALL: OnceLock<Vec<Recorded>> = OnceLock::new();
    ALL.get_or_init(|| {
        let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|end| end == "why")).collect();
        files.sort();
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let share = files.len().div_ceil(workers).max(1);
        thread::scope(|scope| {
            let of_share =
                |files: &[PathBuf]| files.iter().map(|file| Recorded::open(file)).collect::<Vec<_>>();
            let shares: Vec<_> =
                files.chunks(share).map(|files| scope.spawn(move || of_share(files))).collect();
            shares.into_iter().flat_map(|share| share.join().unwrap()).collect()
        })
    })
}

/// What `whyslow report FILE --json` prints, and its exit status.
fn report(recording: &Path) -> (Value, i32) {
    let done =
        Command::new(whyslow_faults::program!()).arg("report").arg(recording).arg("--json").output().unwrap();
    let document = serde_json::from_slice(&done.stdout);
    let said = String::from_utf8_lossy(&done.stderr);
    (
        document.unwrap_or_else(|err| panic!("{}: {err}: {said}", recording.display())),
        done.status.code().unwrap(),
    )
}

impl Recorded {
    fn open(path: &Path) -> Self {
        let truth = fs::read(path.with_extension("json")).unwrap();
        let truth = serde_json::from_slice(&truth).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
        let (document, status) = report(path);
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        Recorded { name, path: path.to_owned(), truth, document, status }
    }
}

/// The files of a recording.
pub struct Unpacked {
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Unpacked {
    pub fn of(recorded: &Recorded) -> Self {
        let bytes = zstd::decode_all(&*fs::read(&recorded.path).unwrap()).unwrap();
        let mut archive = tar::Archive::new(&*bytes);
        let mut files = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.push((entry.path().unwrap().into_owned(), bytes));
        }
        Unpacked { files }
    }

    /// Names of tables that have rows.
    pub fn tables(&self) -> Vec<String> {
        let with_rows = self.files.iter().filter(|(_, bytes)| !bytes.is_empty());
        with_rows.filter_map(|(path, _)| table(path)).collect()
    }

    /// The report without this table.
    pub fn report_without(&self, gone: &str) -> Value {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, bytes) in self.files.iter().filter(|(path, _)| table(path).as_deref() != Some(gone)) {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            archive.append_data(&mut header, path, &**bytes).unwrap();
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), zstd::encode_all(&*archive.into_inner().unwrap(), 1).unwrap()).unwrap();
        serde_json::from_str(&json(&examine(&store::open(file.path()).unwrap()))).unwrap()
    }
}

/// "holds" of "tables/holds.ndjson".
fn table(path: &Path) -> Option<String> {
    let is_table = path.parent() == Some(Path::new("tables"));
    is_table.then(|| path.file_stem().unwrap_or_default().to_string_lossy().into_owned())
}
