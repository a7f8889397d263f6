//! `lab truth`: the ground-truth programs of the wait chains (crates/whyslow/tests/lock chains) in guests.
//!
//! The live tests are the same programs as on the host; `WHYSLOW_EMULATED=1` says what emulated CPUs change. Whatever the
//! guest's kernel complains about (soft lockup, stall) fails the guest's cells, whatever they said.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use whyslow_faults::lock_chain;
use whyslow_faults::{Draw, draw};

use crate::machine::{Ended, Hardware, Ran};
use crate::{Trouble, interrupt, kernels, machine, orders, place};

mod told;

use told::Cell;

/// The kernels that must tell wait chains.
const KERNELS: [&str; 2] = ["6.1", "6.12"];
/// Cells that share a guest: one that hangs costs no more than these.
const A_GUEST: usize = 10;
/// The boot, and the time of one cell at most: it may be made three times if the host disturbs it.
const BOOT: Duration = Duration::from_secs(60);
const A_CELL: Duration = Duration::from_secs(120);
/// Cells of one run, beside the heaviest load: what fits in two minutes.
const OF_CI: usize = 3;
/// The heaviest load: a crowd of busy processes, and a lock chain with locks of the kernel.
const HEAVIEST: &str = "file::root_run_tells_the_chain_in_a_crowd";
/// The live tests want 2 GiB, and a disk for what is read and throttled.
const MEMORY_MIB: u32 = 3072;
const DISK_MIB: u64 = 2048;
/// In the share: what the tests print.
const SAID: &str = "said";

/// What to run.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Asked {
    /// 6.1, 6.12; both, unless some are named.
    pub kernels: Vec<String>,
    /// Some cells, on one kernel, drawn by the seed.
    #[arg(long)]
    pub ci: bool,
    /// Only cells with this in their name.
    #[arg(long, value_name = "TEXT")]
    pub cell: Vec<String>,
    /// Draw what the run with this seed drew.
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
}

/// The programs in guests.
struct Programs {
    tests: PathBuf,
    whyslow: PathBuf,
    seed: u64,
}

/// Run them all, and tell a row a cell.
pub fn run(asked: &Asked) -> Result<ExitCode, Trouble> {
    let seed = asked.seed.unwrap_or_else(draw::run_seed);
    let programs = Programs::here(seed)?;
    let all = programs.names(asked)?;
    let known: Vec<String> = KERNELS.map(str::to_owned).to_vec();
    let mut wanted = if asked.kernels.is_empty() { known } else { asked.kernels.clone() };
    let mut cells = all;
    if asked.ci {
        let mut draw = Draw::with(seed).branch("truth");
        wanted = vec![draw.pick(&wanted)];
        cells.retain(|name| name != HEAVIEST);
        cells = draw.some(OF_CI, &cells);
        cells.push(HEAVIEST.to_owned());
    }
    println!("seed {seed}: {} cells on {}", cells.len(), wanted.join(", "));
    let (mut rows, mut absent) = (Vec::new(), false);
    for label in &wanted {
        match kernels::fetch(label) {
            Ok(kernel) => {
                for part in cells.chunks(A_GUEST) {
                    let reported = programs.in_guest(&kernel, part)?;
                    reported.iter().for_each(|cell| println!("{}", cell.line(label)));
                    reported.iter().for_each(|cell| cell.note(label));
                    rows.extend(reported);
                    if interrupt::asked() {
                        return Ok(ExitCode::FAILURE);
                    }
                }
            }
            Err(reason) => {
                println!("{label}: not run: {reason}");
                absent = true;
            }
        }
    }
    println!("{}", told::sum(&rows));
    let bad = rows.iter().any(Cell::is_bad) || (asked.ci && absent);
    Ok(ExitCode::from(u8::from(bad)))
}

impl Programs {
    fn here(seed: u64) -> Result<Self, Trouble> {
        let what = "find the live tests";
        let lab =
            std::env::current_exe().and_then(fs::canonicalize).map_err(|err| Trouble::new(what, err))?;
        let whyslow = lab.with_file_name("whyslow");
        let tests = newest(&lab.with_file_name("deps"))
            .map_err(|err| Trouble::new(what, err))?
            .filter(|_| whyslow.exists())
            .ok_or_else(|| {
                Trouble::new(
                    what,
                    "there is no test binary `lock_chains`, or no whyslow, beside this program",
                )
                .or("build them: cargo test --release --no-run --workspace --test lock_chains")
            })?;
        Ok(Programs { tests, whyslow, seed })
    }

