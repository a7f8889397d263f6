//! Schedulers of a language runtime that spin while they have no work: an Erlang VM with pairs of processes that play ping-pong with idle
//! gaps. The spin time of schedulers is an argument of the VM, so the fault is another VM.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use whyslow_faults::Draw;
use whyslow_faults::cgroup::Group;
use whyslow_faults::clock::{self, Span};
use whyslow_faults::rounds::Trouble;

use super::{named, steady, sys};
use crate::testbed::TestBed;
use crate::testbed::part::{Facts, Part, Proof, Setting};

/// Debian's erlang-base.
const PROGRAM: &str = "/usr/bin/erl";
const STARTS_WITHIN: Duration = Duration::from_secs(40);
/// The CPU time of a round trip must be so many times as large.
const LEAST_RATIO: f64 = 1.5;
/// A VM that has just started still loads and compiles.
const WARM: u64 = 5;

/// What is drawn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// "medium" (the VM's default), "long", "very_long"; the healthy form is always "none".
    pub busy_wait: String,
    /// Pairs of processes.
    pub pairs: u64,
    /// Mean of the gaps between two round trips.
    pub idle_ms: u64,
    /// Schedulers of the VM.
    pub schedulers: u64,
    /// Same load without spinning.
    #[serde(default)]
    pub twin: bool,
}

/// A moment, round trips until then, CPU time until then.
type Sample = (u64, u64, u64);

struct Vm {
    child: Child,
    samples: Arc<Mutex<Vec<Sample>>>,
}

