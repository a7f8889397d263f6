//! `lab run`: draw, boot, run, judge, report.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use serde::Deserialize as _;
use serde_json::Value;
use whyslow_faults::expected::Captured;
use whyslow_faults::{Draw, draw, host};

use crate::child::{Owned, Waited};
use crate::judge::{Cost, Verdict, expected, judge};
use crate::machine::{Ended, Hardware};
use crate::plan::{DOCUMENT, PLAN, Plan, RECORDING, RUN_FACTS, RunFacts};
use crate::scenario::{Scenario, Script};
use crate::table::{self, Row};
use crate::testbed::cases::net::program;
use crate::testbed::part::Setting;
use crate::{Trouble, interrupt, kernels, machine, module, orders, place, sched_ext};

/// A guest that runs longer hangs.
const GUEST_LIMIT: Duration = Duration::from_secs(240);
/// No live test on the host lasts longer than 60 s; an earlier one may have to end first.
const HOST_LIMIT: Duration = Duration::from_secs(180);
/// Tries of a fault that does not come about by its victims' clock.
const TRIES: usize = 4;
/// The name of this host among the kernels.
pub(crate) const HOST: &str = "host";

/// What to run.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Asked {
    /// Only these scenarios.
    #[arg(long, value_name = "NAME")]
    pub scenario: Vec<String>,
    /// Only on these kernels: 6.1, 6.12, host.
    #[arg(long, value_name = "K")]
    pub kernel: Vec<String>,
    /// Run each so many times, drawn anew.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub times: u64,
    /// Repeat the draws of the run with this seed.
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Keep the shares of all runs, not only of failed ones.
    #[arg(long)]
    pub keep: bool,
    /// Save the recording of each run that was found right in this folder, with its truth beside it.
    #[arg(long, value_name = "DIR")]
    pub capture: Option<PathBuf>,
    /// The program under test, if it is not the one built beside this one.
    #[arg(long, value_name = "FILE")]
    pub whyslow: Option<PathBuf>,
}

/// Run all scenarios.
pub fn run(asked: &Asked) -> Result<ExitCode, Trouble> {
    let project = place::project()?;
    let all = Scenario::of(&project)?;
    let seed = asked.seed.unwrap_or_else(draw::run_seed);
    let runs = chosen(&all, asked)?;
    println!("seed {seed}: lab run --seed {seed} runs the same");
    let runner = Runner::here(asked, project)?;
    println!("{}", table::head());
    let mut rows = Vec::new();
    'all: for time in 0..asked.times.max(1) {
        for (scenario, kernel) in &runs {
            let row = runner.run(scenario, kernel, &Draw::with(seed).branch(&format!("{time}")));
            println!("{}", table::line(&row));
            rows.push(row);
            if interrupt::asked() {
                break 'all;
            }
        }
    }
    println!("{}", table::sum(&rows));
    let bad = interrupt::asked() || rows.iter().any(table::is_bad);
    Ok(ExitCode::from(u8::from(bad)))
}

fn chosen<'all>(all: &'all [Scenario], asked: &Asked) -> Result<Vec<(&'all Scenario, &'all str)>, Trouble> {
    let unknown = asked.scenario.iter().find(|name| all.iter().all(|scenario| scenario.name != **name));
    if let Some(name) = unknown {
        let names: Vec<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
        return Err(Trouble::new(
            format!("run {name}"),
            format!("no such scenario; there are: {}", names.join(" ")),
        ));
    }
    let is_wanted = |(scenario, kernel): &(&Scenario, &str)| {
        (asked.scenario.is_empty() || asked.scenario.contains(&scenario.name))
            && (asked.kernel.is_empty() || asked.kernel.iter().any(|wanted| wanted == kernel))
    };
    let every =
        all.iter().flat_map(|scenario| scenario.head.kernels.iter().map(move |k| (scenario, k.as_str())));
    Ok(every.filter(is_wanted).collect())
}

