//! A program sends an interrupt to every CPU in turn, and spins until the CPU answers; one CPU answers late, because it wakes up slowly
//! from a deep idle state, or because a task keeps interrupts off there.

mod acts;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whyslow_faults::clock::Span;
use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, host};

use super::actor::{Act, Actor, Order};
use super::{idle_states, median, named, policies, steady};
use crate::guest::module::{Fault, Interrupter};
use crate::testbed::TestBed;
use crate::testbed::fault_module::Loaded;
use crate::testbed::part::{Facts, Part, Proof, Setting};

pub use acts::{AskCpus, Calls};

use acts::Answer;

/// The late CPU's answers must take so many times as long.
const LEAST_RATIO: f64 = 3.0;
/// ... for a query of all CPUs at once, in which the kernel itself sleeps 10 ms to count their cycles.
const LEAST_RATIO_OF_ALL: f64 = 1.5;

/// Time between two rounds of a program: long enough for a CPU to become idle.
const PAUSE: Duration = Duration::from_millis(50);

/// Faster answers cause no problem.
const QUIET_S: f64 = 0.003;

/// What is drawn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Name of the program that queries.
    pub reader: String,
    /// What it reads from each CPU.
    pub ask: Ask,
    /// Interval of its rounds.
    pub every_ms: u64,
    /// Name of work that runs on the CPUs at times.
    pub other: String,
    /// The late CPU.
    pub cpu: usize,
    /// Why it is late.
    pub by: By,
    /// Name of a program that reads each CPU's frequency so many times and ends: `{program}`, with the arguments `{words}`.
    #[serde(default)]
    pub program: Option<Program>,
    /// Same load, and the CPU is not late.
    #[serde(default)]
    pub twin: bool,
}

/// Why a CPU is late.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum By {
    /// It wakes up slowly.
    Idle {
        /// From this idle state on.
        state: u32,
        /// For this long.
        wake_us: u64,
    },
    /// A kernel thread keeps interrupts off.
    IrqsOff {
        /// For this long each time ...
        for_us: u64,
        /// ... at this interval.
        every_us: u64,
        thread: String,
    },
}

/// A program that whyslow runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    name: String,
    rounds: usize,
}

/// A read that sends an interrupt to a CPU and spins until the CPU answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Its frequency in sysfs.
    Frequency,
    /// A perf counter of the CPU.
    Counter,
    /// /proc/cpuinfo, which queries all CPUs at once: on 5.10, for CPUs that count their real cycles.
    Cpuinfo,
}

impl Spec {
    fn fault(&self) -> Fault {
        let (cpu, us) = (self.cpu as u32, Duration::from_micros);
        match &self.by {
            By::Idle { state, wake_us } => {
                Fault::LateWake { cpus: vec![cpu], from: *state, lasts: us(*wake_us) }
            }
            By::IrqsOff { for_us, every_us, thread } => Fault::IrqsOff {
                cpu,
                lasts: us(*for_us),
                every: us(*every_us),
                by: Interrupter::Thread(thread.clone()),
            },
        }
    }

    /// Further names that an answer can refer to.
    fn reported(&self, testbed: &TestBed, cpus: &[usize]) -> Result<BTreeMap<String, String>, Trouble> {
        let others: Vec<String> =
            cpus.iter().filter(|cpu| **cpu != self.cpu).map(ToString::to_string).collect();
        let mut names = named([
            ("reader", self.reader.clone()),
            ("cpu", self.cpu.to_string()),
            ("others", others.join(",")),
            ("file", policies::present_frequency(self.cpu).display().to_string()),
            ("function", self.fault().function().to_owned()),
        ]);
        if let By::Idle { state, .. } = self.by {
            names.insert("state".to_owned(), idle_states::from(self.cpu as u32, state)?.join("|"));
        }
        if let Some(program) = &self.program {
            let path = testbed.dir.join(&program.name);
            // A copy in a separate file can have any name.
            fs::copy(std::env::current_exe()?, &path).map_err(|err| format!("copy this program: {err}"))?;
            let files = cpus.iter().map(|cpu| policies::present_frequency(*cpu).display().to_string());
            names.insert("program".to_owned(), path.display().to_string());
            let words = ["ask".to_owned(), program.rounds.to_string()].into_iter().chain(files);
            names.insert("words".to_owned(), words.collect::<Vec<_>>().join("\n"));
        }
        Ok(names)
    }
}

