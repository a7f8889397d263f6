//! Programs with drawn function names, which measure how long each of two functions ran.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, Fence};

use crate::names::judge::Expected;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    C,
    Cpp,
    Rust,
    Go,
    Java,
    Python,
}

/// The place of the program's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Folder,
    /// The program removes its file when it begins.
    Deleted,
    /// In a root and a mount namespace of its own.
    OwnRoot,
}

/// A program that is ready to run.
pub struct Program {
    language: Language,
    place: Place,
    frame_pointers: bool,
    stripped: bool,
    /// Two functions, each with its caller and the caller of that one.
    names: [[String; 3]; 2],
    /// Share of the first function's time, in tenths.
    tenths: u64,
    /// Turns of a loop for one tenth: both functions together take 5 to 20 ms, which is no multiple of the time between two samples.
    turns: u64,
    pub command: Vec<String>,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Program { language, place, frame_pointers, stripped, names, tenths, turns, .. } = self;
        write!(
            f,
            "{language:?}, {place:?}, frame pointers {frame_pointers}, stripped {stripped}, {tenths} of 10, {turns} turns, {names:?}"
        )
    }
}

/// CPU time of the program, in ms.
const WORKS_MS: u64 = 900;

impl Program {
    pub fn make(language: Language, fence: &Fence, draw: &mut Draw) -> Result<Self, Trouble> {
        let native = matches!(language, Language::C | Language::Cpp | Language::Rust | Language::Go);
        let place = match draw.between(0, 2) {
            1 if native => Place::Deleted,
            2 if native => Place::OwnRoot,
            _ => Place::Folder,
        };
        // Words have ten letters: no word is part of another, or of a foreign name.
        let mut program = Program {
            language,
            place,
            frame_pointers: draw.one_in(2),
            // In a stripped program, only Go's runtime knows names.
            stripped: language == Language::Go && draw.one_in(2),
            names: [(); 2].map(|()| [(); 3].map(|()| draw.word(10))),
            tenths: draw.between(3, 7),
            turns: match language {
                Language::Java => draw.between(150_000, 400_000),
                Language::Python => draw.between(12_000, 30_000),
                _ => draw.between(400_000, 900_000),
            },
            command: Vec::new(),
        };
        let folder = fence.dir().join(draw.word(8));
        fs::create_dir(&folder)?;
        // A process with its own root is not the owner of this folder.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        program.command = program.built(&folder, draw)?;
        Ok(program)
    }

    fn built(&self, folder: &Path, draw: &mut Draw) -> Result<Vec<String>, Trouble> {
        let (name, path) = (draw.word(9), |file: &str| folder.join(file).display().to_string());
        let program = path(&name);
        let source = |file: &str, text: &str| -> Result<String, Trouble> {
            fs::write(folder.join(file), self.written(text))?;
            Ok(path(file))
        };
        let pointers = if self.frame_pointers { "" } else { "no-" };
        let fp = if self.frame_pointers { "-fno-omit-frame-pointer" } else { "-fomit-frame-pointer" };
        match self.language {
            Language::C => {
                let from = source("a.c", include_str!("c.txt"))?;
                build(Command::new("gcc").args(["-O1", "-static", fp, "-o", &program, &from]))?;
            }
            Language::Cpp => {
                let from = source("a.cc", include_str!("cpp.txt"))?;
                let plain = ["-fno-exceptions", "-fno-rtti", "-O1", "-static", fp];
                build(
                    Command::new("clang-19").args(["-x", "c++"]).args(plain).args(["-o", &program, &from]),
                )?;
            }
            Language::Rust => {
                let from = source("a.rs", include_str!("rust.txt"))?;
                let pointers =
                    format!("force-frame-pointers={}", if pointers.is_empty() { "yes" } else { "no" });
                let how =
                    ["--edition=2021", "-Copt-level=1", "-Ctarget-feature=+crt-static", "-C", &pointers];
                build(Command::new("rustc").args(how).args(["-o", &program, &from]))?;
            }
            Language::Go => {
                let from = source("a.go", include_str!("go.txt"))?;
                let flags = if self.stripped { "-ldflags=-s -w" } else { "-ldflags=" };
                let mut go = Command::new(found("go")?);
                go.env("CGO_ENABLED", "0").env("GOCACHE", folder.join("cache")).env("HOME", folder);
                build(go.args(["build", flags, "-o", &program, &from]))?;
                fs::remove_dir_all(folder.join("cache"))?;
            }
            Language::Java => return self.java(folder),
            Language::Python => {
                let from = source(&format!("{name}.py"), include_str!("python.txt"))?;
                return Ok(vec![python()?, from]);
            }
        }
        Ok(match self.place {
            Place::Folder => vec![program],
            Place::Deleted => vec![program, "removes-itself".to_owned()],
            Place::OwnRoot => {
                let inside = format!("/{name}");
                ["unshare", "-m", "chroot", &folder.display().to_string(), &inside]
                    .map(str::to_owned)
                    .to_vec()
            }
        })
    }