    /// The names of the tests that are asked for.
    fn names(&self, asked: &Asked) -> Result<Vec<String>, Trouble> {
        let what = "list the live tests";
        let listed = Command::new(&self.tests)
            .args(["--list", "--format", "terse"])
            .output()
            .map_err(|err| Trouble::new(what, err))?;
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let is_wanted =
            |name: &&str| asked.cell.is_empty() || asked.cell.iter().any(|part| name.contains(part));
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        let names: Vec<String> =
            names.filter(|name| name.contains("root_")).filter(is_wanted).map(str::to_owned).collect();
        if names.is_empty() { Err(Trouble::new(what, "none has such a name")) } else { Ok(names) }
    }

    fn in_guest(&self, kernel: &kernels::Kernel, names: &[String]) -> Result<Vec<Cell>, Trouble> {
        let mut share = place::Run::new()?;
        let limit = BOOT + A_CELL * u32::try_from(names.len()).unwrap_or(u32::MAX);
        let hardware = Hardware {
            memory_mib: MEMORY_MIB,
            disk_mib: Some(DISK_MIB),
            // With the stack of whatever the kernel complains about.
            append: "loglevel=7".to_owned(),
            ..Hardware::default()
        };
        let command = self.command(share.share(), names);
        let ran = machine::run(kernel, &hardware, share.share(), &command, limit)?;
        let said = fs::read(share.share().join(SAID)).unwrap_or_default();
        let mut cells = told::read(names, &String::from_utf8_lossy(&said), &end(&ran));
        if let Some(complaint) = ran.complaints.first() {
            cells.iter_mut().for_each(|cell| cell.fail(&format!("the guest complained: {complaint}")));
        }
        if cells.iter().any(Cell::is_bad) {
            eprintln!("    kept: {}", share.keep().display());
        }
        Ok(cells)
    }

    fn command(&self, share: &Path, names: &[String]) -> Vec<OsString> {
        let inside = Path::new(orders::SHARE);
        let set = |name: &str, value: &Path| {
            let mut word = OsString::from(name);
            word.push("=");
            word.push(value);
            word
        };
        let seed = self.seed.to_string();
        let mut words: Vec<OsString> = vec![
            "/usr/bin/env".into(),
            "WHYSLOW_EMULATED=1".into(),
            "WHYSLOW_ALL=1".into(),
            set("WHYSLOW_SEED", Path::new(&seed)),
            set("WHYSLOW_BIN", &self.whyslow),
            set("WHYSLOW_KEPT", inside),
        ];
        // Without Go its lock_chains are "not run", here as on the host.
        if lock_chain::build_go(share).is_ok() {
            words.push(set("WHYSLOW_LOCK_CHAIN_GO", &inside.join("lock_chain-go")));
        }
        let shell = format!("exec \"$@\" > {} 2>&1", inside.join(SAID).display());
        words.extend(["/bin/sh", "-c", &shell, "sh"].map(OsString::from));
        words.push(self.tests.clone().into());
        words.extend(["--test-threads=1", "--exact"].map(OsString::from));
        words.extend(names.iter().map(OsString::from));
        words
    }
}

fn end(ran: &Ran) -> String {
    match &ran.status {
        Ended::Exited(status) => format!("the tests ended with {status}"),
        Ended::TimedOut => "the guest did not end within its limit".to_owned(),
        Ended::Died(words) => format!("the guest died: {words}"),
    }
}

/// The test binary that was built last.
fn newest(deps: &Path) -> io::Result<Option<PathBuf>> {
    let mut found: Option<(SystemTime, PathBuf)> = None;
    for entry in fs::read_dir(deps)? {
        let path = entry?.path();
        let is_it = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| {
            name.strip_prefix("lock_chains-").is_some_and(|hash| hash.bytes().all(|b| b.is_ascii_hexdigit()))
        });
        if is_it {
            let made = fs::metadata(&path)?.modified()?;
            if found.as_ref().is_none_or(|(newest, _)| made > *newest) {
                found = Some((made, path));
            }
        }
    }
    Ok(found.map(|(_, path)| path))
}
