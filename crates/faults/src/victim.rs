//! A victim process: this program, started again, doing countable work in cgroups of the test.
//!
//! Any program can be a victim if it invokes [`may_become_victim!`](crate::may_become_victim) once. The victim starts before `main`, so a
//! test binary that is also a victim never runs its tests there.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::ledger::{Fact, Ledger, Word};
use crate::process::Process;
use crate::spec::{Network, Spec};
use crate::{clock, sys, thresholds, work};

const ENV: &str = "WHYSLOW_VICTIM";

/// A victim that fills its memory or opens its files needs some seconds on a busy host, not more.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// Lets this program be started again as a victim. Invoke it once, at the top level of the program or test file.
#[macro_export]
macro_rules! may_become_victim {
    () => {
        // glibc calls this before main, with the environment already set.
        #[used]
        #[unsafe(link_section = ".init_array")]
        static BECOME_VICTIM_IF_ASKED: extern "C" fn() = $crate::victim::become_if_asked;
    };
}

/// Be the victim that the environment describes, for the rest of this process's life. Without it, return.
pub extern "C" fn become_if_asked() {
    crate::stand_in::become_if_asked();
    crate::user_lock::become_if_asked();
    let Some(text) = std::env::var_os(ENV) else { return };
    let spec = serde_json::from_slice::<Spec>(text.as_encoded_bytes());
    let status = match spec.map_err(io::Error::other).and_then(|spec| live(&spec)) {
        Ok(()) => 0,
        Err(err) => {
            eprintln!("cannot be a victim: {err}");
            2
        }
    };
    sys::leave(status);
}

fn live(spec: &Spec) -> io::Result<()> {
    sys::die_after(spec.lifetime_s);
    std::fs::write("/proc/self/oom_score_adj", "1000")?;
    join(&spec.join)?;
    match spec.network {
        Network::Shared => {}
        Network::Own => {
            sys::new_network()?;
            sys::loopback_up()?;
        }
        Network::Of(pid) => sys::enter_network(&File::open(format!("/proc/{pid}/ns/net"))?)?,
    }
    let ledger = Ledger::inherited(spec.ledger, spec.threads)?;
    work::prepare(spec)?;
    if spec.apart {
        return live_apart(spec, &ledger);
    }
    std::thread::scope(|scope| {
        // The first worker is the main thread: every task of the process is at work.
        for slot in 1..spec.threads {
            let ledger = &ledger;
            std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, move || {
                work::run(spec, ledger, slot);
            })?;
        }
        work::run(spec, &ledger, 0);
        Ok(())
    })
}

fn join(procs: &[PathBuf]) -> io::Result<()> {
    procs.iter().try_for_each(|file| {
        std::fs::write(file, "0")
            .map_err(|err| io::Error::other(format!("cannot join {}: {err}", file.display())))
    })
}

/// One process per worker, all born inside the cgroup: joining a cgroup waits for an RCU grace period, which takes long on a host that
/// these processes make busy. Workers that are distributed over several cgroups join before any of them works.
fn live_apart(spec: &Spec, ledger: &Ledger) -> io::Result<()> {
    for slot in 1..spec.threads {
        if sys::fork()? {
            sys::die_with_parent()?;
            sys::die_after(spec.lifetime_s);
            if let Some(home) = spec.among.get(slot % spec.among.len().max(1)) {
                join(home)?;
            }
            work::run(spec, ledger, slot);
            return Ok(());
        }
    }
    work::run(spec, ledger, 0);
    Ok(())
}

/// How a victim is started: by default as this program, without standard output.
#[derive(Debug, Default)]
pub struct Launch {
    /// Another program as the victim.
    pub program: Option<PathBuf>,
    /// A command line that ends in the victim's program.
    pub under: Vec<OsString>,
    /// Its standard output.
    pub stdout: Option<File>,
    /// Its standard error; `None`: the same as ours.
    pub stderr: Option<File>,
}

/// A running victim. It ends when this is dropped, when the thread that started it ends, or when its time is up.
pub struct Victim {
    process: Process,
}

impl Victim {
    /// Start it and wait until all its threads are ready. They begin to work at [`Victim::go`].
    pub fn spawn(spec: Spec) -> io::Result<Self> {
        Victim::start(spec, Launch::default())
    }