/// The place where scenarios are run.
pub struct Runner {
    lab: PathBuf,
    whyslow: PathBuf,
    project: PathBuf,
    keep: bool,
    capture: Option<PathBuf>,
}

/// A run that cannot be judged.
type Unjudged = Verdict;

impl Runner {
    /// With the programs that were built.
    pub fn here(asked: &Asked, project: PathBuf) -> Result<Self, Trouble> {
        let what = "find the programs";
        let lab =
            std::env::current_exe().and_then(fs::canonicalize).map_err(|err| Trouble::new(what, err))?;
        let beside = asked.whyslow.clone().unwrap_or_else(|| lab.with_file_name("whyslow"));
        let whyslow = fs::canonicalize(&beside).map_err(|err| {
            Trouble::new(format!("find {}", beside.display()), err).or("build it: cargo build --release")
        })?;
        Ok(Runner { lab, whyslow, project, keep: asked.keep, capture: asked.capture.clone() })
    }

    /// Run a scenario until it was judged; its draws do not depend on other scenarios.
    pub fn run(&self, scenario: &Scenario, kernel: &str, draw: &Draw) -> Row {
        let draw = draw.branch(&scenario.name).branch(kernel);
        let mut row = self.once(scenario, kernel, &draw);
        for time in 1..TRIES {
            let why = match &row.verdict {
                Verdict::Unmade(why) => why,
                // A starved kernel may kill a victim that swaps (premature OOM), or keep it from getting ready in time.
                Verdict::Failed(why) if kernel == HOST => why,
                _ => break,
            };
            println!("{:<26} {kernel:<7} not made, once more: {why}", scenario.name);
            row = self.once(scenario, kernel, &draw.branch(&format!("try {time}")));
            row.redrawn = time as u64;
        }
        row
    }

    /// One try of it, whatever its result.
    pub fn once(&self, scenario: &Scenario, kernel: &str, draw: &Draw) -> Row {
        let began = Instant::now();
        let mut row = Row {
            scenario: scenario.name.clone(),
            kernel: kernel.to_owned(),
            promised: scenario.head.promised,
            verdict: Verdict::Found,
            seconds: 0.0,
            cost: None,
            redrawn: 0,
            reported_to_true: Vec::new(),
        };
        row.verdict = self.judged(scenario, kernel, draw, &mut row).unwrap_or_else(|unjudged| unjudged);
        row.seconds = began.elapsed().as_secs_f64();
        row
    }

