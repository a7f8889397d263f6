//! Make a cell: the program runs, whyslow looks, and what it says is compared.

use std::io::ErrorKind;
use std::time::Duration;

use whyslow_faults::honest::Crowd;
use whyslow_faults::host::Calm;
use whyslow_faults::look::Look;
use whyslow_faults::rounds::{self, Outcome, Trouble};
use whyslow_faults::spinners::{Meter, Program, Running, Shape, Told, Wait};
use whyslow_faults::{Draw, Fence, bars};

use crate::cell::{Cell, Set};
use crate::finding::{Accusation, accusations, why_not};
use crate::judge::{self, Beside, Verdict, Whom};
use crate::table::{self, Row};

/// Busy processes of the crowd: ten a CPU of the machine that the table is about.
const CROWD: usize = 20;
/// Runs of each cell in a soak.
const RUNS: u64 = 3;
/// From its first work until a program does what it will do from then on: code is compiled, buffers are full.
const SETTLE: Duration = Duration::from_millis(300);

/// One cell as a test: not drawn, once, or the runs of a soak.
pub fn run(cell: Cell) {
    let set = Set::asked();
    if !cell.is_of(set) {
        return rounds::say(&format!("not run: {cell}: WHYSLOW_ZOO asks for the {set:?} set"));
    }
    rounds::run_times(
        &cell,
        RUNS,
        |seed| cell.is_drawn(set, seed),
        &table::kept_in(),
        |draw| make(cell, draw),
    );
}

fn make(cell: Cell, draw: &mut Draw) -> Result<Outcome, Trouble> {
    match made(cell, draw) {
        // Nothing is wrong with a program that gets no CPU.
        Err(trouble) if is_timeout(&trouble) => Ok(Outcome::HostNotIdle(trouble.to_string())),
        done => done,
    }
}

fn is_timeout(trouble: &Trouble) -> bool {
    trouble.downcast_ref::<std::io::Error>().is_some_and(|err| err.kind() == ErrorKind::TimedOut)
}

fn made(cell: Cell, draw: &mut Draw) -> Result<Outcome, Trouble> {
    let fence = Fence::enter()?;
    let crowd = if cell.crowded { Some(Crowd::start(&fence, CROWD, 1, draw)?) } else { None };
    let group = match &crowd {
        Some(crowd) if !has_its_own_group(cell.program) => crowd.group().clone(),
        _ => fence.group(&draw.word(7))?,
    };
    let shape = if cell.crowded { Shape::Mostly } else { Shape::Drawn };
    let running = match Running::start(&fence, &group, cell.program, shape, draw) {
        Err(err) if err.kind() == ErrorKind::Unsupported => return Ok(Outcome::NotRun(err.to_string())),
        done => done?,
    };
    std::thread::sleep(SETTLE);
    let calm = Calm::watch(Some(fence.top()))?;
    let meter = running.pid().map(|pid| Meter::of(pid, running.tellers()));
    let before = running.progress();
    let look = exam(&format!("{cell}-{}", draw.seed()))?;
    let progress = running.progress() - before;
    let disturbed = calm.disturbed(Some(fence.top()), own_cpu(&look))?;
    let mut told = running.told(look.window)?;
    if let Some(meter) = meter.filter(|_| cell.program.spins()) {
        told.scale_to(meter.within(look.window));
    }
    if !cell.program.spins() && progress == 0 {
        return Ok(Outcome::HostNotIdle(format!("{} got nothing done while whyslow looked", cell.program)));
    }
    if cell.program.spins() && (told.share() < judge::MUST || told.spin_s < judge::MUST_S) {
        return Ok(Outcome::HostNotIdle(format!(
            "it spun for {:.3} s of {:.3} s of CPU only",
            told.spin_s, told.cpu_s
        )));
    }
    let made = Made { cell, running, fence, crowd, disturbed: disturbed.is_some() };
    let row = made.judged(&look, &told);
    row.note();
    made.fence.check_time()?;
    if row.wrong.is_empty() {
        return Ok(Outcome::Passed);
    }
    Err(format!("{row}; true: {told:?}; all that was said: {}", look.kept.display()).into())
}

/// Most programs are in the crowd's own group: in one of their own they have half of the machine. Who yields has next to
/// nothing there, and who spins only when it has no work always has some: they would not spin. Of who makes calls that find
/// nothing one sample in twenty shows a result: of the 60 that it has there, too few.
fn has_its_own_group(program: Program) -> bool {
    matches!(program, Program::Erlang(_) | Program::Wait(Wait::Yield | Wait::Epoll | Wait::Recv))
}

fn exam(label: &str) -> Result<Look, Trouble> {
    std::fs::create_dir_all(table::kept_in())?;
    // Another binary can be put to the test: an installed one, an older one.
    let whyslow = std::env::var_os("WHYSLOW_BIN").unwrap_or(env!("CARGO_BIN_EXE_whyslow").into());
    let length = format!("{}s", bars::WINDOW_S);
    let kept = table::kept_in().join(format!("{label}.json"));
    Look::now(&whyslow, &["exam", "--for", &length, "--json"], Duration::from_secs(bars::WINDOW_S), &kept)
}

/// CPU time of whyslow.
fn own_cpu(look: &Look) -> Duration {
    Duration::from_secs_f64(look.document["own_cost"]["cpu_s"].as_f64().unwrap_or(0.0).clamp(0.0, 60.0))
}

/// A cell that was made. What comes first ends first.
struct Made {
    cell: Cell,
    running: Running,
    crowd: Option<Crowd>,
    fence: Fence,
    disturbed: bool,
}

impl Made {
    fn judged(&self, look: &Look, told: &Told) -> Row {
        let all = accusations(&look.document);
        let names: Vec<&str> = self.crowd.iter().map(|crowd| crowd.all().comm()).collect();
        let about =
            |who: Whom| all.iter().find(|each| judge::whom(each, &self.running, &self.fence, &names) == who);
        let (innocent, program) = (about(Whom::Innocent), about(Whom::Program));
        let beside = match (self.disturbed, self.cell.crowded) {
            (true, _) => Beside::Others,
            (false, true) => Beside::Crowd,
            (false, false) => Beside::Nobody,
        };
        let (verdict, wrong) = match (self.cell.program.spins(), program, innocent) {
            (_, _, Some(innocent)) => (Verdict::False, format!("{} is accused", innocent.name())),
            (false, Some(_), None) => (Verdict::False, "it is accused".to_owned()),
            (false, None, None) => (Verdict::Quiet, String::new()),
            (true, None, None) => {
                (Verdict::Missed, why_not(&look.document).unwrap_or("nothing is said").to_owned())
            }
            (true, Some(said), None) => {
                (Verdict::Found, judge::is_true(said, told, &self.running, beside).err().unwrap_or_default())
            }
        };
        let is_named = |said: &Accusation<'_>, name: &str| name == self.running.comm() || said.says(name);
        let named = |said| told.spinning.iter().filter(|name| is_named(said, name)).count();
        let share = |cpu_s: [f64; 3]| cpu_s.map(|s| s / told.cpu_s.max(1e-9));
        Row {
            cell: self.cell,
            disturbed: self.disturbed,
            verdict,
            told: program.and_then(Accusation::cpu_s).map(share),
            truth: told.share(),
            cpu_s: told.cpu_s,
            function: program.map_or("-", Accusation::function).to_owned(),
            named: [program.map_or(0, named), told.spinning.len()],
            own: own_cpu(look),
            wrong,
        }
    }
}
