//! `lab truth`: the ground-truth programs of the wait chains (crates/whyslow/tests/lock_chains) in guests.
//!
//! The live tests are the same programs as on the host; `WHYSLOW_EMULATED=1` adapts them to emulated CPUs. Any complaint of the guest's
//! kernel (soft lockup, stall) fails the cell, whatever the test printed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use whyslow_faults::proven::{self, Ended as Kept, Row};
use whyslow_faults::{draw, lock_chain};

use crate::machine::{Ended, Hardware, Ran};
use crate::{Trouble, interrupt, kernels, machine, orders, place};

/// Kernels on which whyslow must report wait chains.
pub(crate) const KERNELS: [&str; 2] = ["6.1", "6.12"];
/// Time limits of the boot and of a cell: the host may disturb a cell, so it may be made three times.
const BOOT: Duration = Duration::from_secs(60);
const A_CELL: Duration = Duration::from_secs(120);
/// The heaviest load: a crowd of busy processes, and a lock chain with kernel locks.
pub(crate) const HEAVIEST: &str = "file::root_run_tells_the_chain_in_a_crowd";
/// The live tests need 2 GiB, and a disk for reads and throttling.
const MEMORY_MIB: u32 = 3072;
const DISK_MIB: u64 = 2048;
/// In the share: the output of the test, and its row.
const SAID: &str = "said";
const ROWS: &str = "rows";
/// Tries of a guest that the emulator broke.
const TRIES: usize = 3;

/// What to run.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Asked {
    /// 6.1, 6.12; both, unless some are named.
    pub kernels: Vec<String>,
    /// Only cells with this in their name.
    #[arg(long, value_name = "TEXT")]
    pub cell: Vec<String>,
    /// Repeat the draws of the run with this seed.
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
}

/// The programs in guests.
pub struct Programs {
    tests: PathBuf,
    whyslow: PathBuf,
    seed: u64,
}

/// Run all of them, and print one row for each cell.
pub fn run(asked: &Asked) -> Result<ExitCode, Trouble> {
    let seed = asked.seed.unwrap_or_else(draw::run_seed);
    let programs = Programs::here(seed)?;
    let names = programs.names(&asked.cell)?;
    let known: Vec<String> = KERNELS.map(str::to_owned).to_vec();
    let kernels = if asked.kernels.is_empty() { &known } else { &asked.kernels };
    println!("seed {seed}: {} cells on {}", names.len(), kernels.join(", "));
    let mut counts: BTreeMap<Kept, usize> = BTreeMap::new();
    for (kernel, name) in kernels.iter().flat_map(|kernel| names.iter().map(move |name| (kernel, name))) {
        let row = programs.made(kernel, name)?;
        println!("{:<60} {kernel:<6} {:?} {}", name.replacen("::root_", " ", 1), row.ended, row.why);
        *counts.entry(row.ended).or_default() += 1;
        if interrupt::asked() {
            return Ok(ExitCode::FAILURE);
        }
    }
    println!("{counts:?}");
    Ok(ExitCode::from(u8::from(counts.contains_key(&Kept::Failed))))
}

impl Programs {
    /// With these tests and this seed.
    pub fn of(tests: PathBuf, seed: u64) -> Result<Self, Trouble> {
        Ok(Programs { tests, whyslow: place::whyslow()?, seed })
    }

    /// The programs that were built last.
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

    /// The names of the tests with one of these words; all, if there are no words.
    pub fn names(&self, words: &[String]) -> Result<Vec<String>, Trouble> {
        let what = "list the live tests";
        let listed = Command::new(&self.tests)
            .args(["--list", "--format", "terse"])
            .output()
            .map_err(|err| Trouble::new(what, err))?;
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let is_wanted = |name: &&str| words.is_empty() || words.iter().any(|part| name.contains(part));
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        let names: Vec<String> =
            names.filter(|name| name.contains("root_")).filter(is_wanted).map(str::to_owned).collect();
        if names.is_empty() { Err(Trouble::new(what, "none has such a name")) } else { Ok(names) }
    }