    /// The same with another program, or under one.
    pub fn start(mut spec: Spec, launch: Launch) -> io::Result<Self> {
        let ledger = Arc::new(Ledger::new(spec.threads)?);
        spec.ledger = ledger.descriptor();
        let program = launch.program.map_or_else(std::env::current_exe, Ok)?;
        let mut words = launch.under.into_iter().chain([program.into()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .env_clear()
            .env(ENV, serde_json::to_string(&spec).map_err(io::Error::other)?)
            .stdin(Stdio::null())
            .stdout(launch.stdout.map_or_else(Stdio::null, Stdio::from));
        if let Some(stderr) = launch.stderr {
            command.stderr(stderr);
        }
        let mut victim = Victim { process: Process::start(&mut command, ledger, spec.comm)? };
        victim.until("get ready", |ledger, slot| ledger.fact(slot, Fact::Tid).load(Ordering::Acquire) > 0)?;
        Ok(victim)
    }

    /// Begin to work.
    pub fn go(&self) {
        self.ledger().word(Word::Go).store(clock::now(), Ordering::Release);
    }

    /// The record of its work.
    #[must_use]
    pub fn ledger(&self) -> &Arc<Ledger> {
        self.process.ledger()
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The name of its threads.
    #[must_use]
    pub fn comm(&self) -> &str {
        self.process.comm()
    }

    /// Its thread ids.
    #[must_use]
    pub fn tids(&self) -> Vec<u32> {
        (0..self.ledger().slots())
            .map(|slot| self.ledger().fact(slot, Fact::Tid).load(Ordering::Acquire) as u32)
            .collect()
    }

    /// CPU time of all its threads so far, and the time that they were ready for a CPU and did not run, in ns: schedstat.
    #[must_use]
    pub fn ran_and_waited(&self) -> (u64, u64) {
        let read = |tid| {
            let text = std::fs::read_to_string(format!("/proc/{}/task/{tid}/schedstat", self.pid())).ok()?;
            let mut numbers = text.split_whitespace().map_while(|number| number.parse::<u64>().ok());
            Some((numbers.next()?, numbers.next()?))
        };
        let all = self.tids().into_iter().filter_map(read);
        all.fold((0, 0), |sum, (ran, waited)| (sum.0 + ran, sum.1 + waited))
    }

    /// Let all its threads run on these CPUs only.
    pub fn pin(&self, cpus: &[usize]) -> io::Result<()> {
        self.tids().into_iter().try_for_each(|tid| {
            sys::pin(tid as i32, cpus).map_err(|err| {
                io::Error::new(err.kind(), format!("cannot pin {} ({tid}): {err}", self.comm()))
            })
        })
    }

    /// Set the nice value of all its threads.
    pub fn set_nice(&self, nice: i32) -> io::Result<()> {
        self.tids().into_iter().try_for_each(|tid| sys::set_nice(tid as i32, nice))
    }

    /// Stop all its threads, or continue them.
    pub fn signal_stop(&self, stopped: bool) {
        // A worker may be a process of its own.
        self.tids().into_iter().filter(|tid| *tid > 0).for_each(|tid| sys::stop(tid as i32, stopped));
    }

    /// Wait until it has ended by itself.
    pub fn ended(&mut self, within: Duration) -> io::Result<ExitStatus> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.process.status()? {
                return Ok(status);
            }
            if began.elapsed() > within {
                return Err(io::Error::other(format!("victim {} did not end in {within:?}", self.comm())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Run `act` while all its threads are stopped. A limit below the victim's usage can only be set this way: v1 reclaims until the usage
    /// fits, and a running victim brings its pages back as fast as the kernel reclaims them.
    pub fn while_stopped<T>(&self, act: impl FnOnce() -> T) -> T {
        self.signal_stop(true);
        let done = act();
        self.signal_stop(false);
        done
    }

    /// Make every thread touch its whole working set once, and wait for that.
    pub fn warm(&mut self) -> io::Result<()> {
        let asked = self.ledger().word(Word::Warm).fetch_add(1, Ordering::AcqRel) + 1;
        self.until("warm up", |ledger, slot| ledger.fact(slot, Fact::Warmed).load(Ordering::Acquire) >= asked)
    }

    /// Wait until every thread has done at least one more piece of work.
    pub fn until_it_moves(&mut self) -> io::Result<()> {
        let count = |ledger: &Ledger, slot| ledger.fact(slot, Fact::Count).load(Ordering::Acquire);
        let before: Vec<u64> = (0..self.ledger().slots()).map(|slot| count(self.ledger(), slot)).collect();
        self.until("go on", |ledger, slot| count(ledger, slot) > before[slot])
    }

    fn until(&mut self, what: &str, done: impl Fn(&Ledger, usize) -> bool) -> io::Result<()> {
        let all = |ledger: &Ledger| (0..ledger.slots()).all(|slot| done(ledger, slot));
        self.process.until(what, thresholds::patient(READY_WITHIN), all)
    }
}
