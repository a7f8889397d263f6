//! Days of a limit that somebody set: the scenarios of the faults.

use whyslow_faults::rounds::{Trouble, Verdict};
use whyslow_faults::scenario::TestBed;
use whyslow_faults::{Draw, Fence, Kind, Scenario, bars};

use crate::days::day::Cell;
use crate::days::judge::{self, Made};
use crate::days::stage::{look, names};

pub fn once(kind: Kind, cell: Cell, fence: &Fence, draw: &mut Draw, label: &str) -> Result<Verdict, Trouble> {
    let mut scenario = Scenario::set(&TestBed::alone(fence), kind, cell.form, draw)?;
    println!("{cell}: {scenario}");
    scenario.work_without(bars::WITHOUT);
    scenario.impose()?;
    std::thread::sleep(bars::SETTLE);
    let cpu = scenario.group().cpu_used()?;
    let look = look(label)?;
    let sight = look.sight(scenario.group(), cpu)?;
    fence.check_time()?;
    let mut whose = names(scenario.victim(), scenario.group());
    whose.extend(scenario.limits().iter().cloned());
    let mut blame = whose.clone();
    blame.extend(scenario.processes().map(|process| process.pid().to_string()));
    blame.extend(scenario.resources().iter().cloned());
    blame.push("affinity to".to_owned());
    let rules: &'static [&'static str] = match kind {
        Kind::CpuQuota => &["cpu-quota"],
        Kind::CpuPinned => &["cpu-pinned"],
        Kind::MemoryLimit => &["memory-limit"],
        Kind::BlkioThrottle => &["blkio-throttle"],
        Kind::ListenOverflow => &["listen-overflow"],
        Kind::SwapIn => &["swap-in"],
    };
    let made = Made {
        cell,
        truth: scenario.truth(look.window),
        whose,
        blame,
        rules,
        busy: None,
        aside: Vec::new(),
        top: fence.top().path().to_owned(),
        said: scenario.to_string(),
        sight,
    };
    Ok(judge::judge(&made, &look))
}
