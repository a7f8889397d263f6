//! `neutral FROM INTO`: recordings of a real host or guest (`lab run --capture FROM`) as they are kept for replay: without the host's
//! name, its ids, the suffix of its kernel, and all names but those that the run itself brought.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use whyslow::{redact, store};
use whyslow_faults::expected::Captured;
use whyslow_model::Recording;
use whyslow_model::table::Task;

/// The slowest level of zstd that is worth its time: recordings lie in the repository.
const LEVEL: i32 = 19;
/// Files in which the kernel's release stands.
const TELL_RELEASE: [&str; 2] = ["proc/version", "proc/sys/kernel/osrelease"];
/// Cgroups of a run begin so.
const OURS: &str = "/whyslow-test-";

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [from, into] = &args[..] else { return Err("expected two folders: neutral FROM INTO".into()) };
    fs::create_dir_all(into)?;
    let mut kept = 0;
    for entry in fs::read_dir(from)? {
        let truth = entry?.path();
        if truth.extension().is_some_and(|end| end == "json") {
            neutral(&truth, Path::new(into)).map_err(|err| format!("{}: {err}", truth.display()))?;
            kept += 1;
        }
    }
    if kept == 0 { Err("no recording was captured".into()) } else { Ok(()) }
}

fn neutral(truth: &Path, into: &Path) -> Result<(), Box<dyn Error>> {
    let captured: Captured = serde_json::from_slice(&fs::read(truth)?)?;
    let mut recording = store::open(&truth.with_extension("why"))?;
    let mut kept = captured.words();
    kept.extend(brought(&recording));
    redact::redact_but(&mut recording, kept);
    let release = std::mem::take(&mut recording.meta.kernel);
    recording.meta.kernel = version(&release).to_owned();
    for file in recording.snapshots.iter_mut().filter(|file| TELL_RELEASE.contains(&&*file.name)) {
        file.bytes = String::from_utf8_lossy(&file.bytes).replace(&release, version(&release)).into_bytes();
    }
    // How this host was booted is its owner's business, and makes no fault of the lab. How a guest was may.
    let is_host = captured.kernel == "host";
    let boot = recording.snapshots.iter_mut().filter(|file| is_host && file.name == "proc/cmdline");
    boot.for_each(|file| file.bytes = b"quiet\n".to_vec());
    let kept = into.join(truth.file_name().ok_or("a truth without a name")?);
    let file = kept.with_extension("why");
    // A recording without its truth fails the tests; with the truth of another run it might not.
    if kept.exists() {
        fs::remove_file(&kept)?;
    }
    store::save(&recording, &file)?;
    fs::write(&file, zstd::encode_all(&*zstd::decode_all(&*fs::read(&file)?)?, LEVEL)?)?;
    // The recording has no secrets any more.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    fs::copy(truth, &kept)?;
    println!("{}: {} bytes", file.display(), fs::metadata(&file)?.len());
    Ok(())
}

/// What the run itself brought: names of its threads and of their code. Not paths: they lead to the folder of the project.
fn brought(recording: &Recording) -> BTreeSet<String> {
    let tables = &recording.tables;
    let groups = tables.cgroups.iter().flatten().filter(|group| group.path.starts_with(OURS));
    let groups: BTreeSet<u64> = groups.map(|group| group.id).collect();
    let is_ours = |task: &&Task| groups.contains(&task.cpu_cgroup) || groups.contains(&task.unified_cgroup);
    let tasks: Vec<&Task> = tables.tasks.iter().flatten().filter(is_ours).collect();
    let (pids, processes): (BTreeSet<u32>, BTreeSet<u32>) =
        tasks.iter().map(|task| (task.pid, task.tgid)).unzip();
    let samples = tables.samples.iter().flatten().filter(|sample| pids.contains(&sample.pid));
    let spins = tables.spins.iter().flatten().filter(|spin| processes.contains(&spin.tgid));
    let names = tasks.iter().map(|task| &task.comm).chain(samples.flat_map(|sample| &sample.user));
    let names = names.chain(spins.flat_map(|spin| [&spin.place, &spin.module]));
    names.filter(|name| !name.contains('/')).cloned().collect()
}

/// "6.18.44" of "6.18.44-cloud-7".
fn version(release: &str) -> &str {
    release.split(|c: char| c != '.' && !c.is_ascii_digit()).next().unwrap_or(release)
}