impl Vm {
    fn start(
        spec: &Spec,
        source: &Path,
        name: &str,
        busy_wait: &str,
        group: &Group,
    ) -> Result<Self, Trouble> {
        let dir = source.parent().unwrap_or(Path::new("/"));
        let run =
            format!("{{ok, M}} = compile:file(\"{}\"), M:main({}, {}).", name, spec.pairs, spec.idle_ms);
        let schedulers = format!("{0}:{0}", spec.schedulers);
        let mut command = Command::new(PROGRAM);
        command.current_dir(dir).env_clear().env("HOME", dir).env("PATH", "/usr/bin:/bin");
        command.args(["-noshell", "-noinput", "+S", &schedulers, "+sbwt", busy_wait]);
        command.args(["+sbwtdcpu", busy_wait, "+sbwtdio", busy_wait, "-eval", &run]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let procs = group.procs_files();
        let procs = procs.iter().map(|path| sys::c_path(path)).collect::<Result<Vec<_>, _>>()?;
        // SAFETY: between fork and exec the code makes only system calls, it allocates and locks nothing.
        unsafe {
            command.pre_exec(move || {
                sys::die_with_parent()?;
                procs.iter().try_for_each(|path| sys::write_file(path, b"0"))
            });
        }
        let mut child = command.spawn().map_err(|err| format!("{PROGRAM} (package erlang-base): {err}"))?;
        let samples = Arc::new(Mutex::new(Vec::new()));
        let (noted, pid) = (samples.clone(), child.id());
        let lines = BufReader::new(child.stdout.take().ok_or("it has no output")?).lines();
        // Ends with the VM, whose output it reads.
        std::thread::spawn(move || {
            for count in lines.map_while(Result::ok).filter_map(|line| line.trim().parse().ok()) {
                let Ok(cpu) = sys::cpu_time_ns(pid) else { return };
                noted.lock().unwrap_or_else(PoisonError::into_inner).push((clock::now(), count, cpu));
            }
        });
        let mut vm = Vm { child, samples };
        vm.until_warm()?;
        Ok(vm)
    }

    fn until_warm(&mut self) -> Result<(), Trouble> {
        let began = Instant::now();
        while (self.samples.lock().unwrap_or_else(PoisonError::into_inner).len() as u64) < WARM {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("the VM ended early: {status}").into());
            }
            if began.elapsed() > STARTS_WITHIN {
                return Err("the VM did not begin".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // A child that has not been waited for: no other process can have its pid.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(name: &str) -> String {
    format!(
        r#"-module({name}).
-export([main/2]).
main(Pairs, Idle) ->
    C = counters:new(1, []),
    [spawn(fun() -> Pong = spawn(fun pong/0), ping(C, Pong, Idle) end) || _ <- lists:seq(1, Pairs)],
    tell(C).
tell(C) -> timer:sleep(100), io:format("~b~n", [counters:get(C, 1)]), tell(C).
pong() -> receive {{From, Word}} -> From ! Word, pong() end.
ping(C, Pong, Idle) ->
    Pong ! {{self(), word}},
    receive word -> counters:add(C, 1, 1) end,
    receive nothing -> ok after trunc(-math:log(rand:uniform()) * Idle) -> ok end,
    ping(C, Pong, Idle).
"#
    )
}

struct Running {
    spec: Spec,
    source: PathBuf,
    name: String,
    group: Group,
    vm: Option<Vm>,
    /// The VM that whyslow observes; the VMs before and after it are others.
    spinner: u32,
    /// Samples of all VMs, including those that have ended.
    samples: Vec<Arc<Mutex<Vec<Sample>>>>,
}

impl Running {
    fn change_to(&mut self, busy_wait: &str) -> Result<(), Trouble> {
        drop(self.vm.take());
        let vm = Vm::start(&self.spec, &self.source, &self.name, busy_wait, &self.group)?;
        self.samples.push(vm.samples.clone());
        self.vm = Some(vm);
        Ok(())
    }

    /// Round trips and seconds of CPU within a span.
    fn spent(&self, span: Span) -> (f64, f64) {
        let (mut trips, mut cpu) = (0, 0);
        for samples in &self.samples {
            let samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
            let mut inside = samples.iter().filter(|(at, ..)| (span.from..=span.to).contains(at));
            if let (Some(first), Some(last)) = (inside.next(), inside.next_back()) {
                trips += last.1.saturating_sub(first.1);
                cpu += last.2.saturating_sub(first.2);
            }
        }
        (trips as f64, cpu as f64 / 1e9)
    }

    fn cpu_of_a_trip(&self, span: Span) -> f64 {
        let (trips, cpu) = self.spent(span);
        if trips > 0.0 { cpu / trips * 1e6 } else { 0.0 }
    }
}

impl Setting for Spec {
    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let name = draw.word(7);
        let source = testbed.dir.join(format!("{name}.erl"));
        fs::write(&source, program(&name))?;
        let group = testbed.fence.group(&draw.word(6))?;
        let mut run =
            Running { spec: self.clone(), source, name, group, vm: None, spinner: 0, samples: Vec::new() };
        run.change_to("none")?;
        Ok(Box::new(run))
    }
}

impl Part for Running {
    fn impose(&mut self) -> Result<(), Trouble> {
        let busy_wait = if self.spec.twin { "none".to_owned() } else { self.spec.busy_wait.clone() };
        self.change_to(&busy_wait)?;
        self.spinner = self.vm.as_ref().map_or(0, |vm| vm.child.id());
        Ok(())
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        self.change_to("none")
    }

    fn names(&self) -> BTreeMap<String, String> {
        named([
            ("group", self.group.path().to_owned()),
            ("pid", self.spinner.to_string()),
            ("switch", "+sbwt none".to_owned()),
        ])
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let with = self.cpu_of_a_trip(window);
        let usual = without.iter().map(|span| self.cpu_of_a_trip(*span)).fold(f64::INFINITY, f64::min);
        let (trips, cpu) = self.spent(window);
        let what = format!(
            "CPU of a round trip, us ({:.0} trips/s)",
            trips / window.length().as_secs_f64().max(1e-3)
        );
        if self.spec.twin {
            return Ok(Facts {
                proof: steady(what, with, usual, LEAST_RATIO),
                lost_s: None,
                names: self.names(),
            });
        }
        let spun = (cpu - trips * usual / 1e6).max(0.0);
        let proof = Proof::rises(what, with, usual, LEAST_RATIO);
        Ok(Facts { proof, lost_s: Some((spun * 0.6, spun * 1.4)), names: self.names() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_all_machines_is_counted_within_the_span() {
        let spec = Spec { busy_wait: "none".into(), pairs: 1, idle_ms: 1, schedulers: 1, twin: false };
        let vm = |samples: &[Sample]| Arc::new(Mutex::new(samples.to_vec()));
        let samples = vec![
            vm(&[(10, 1, 100), (20, 11, 2_000_000_100), (30, 99, 9)]),
            vm(&[(15, 5, 0), (16, 6, 500_000_000)]),
        ];
        let group = Group::make(&whyslow_faults::cgroup::Hierarchies::default(), "/none").unwrap();
        let run = Running {
            spec,
            source: PathBuf::new(),
            name: String::new(),
            group,
            vm: None,
            spinner: 0,
            samples,
        };
        assert_eq!(run.spent(Span { from: 5, to: 25 }), (11.0, 2.5));
        assert_eq!(run.cpu_of_a_trip(Span { from: 100, to: 200 }), 0.0);
    }
}
