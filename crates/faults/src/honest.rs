//! Honest load: work that fills the host although nothing is wrong with it.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cgroup::Group;
use crate::spec::Work;
use crate::{Draw, Fence, Span, Victim, clock, sys};

const BURST_US: u64 = 1_000;

/// Busy processes that fill all CPUs, in a cgroup of their own.
pub struct Crowd {
    all: Victim,
    group: Group,
}

impl Crowd {
    /// Start `n` of them, in a group of `1 / part` of the default weight.
    pub fn start(fence: &Fence, n: usize, part: u64, draw: &mut Draw) -> io::Result<Self> {
        let crowd = Crowd::waiting(fence, n, draw)?;
        crowd.group.set_lighter(part)?;
        crowd.all.go();
        Ok(crowd)
    }

    /// Start `n` processes that wait for the order to begin.
    pub fn waiting(fence: &Fence, n: usize, draw: &mut Draw) -> io::Result<Self> {
        let group = fence.group(&draw.word(8))?;
        let comm = format!("crowd-{}", draw.word(4));
        let mut spec = fence.spec(&group, &comm, n as u64, Work::Spin { burst_us: BURST_US, rest_us: 0 });
        spec.apart = true;
        let all = Victim::spawn(spec)?;
        Ok(Crowd { all, group })
    }

    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Its processes, as one victim.
    #[must_use]
    pub fn all(&self) -> &Victim {
        &self.all
    }

    #[must_use]
    pub fn into_parts(self) -> (Victim, Group) {
        (self.all, self.group)
    }
}

/// A C compiler that builds generated sources, a number of files at a time, as `make -jN` does.
pub struct Compile {
    stop: Arc<AtomicBool>,
    done: Arc<Mutex<Vec<Span>>>,
    threads: Vec<JoinHandle<()>>,
    group: Group,
}

const FUNCTIONS: usize = 24;
const LOOPS: usize = 12;

impl Compile {
    /// Begin, with `jobs` compilers at a time.
    pub fn start(fence: &Fence, jobs: usize, draw: &mut Draw) -> io::Result<Self> {
        Compile::of(fence, jobs, [FUNCTIONS, LOOPS], draw)
    }

    /// The same with files of so many functions, and so many loops in each.
    pub fn of(fence: &Fence, jobs: usize, size: [usize; 2], draw: &mut Draw) -> io::Result<Self> {
        let group = fence.group(&draw.word(6))?;
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let threads = (0..jobs).map(|_| {
            let source = fence.dir().join(format!("{}.c", draw.word(8)));
            fs::write(&source, program(size, draw))?;
            let (stop, done, procs) = (stop.clone(), done.clone(), group.procs_files());
            Ok(std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let from = clock::now();
                    match compiler(&source, &procs).and_then(|mut child| child.wait()) {
                        Ok(status) if status.success() => {
                            let file = Span { from, to: clock::now() };
                            done.lock().unwrap_or_else(PoisonError::into_inner).push(file);
                        }
                        _ => break,
                    }
                }
            }))
        });
        let threads = threads.collect::<io::Result<Vec<_>>>()?;
        Ok(Compile { stop, done, threads, group })
    }

    /// Files compiled so far: 0 for a long time means that the host has no compiler.
    #[must_use]
    pub fn done(&self) -> usize {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Wait until one file is compiled.
    pub fn until_one_is_done(&self, within: Duration) -> io::Result<()> {
        let began = Instant::now();
        while self.done() == 0 {
            if began.elapsed() > within {
                return Err(io::Error::other("no file was compiled; install a C compiler (cc)"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Files per second: each file counts by the part of its time that lies in the span.
    #[must_use]
    pub fn rate(&self, span: Span) -> f64 {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let part = |file: &Span| {
            let inside = Span { from: file.from.max(span.from), to: file.to.min(span.to) };
            inside.length().as_secs_f64() / file.length().as_secs_f64().max(1e-9)
        };
        done.iter().map(part).sum::<f64>() / span.length().as_secs_f64().max(1e-9)
    }

    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }
}

impl Drop for Compile {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.group.remove(); // kills what still compiles
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn compiler(source: &PathBuf, procs: &[PathBuf]) -> io::Result<Child> {
    let procs: Vec<_> = procs
        .iter()
        .map(|path| std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).map_err(io::Error::other))
        .collect::<io::Result<_>>()?;
    let mut command = Command::new("cc");
    command.args(["-O2", "-c", "-o", "/dev/null"]).arg(source);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // A killed compiler leaves its temporary files behind: the fence removes its folder.
    command.envs(source.parent().map(|folder| ("TMPDIR", folder)));
    // SAFETY: between fork and exec the code makes only system calls, it allocates and locks nothing.
    unsafe {
        command.pre_exec(move || {
            sys::die_with_parent()?;
            procs.iter().try_for_each(|path| sys::write_file(path, b"0"))?;
            sys::write_file(c"/proc/self/oom_score_adj", b"1000")
        });
    }
    command.spawn()
}

/// A source that takes a compiler about a second.
fn program([functions, loops]: [usize; 2], draw: &mut Draw) -> String {
    let mut text = String::new();
    for f in 0..functions {
        let _ = writeln!(
            text,
            "int f{f}(int a, int *p, unsigned n) {{\n  unsigned i; int s = {};",
            draw.between(1, 99)
        );
        for _ in 0..loops {
            let (x, y, z) = (draw.between(1, 99), draw.between(1, 30), draw.between(0, 7));
            let _ = writeln!(
                text,
                "  for (i = {z}; i < n; i += {y}) {{ s ^= p[i % {x}] * a + (s >> {z}); if (s & {x}) a += s / {y}; }}"
            );
        }
        let _ = writeln!(text, "  return s;\n}}");
    }
    text
}
