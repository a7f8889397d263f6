//! Common programs, at honest work.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;

use super::outside::{self, Outside};
use super::programs::Tool;
use crate::cgroup::Group;
use crate::honest::Compile;
use crate::{Draw, Fence};

/// A tool at work.
pub enum AtWork {
    /// One process.
    One(Outside),
    /// One process after the other.
    Compile(Compile),
}

/// Bytes of the file that a tool reads over and over.
const FILE: usize = 4 << 20;
/// Number of repetitions: longer than any test.
const TIMES: usize = 3_000;
/// A file that takes a compiler some tenths of a second.
const SOURCE: [usize; 2] = [6, 6];

const PYTHON: &str = "
import time
def turn(n):
    total = 0
    for i in range(n):
        total = (total * 31 + i * i) % 1000003
    return total
done = 0
while True:
    turn(20000)
    done += 1
    print(time.monotonic_ns(), 0, 0, done, flush=True)
";

/// Start it. `Unsupported`: this host does not have it.
pub fn start(fence: &Fence, group: &Group, tool: Tool, draw: &mut Draw) -> io::Result<AtWork> {
    let again = |program: &str, options: &[&str], words: bool, draw: &mut Draw| {
        let file = fence.dir().join(draw.word(8));
        write_file(&file, words, draw)?;
        let mut command = Command::new(outside::find(program)?);
        command.args(options).args((0..TIMES).map(|_| &file));
        Outside::start(fence, group, &mut command, program)
    };
    let mut one = match tool {
        Tool::Gzip => again("gzip", &[["-c6"], ["-c9"]][draw.between(0, 1) as usize], true, draw)?,
        Tool::Sha256 => again("sha256sum", &[], false, draw)?,
        Tool::Dd => {
            let mut command = Command::new(outside::find("dd")?);
            command.args(["if=/dev/zero", "of=/dev/null", "bs=1"]);
            Outside::start(fence, group, &mut command, "dd")?
        }
        Tool::Python => {
            let mut command = Command::new(outside::find("python3")?);
            Outside::start(fence, group, command.args(["-c", PYTHON]), "python")?
        }
        Tool::Compiler => {
            outside::find("cc")?;
            return Compile::of(fence, 1, SOURCE, draw).map(AtWork::Compile);
        }
    };
    one.until("the tool", |one| one.bytes_read() > 100_000)?;
    Ok(AtWork::One(one))
}

fn write_file(path: &Path, words: bool, draw: &mut Draw) -> io::Result<()> {
    let mut content = Vec::with_capacity(FILE + 16);
    let dictionary: Vec<String> = (0..500).map(|i| draw.word(2 + i % 9)).collect();
    while content.len() < FILE {
        if words {
            content.extend_from_slice(draw.pick(&dictionary).as_bytes());
            content.push(b' ');
        } else {
            content.extend_from_slice(&draw.any().to_ne_bytes());
        }
    }
    std::fs::File::create_new(path)?.write_all(&content)
}

impl AtWork {
    /// Its progress.
    #[must_use]
    pub fn progress(&self) -> u64 {
        match self {
            AtWork::One(one) => {
                one.bytes_read() + one.accounts().iter().map(|each| each.rows.len() as u64).sum::<u64>()
            }
            AtWork::Compile(compile) => compile.done() as u64,
        }
    }
}