    /// At its end the runtime writes the list of compiled functions to the file that perf reads.
    fn java(&self, folder: &Path) -> Result<Vec<String>, Trouble> {
        let from = folder.join("Drawn.java");
        fs::write(&from, self.written(include_str!("java.txt")))?;
        build(Command::new(found("javac")?).args(["-J-Xmx96m", "-d"]).arg(folder).arg(&from))?;
        let mut command = vec![found("java")?.display().to_string()];
        let fixed = [
            "-Xmx64m",
            "-XX:+UseSerialGC",
            "-XX:+UnlockDiagnosticVMOptions",
            "-XX:+DumpPerfMapAtExit",
            "-XX:TieredStopAtLevel=1",
        ];
        command.extend(fixed.map(str::to_owned));
        command.push("-XX:CompileCommand=quiet".to_owned());
        // An inlined function counts as its caller.
        command.extend(
            self.names.iter().flatten().map(|name| format!("-XX:CompileCommand=dontinline,Drawn.{name}")),
        );
        if self.frame_pointers {
            command.push("-XX:+PreserveFramePointer".to_owned());
        }
        command.extend(["-cp".to_owned(), folder.display().to_string(), "Drawn".to_owned()]);
        Ok(command)
    }

    /// The source text of a program, with the drawn names.
    fn written(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (lot, names) in ["A", "B"].iter().zip(&self.names) {
            for (place, name) in ["INNER", "MIDDLE", "OUTER"].iter().zip(names) {
                text = text.replace(&format!("{place}_{lot}"), name);
            }
        }
        text = text.replace("WORKS_MS", &WORKS_MS.to_string()).replace("TURNS", &self.turns.to_string());
        text.replace("PARTS_A", &self.tenths.to_string()).replace("PARTS_B", &(10 - self.tenths).to_string())
    }

    /// The program's own measurement: seconds of each of the two functions.
    pub fn own(&self, printed: &str) -> Option<[f64; 2]> {
        let mut words = printed.lines().last()?.split_whitespace().map(str::parse);
        Some([words.next()?.ok()?, words.next()?.ok()?])
    }

    /// What must be reported.
    pub fn expected(&self, own: [f64; 2]) -> Expected {
        let shown = |name: &String| match self.language {
            Language::C => name.clone(),
            Language::Cpp => format!("drawn::Worker::{name}(long)"),
            Language::Rust => format!("::{name}"),
            Language::Go => format!("main.{name}"),
            Language::Java => format!("Drawn.{name}("),
            Language::Python => format!("Worker.{name} ("),
        };
        // Java functions that are called too seldom to be compiled all appear as the interpreter.
        let has_callers = self.language != Language::Java;
        Expected { names: self.names.each_ref().map(|lot| lot.each_ref().map(shown)), own, has_callers }
    }
}

fn build(command: &mut Command) -> Result<(), Trouble> {
    let done = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(()) } else { Err(format!("{command:?}: {said}").into()) }
}

/// A program that `make setup` installs.
fn found(name: &str) -> Result<PathBuf, Trouble> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/local/go/bin"]);
    let found = folders.map(|folder| Path::new(folder).join(name)).find(|file| file.is_file());
    found.ok_or_else(|| format!("cannot find {name}; run `make setup`").into())
}

/// An interpreter with known structures; not a wrapper, which would be the visible process.
fn python() -> Result<String, Trouble> {
    const ASKED: &str = "import sys; print(sys.executable, sys.version_info[0], sys.version_info[1])";
    for name in ["python3", "python3.11", "python3.12", "python3.13", "/usr/bin/python3"] {
        let Ok(said) = Command::new(name).args(["-c", ASKED]).output() else { continue };
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        if let [path, "3", "11" | "12" | "13"] = said.split_whitespace().collect::<Vec<_>>()[..] {
            return Ok(path.to_owned());
        }
    }
    Err("cannot find a Python of 3.11 to 3.13; run `make setup`".into())
}