/// Read files in turn, so many rounds: what a program of a case does.
pub fn ask(rounds: usize, files: &[PathBuf]) -> io::Result<()> {
    for _ in 0..rounds {
        files.iter().try_for_each(|file| fs::read(file).map(drop))?;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Move device interrupts to other CPUs than the late one: the reader must wait for the CPU that it queries, not for the server of the
/// guest's files. Interrupts that cannot be moved stay.
fn serve_elsewhere(names: &BTreeMap<String, String>) {
    let Some(others) = names.get("others") else { return };
    for line in fs::read_dir("/proc/irq").into_iter().flatten().flatten() {
        let _ = fs::write(line.path().join("smp_affinity_list"), others);
    }
}

/// A CPU with interrupts off is late for part of the time only, and so is a CPU that also has other work.
fn mean(answers: &[f64]) -> f64 {
    answers.iter().sum::<f64>() / answers.len().max(1) as f64
}

struct Running {
    spec: Spec,
    reader: Actor,
    other: Actor,
    folio: Rc<Loaded>,
    names: BTreeMap<String, String>,
}

impl Setting for Spec {
    fn needs_module(&self) -> bool {
        true
    }

    fn set(&self, testbed: &TestBed, draw: &mut Draw) -> Result<Box<dyn Part>, Trouble> {
        let cpus = host::cpus();
        if cpus.len() < 2 {
            return Err("this wants two CPUs: one does not ask itself".into());
        }
        let folio = testbed.folio.loaded(draw)?;
        if self.ask != Ask::Counter {
            folio.module.make(&Fault::PStateMsr { aperf: self.ask == Ask::Cpuinfo })?;
            policies::load()?;
        }
        let names = self.reported(testbed, &cpus)?;
        if self.ask == Ask::Cpuinfo {
            serve_elsewhere(&names);
        }
        // A query of all CPUs at once waits for the late one.
        let cpus = if self.ask == Ask::Cpuinfo { vec![self.cpu] } else { cpus };
        let group = testbed.fence.group(&draw.word(6))?;
        let ask = Act::AskCpus(AskCpus { ask: self.ask, cpus, every_ms: self.every_ms });
        let calls =
            Act::Calls(Calls { busy_us: draw.between(500, 2_000), every_us: draw.between(100_000, 200_000) });
        let reader = Order::new(&self.reader, ask).within(group.procs_files()).start()?;
        let other = Order::new(&self.other, calls).within(group.procs_files()).start()?;
        Ok(Box::new(Running { spec: self.clone(), reader, other, folio, names }))
    }
}

impl Running {
    /// Lateness of the ticks of both, in seconds.
    fn ticks(&self, span: Span) -> Vec<f64> {
        let notes = [&self.reader, &self.other].into_iter().flat_map(|actor| actor.notes(span));
        let answers = notes.map(|(_, what)| Answer::unpacked(what)).filter(Answer::is_of_timer);
        answers.map(|answer| answer.ns as f64 / 1e9).collect()
    }

    /// Their loss in the window: where interrupts are off, timers are late, too.
    fn lost(&self, window: Span, without: &[Span], usual: f64) -> f64 {
        let beyond =
            |took: Vec<f64>, usual: f64| took.iter().map(|took| (took - usual).max(0.0)).sum::<f64>();
        let answers = beyond(self.answers(window, true), usual);
        match self.spec.by {
            By::Idle { .. } => answers,
            By::IrqsOff { .. } => {
                let usual = median(without.iter().flat_map(|span| self.ticks(*span)));
                answers + beyond(self.ticks(window), usual)
            }
        }
    }

    fn least_ratio(&self) -> f64 {
        if self.spec.ask == Ask::Cpuinfo { LEAST_RATIO_OF_ALL } else { LEAST_RATIO }
    }

    /// Times of the answers of the late CPU to other CPUs, or of all other CPUs, in seconds.
    fn answers(&self, span: Span, late: bool) -> Vec<f64> {
        let answers = self.reader.notes(span).into_iter().map(|(_, what)| Answer::unpacked(what));
        let of = answers.filter(|answer| {
            answer.of != answer.to && !answer.is_of_timer() && (answer.of == self.spec.cpu) == late
        });
        of.map(|answer| answer.ns as f64 / 1e9).collect()
    }
}

impl Part for Running {
    fn impose(&mut self) -> Result<(), Trouble> {
        if self.spec.twin {
            return Ok(());
        }
        Ok(self.folio.module.make(&self.spec.fault())?)
    }

    fn lift(&mut self) -> Result<(), Trouble> {
        if self.spec.twin {
            return Ok(());
        }
        Ok(self.folio.module.end(&self.spec.fault())?)
    }

    fn names(&self) -> BTreeMap<String, String> {
        self.names.clone()
    }

    fn facts(&self, window: Span, without: &[Span]) -> Result<Facts, Trouble> {
        let usual: Vec<f64> = without.iter().flat_map(|span| self.answers(*span, true)).collect();
        let (with, middle) = (mean(&self.answers(window, true)), median(usual.iter().copied()));
        let usual = mean(&usual);
        let what = format!(
            "answer of CPU {}, s (of the others {:.6}; usual middle {middle:.6}; {} rounds a second, {} without)",
            self.spec.cpu,
            mean(&self.answers(window, false)),
            self.reader.rate(window).round(),
            without.first().map_or(0.0, |span| self.reader.rate(*span)).round()
        );
        if self.spec.twin {
            return Ok(Facts {
                proof: steady(what, with, usual.max(QUIET_S), self.least_ratio()),
                lost_s: None,
                names: self.names(),
            });
        }
        let lost = self.lost(window, without, middle);
        let proof = Proof::rises(what, with, usual, self.least_ratio());
        Ok(Facts { proof, lost_s: Some((lost * 0.7, lost * 1.3)), names: self.names() })
    }
}