    fn judged(
        &self,
        scenario: &Scenario,
        kernel: &str,
        draw: &Draw,
        row: &mut Row,
    ) -> Result<Verdict, Unjudged> {
        let failed = |what: &dyn std::fmt::Display| Verdict::Failed(what.to_string());
        let cpus = if kernel == HOST { host::cpus().len() } else { scenario.vcpus() };
        let (script, drawn) = scenario.drawn(draw, cpus).map_err(|what| failed(&what))?;
        let mut share = place::Run::new().map_err(|err| failed(&err))?;
        let mut plan = self.plan(scenario, kernel, draw, &script);
        let lacks =
            parts(&script).filter_map(|part| part.needs_program()).find(|tool| program(tool).is_none());
        if let Some(tool) = lacks {
            return Err(Verdict::NotRun(format!("{tool} is not installed: .ci/setup proof")));
        }
        if parts(&script).any(|part| part.needs_module()) {
            plan.module = Some(built_for(kernel)?);
        }
        if parts(&script).any(|part| part.needs_scheduler()) {
            let built = sched_ext::build().map_err(|trouble| Verdict::NotRun(trouble.to_string()))?;
            plan.scheduler = Some(built);
        }
        if let Some(before) = &script.baseline {
            plan.records_s = Some(before.window_s);
            self.boot_before(kernel, &script, &plan, share.share())?;
            plan.records_s = None;
        }
        write_json(&share.share().join(PLAN), &plan).map_err(|err| failed(&err))?;
        let verdict = if kernel == HOST {
            self.on_host(share.share()).map(|()| None)
        } else {
            self.in_guest(kernel, &script.hardware, share.share())
        };
        let verdict = verdict.map(|crowded| {
            let document = read_json::<Value>(&share.share().join(DOCUMENT));
            row.cost = document.as_ref().map(Cost::of);
            let Some(ran) = read_json::<RunFacts>(&share.share().join(RUN_FACTS)) else {
                return Verdict::Failed("the test bed left no facts".into());
            };
            row.reported_to_true = document
                .as_ref()
                .map_or(Vec::new(), |document| expected(&script, &ran).reported_to_true(document));
            let crowded = crowded.or(ran.disturbed.clone());
            let verdict = judge(&script, &ran, document.as_ref()).or_of_a_crowded_host(crowded);
            match &self.capture {
                Some(into) if verdict == Verdict::Found => capture(into, share.share(), &plan, &script, &ran)
                    .map_or_else(|trouble| Verdict::Failed(trouble.to_string()), |()| verdict),
                _ => verdict,
            }
        });
        let verdict = verdict.unwrap_or_else(|unjudged| unjudged);
        if self.keep || !matches!(verdict, Verdict::Found | Verdict::NotRun(_)) {
            let kept = share.keep();
            let drawn: Vec<String> =
                drawn.iter().map(|(name, value)| format!("{name} = {value:?}")).collect();
            eprintln!("    kept: {}; {}", kept.display(), drawn.join(", "));
        }
        Ok(verdict)
    }

    fn plan(&self, scenario: &Scenario, kernel: &str, draw: &Draw, script: &Script) -> Plan {
        Plan {
            scenario: scenario.name.clone(),
            seed: draw.clone().any(),
            kernel: kernel.to_owned(),
            faults: script.fault.clone(),
            loads: script.load.clone(),
            look: script.look.clone(),
            captures: self.capture.is_some() && script.baseline.is_none(),
            records_s: None,
            whyslow: self.whyslow.clone(),
            module: None,
            scheduler: None,
            project: self.project.clone(),
        }
    }

    fn on_host(&self, share: &Path) -> Result<(), Unjudged> {
        if !host::is_root() {
            return Err(Verdict::NotRun("it needs root".into()));
        }
        let failed = |what: String| Verdict::Failed(what);
        let mut testbed = Command::new(&self.lab);
        testbed.arg("test-bed").arg(share.join(PLAN));
        let mut testbed = Owned::spawn(&mut testbed).map_err(|err| failed(err.to_string()))?;
        match testbed.wait(HOST_LIMIT).map_err(|err| failed(err.to_string()))? {
            Waited::Ended(status) if status.success() => Ok(()),
            Waited::Ended(status) => Err(failed(format!("the test bed ended with {status}"))),
            Waited::TimedOut => Err(failed(format!("it did not end in {HOST_LIMIT:?}"))),
            Waited::Interrupted => Err(Verdict::NotRun("interrupted".into())),
        }
    }

    /// The guest in which whyslow makes the recording that the next guest is compared with.
    fn boot_before(&self, label: &str, script: &Script, plan: &Plan, share: &Path) -> Result<(), Unjudged> {
        let failed = |what: &dyn std::fmt::Display| Verdict::Failed(format!("the boot before: {what}"));
        write_json(&share.join(PLAN), plan).map_err(|err| failed(&err))?;
        let _ = self.in_guest(label, &script.hardware_before().unwrap_or_default(), share)?;
        let ran = read_json::<RunFacts>(&share.join(RUN_FACTS));
        // These facts belong to this boot, not to the observed one.
        fs::remove_file(share.join(RUN_FACTS)).map_err(|err| failed(&err))?;
        match ran {
            None => Err(failed(&"the test bed left no facts")),
            Some(RunFacts { trouble: Some(trouble), .. }) => Err(failed(&trouble)),
            Some(_) => Ok(()),
        }
    }