    /// Make a cell on this kernel, in a guest of its own; again, in a new guest, if the emulator broke it.
    pub fn made(&self, label: &str, name: &str) -> Result<Row, Trouble> {
        let mut row = Row::of(SUITE, name, Kept::NotIdle);
        for _ in 0..TRIES {
            match self.made_once(label, name)? {
                Some(made) => return Ok(made),
                None => row = row.because("the emulator broke the guest (a stale breakpoint)"),
            }
        }
        Ok(row)
    }

    /// `None` if the emulator broke the guest.
    fn made_once(&self, label: &str, name: &str) -> Result<Option<Row>, Trouble> {
        let nothing = |ended: Kept, why: &str| Row::of(SUITE, name, ended).because(why);
        let kernel = match kernels::fetch(label) {
            Ok(kernel) => kernel,
            Err(reason) => return Ok(Some(nothing(Kept::NotRun, &reason.to_string()))),
        };
        let mut share = place::Run::new()?;
        let ran = match self.in_guest(&kernel, share.share(), name) {
            Ok(ran) => ran,
            Err(trouble) => return Ok(Some(nothing(Kept::NotRun, &trouble.to_string()))),
        };
        if ran.emulator_broke() {
            return Ok(None);
        }
        let noted = Row::all(&share.share().join(ROWS)).unwrap_or_default().into_iter().next_back();
        let row = of_guest(&ran, noted, nothing(Kept::Failed, ""));
        if row.ended == Kept::Failed {
            eprintln!("    kept: {}", share.keep().display());
        }
        Ok(Some(row))
    }

    fn in_guest(&self, kernel: &kernels::Kernel, share: &Path, name: &str) -> Result<Ran, Trouble> {
        let hardware = Hardware {
            memory_mib: MEMORY_MIB,
            disk_mib: Some(DISK_MIB),
            // The kernel also prints the stacks of its complaints.
            append: "loglevel=7".to_owned(),
            ..Hardware::default()
        };
        machine::run(kernel, &hardware, share, &self.command(share, name), BOOT + A_CELL)
    }

    fn command(&self, share: &Path, name: &str) -> Vec<OsString> {
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
            set("WHYSLOW_SEED", Path::new(&seed)),
            set("WHYSLOW_BIN", &self.whyslow),
            set("WHYSLOW_KEPT", inside),
            set(proven::FILE, &inside.join(ROWS)),
        ];
        // Without Go its lock chains are "not run", here as on the host.
        if lock_chain::build_go(share).is_ok() {
            words.push(set("WHYSLOW_LOCK_CHAIN_GO", &inside.join("lock_chain-go")));
        }
        let shell = format!("exec \"$@\" > {} 2>&1", inside.join(SAID).display());
        words.extend(["/bin/sh", "-c", &shell, "sh"].map(OsString::from));
        words.push(self.tests.clone().into());
        words.extend(["--test-threads=1", "--exact", name].map(OsString::from));
        words
    }
}

/// The result of a guest. `none`: the row of a guest that wrote none. A guest's timers come from a thread of the emulator, which is late
/// beside other load: then nothing is judged, whatever the test printed.
fn of_guest(ran: &Ran, noted: Option<Row>, none: Row) -> Row {
    if let Some(crowded) = &ran.crowded {
        return Row { ended: Kept::NotIdle, ..none }.because(crowded);
    }
    let cell = none.cell.clone();
    let row = Row { cell, ..noted.unwrap_or_else(|| none.because(&end(ran))) };
    match ran.complaints.first() {
        Some(complaint) => {
            Row { ended: Kept::Failed, ..row }.because(&format!("the guest complained: {complaint}"))
        }
        None if ran.status != Ended::Exited(0) && row.ended != Kept::Failed => {
            Row { ended: Kept::Failed, ..row }.because(&end(ran))
        }
        None => row,
    }
}

/// The suite of their rows.
const SUITE: &str = "lock_chains";

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