    /// Runs the guest. Returns other load on the host, if it was enough to disturb the guest.
    fn in_guest(
        &self,
        label: &str,
        hardware: &toml::Table,
        share: &Path,
    ) -> Result<Option<String>, Unjudged> {
        let kernel = kernels::fetch(label).map_err(|reason| Verdict::NotRun(reason.to_string()))?;
        let hardware = Hardware::deserialize(hardware.clone())
            .map_err(|err| Verdict::Failed(format!("[hardware]: {err}")))?;
        let plan = Path::new(orders::SHARE).join(PLAN);
        let words: [&dyn AsRef<std::ffi::OsStr>; 6] =
            [&"/usr/bin/env", &"WHYSLOW_EMULATED=1", &"LC_ALL=C", &self.lab, &"test-bed", &plan];
        let command: Vec<OsString> = words.iter().map(|word| (*word).as_ref().to_owned()).collect();
        let ran = machine::run(&kernel, &hardware, share, &command, GUEST_LIMIT)
            .map_err(|trouble| Verdict::NotRun(trouble.to_string()))?;
        if ran.emulator_broke() {
            return Err(Verdict::Unmade("the emulator broke the guest (a stale breakpoint)".into()));
        }
        if let Some(complaint) = ran.complaints.first() {
            return Err(Verdict::Failed(format!("the guest complained: {complaint}")));
        }
        match ran.status {
            Ended::Exited(0) => Ok(ran.crowded),
            Ended::Exited(status) => Err(Verdict::Failed(format!("the test bed ended with {status}"))),
            Ended::TimedOut => Err(Verdict::Failed(format!("the guest did not end in {GUEST_LIMIT:?}"))),
            Ended::Died(words) => Err(Verdict::Failed(format!("the guest died: {words}"))),
        }
    }
}

/// Keep the recording of a run, and its truth beside it. Answers of a baseline or of the doctor are not in the recording: such runs are not
/// kept.
fn capture(into: &Path, share: &Path, plan: &Plan, script: &Script, ran: &RunFacts) -> Result<(), Trouble> {
    if !plan.captures || script.look.doctor {
        println!("{}: not kept: a recording holds no answers of a baseline or the doctor", plan.scenario);
        return Ok(());
    }
    let captured = Captured {
        scenario: plan.scenario.clone(),
        kernel: plan.kernel.clone(),
        expected: expected(script, ran),
        without: script.without.clone(),
    };
    let name = into.join(format!("{}-{}", plan.scenario, plan.kernel));
    let truth = name.with_added_extension("json");
    let keep = || {
        fs::create_dir_all(into)?;
        // The truth of an earlier run would belong to a recording that is gone.
        if truth.exists() {
            fs::remove_file(&truth)?;
        }
        fs::copy(share.join(RECORDING), name.with_added_extension("why"))?;
        write_json(&truth, &captured)
    };
    keep().map_err(|err| Trouble::new(format!("keep {}", name.display()), err))
}

/// Faults and loads.
fn parts(script: &Script) -> impl Iterator<Item = &dyn Setting> {
    let faults = script.fault.iter().map(|part| part as &dyn Setting);
    faults.chain(script.load.iter().map(|part| part as &dyn Setting))
}

/// The fault module for a guest's kernel. The host never gets one.
fn built_for(label: &str) -> Result<PathBuf, Unjudged> {
    let kernel = kernels::fetch(label).map_err(|reason| Verdict::NotRun(reason.to_string()))?;
    module::build(&kernel, module::NAME).map_err(|trouble| Verdict::NotRun(trouble.to_string()))
}

fn write_json(path: &Path, what: &impl serde::Serialize) -> std::io::Result<()> {
    fs::write(path, serde_json::to_vec_pretty(what)?)
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
