//! Virtual machines that wait by spinning, and their cost when they do not.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::account::Account;
use super::outside::{self, Outside};
use super::plan::{Plan, Shape};
use super::programs::Sbwt;
use super::{SpinWait, unseen};
use crate::cgroup::Group;
use crate::clock::{self, Span};
use crate::{Draw, Fence, work};

/// The VM's CPU clock counts hundredths of a second: with less CPU time than this, a reference would be mostly rounding.
const REFERENCE_CPU_S: f64 = 0.3;
/// Shortest run of a reference, to be comparable.
const REFERENCE: Duration = Duration::from_millis(1_500);
/// Longest run of a reference, as a multiple of that, however little CPU time a full host grants.
const REFERENCES: u32 = 3;
/// Time to create processes and load code.
const WARM: Duration = Duration::from_millis(400);

/// An Erlang VM under a known load.
pub struct Erlang {
    vm: Outside,
    /// CPU time of a round trip when schedulers do not spin; `None`: this VM is one of those.
    reference: Option<Trip>,
}

/// CPU time of a round trip, in ns.
#[derive(Debug, Clone, Copy)]
struct Trip {
    /// All of it. Schedulers that do not spin sleep and must be woken up, which spinning schedulers seldom need.
    most: f64,
    /// Without the kernel's part.
    least: f64,
}

/// The game that a VM plays.
struct Game {
    pairs: u64,
    pause_us: u64,
    schedulers: u64,
}

impl Erlang {
    /// Start it; if it spins, first run a VM that plays the same and does not spin.
    pub fn start(fence: &Fence, group: &Group, sbwt: Sbwt, draw: &mut Draw) -> io::Result<Self> {
        let game = Game {
            pairs: draw.between(120, 260),
            pause_us: draw.between(8_000, 14_000),
            schedulers: draw.between(2, 4),
        };
        outside::build(
            Command::new(outside::find("erlc")?)
                .arg("-o")
                .arg(fence.dir())
                .arg(outside::source("erlang/pingpong.erl")),
        )?;
        let reference = match sbwt {
            Sbwt::None => None,
            Sbwt::VeryLong | Sbwt::Default => {
                let vm = machine(fence, group, Sbwt::None, &game, draw)?;
                std::thread::sleep(WARM);
                Some(cost_of_a_trip(&vm))
            }
        };
        let vm = machine(fence, group, sbwt, &game, draw)?;
        std::thread::sleep(WARM);
        Ok(Erlang { vm, reference })
    }

    /// The VM.
    #[must_use]
    pub fn vm(&self) -> &Outside {
        &self.vm
    }

    /// Seconds of CPU that it used in a window, and the lower and upper bound of its spinning.
    #[must_use]
    pub fn cpu_and_spin(&self, window: Span) -> [f64; 3] {
        let [cpu_s, trips] = played(&self.vm, window);
        let spin = |each: f64| (cpu_s - trips * each * 1e-9).max(0.0);
        let [least, most] = self.reference.map_or([0.0; 2], |trip| [spin(trip.most), spin(trip.least)]);
        [cpu_s, least, most]
    }

    /// Round trips so far.
    #[must_use]
    pub fn trips(&self) -> u64 {
        self.vm.accounts().first().and_then(|account| account.rows.last()).map_or(0, |row| row[2])
    }
}

fn cost_of_a_trip(vm: &Outside) -> Trip {
    let before = user_and_system(vm.pid());
    let mut window = clock::span_of(REFERENCE);
    for _ in 1..REFERENCES {
        if played(vm, window)[0] >= REFERENCE_CPU_S {
            break;
        }
        window.to = clock::span_of(REFERENCE).to;
    }
    let after = user_and_system(vm.pid());
    let [cpu_s, trips] = played(vm, window);
    let most = cpu_s * 1e9 / trips.max(1.0);
    let [user, system] = [0, 1].map(|at| after[at].saturating_sub(before[at]) as f64);
    Trip { most, least: most * user / (user + system).max(1.0) }
}

/// Hundredths of a second of CPU in user mode and in the kernel: /proc/PID/stat, fields 14 and 15.
fn user_and_system(pid: u32) -> [u64; 2] {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_comm = text.rsplit(')').next().unwrap_or_default();
    let mut fields = after_comm.split_whitespace().skip(11).map_while(|field| field.parse().ok());
    [fields.next().unwrap_or(0), fields.next().unwrap_or(0)]
}

/// CPU seconds and round trips in a window.
fn played(vm: &Outside, window: Span) -> [f64; 2] {
    let [cpu, trips] = vm.accounts().first().map_or([0.0; 2], |account| account.within(window));
    [cpu, trips * 1e9]
}

fn machine(fence: &Fence, group: &Group, sbwt: Sbwt, game: &Game, draw: &mut Draw) -> io::Result<Outside> {
    let mut command = Command::new(outside::find("erl")?);
    match sbwt {
        Sbwt::VeryLong => command.args(["+sbwt", "very_long"]),
        Sbwt::Default => &mut command,
        Sbwt::None => command.args(["+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none"]),
    };
    command.args(["+S", &format!("{0}:{0}", game.schedulers), "-noshell", "-pa"]).arg(fence.dir()).args([
        "-run",
        "pingpong",
        "start",
        &game.pairs.to_string(),
        &game.pause_us.to_string(),
    ]);
    let mut vm = Outside::start(fence, group, &mut command, &draw.word(7))?;
    vm.until("the VM", |vm| vm.accounts().first().is_some_and(|account| account.rows.len() > 4))?;
    Ok(vm)
}

/// Pairs of Java threads, one of which waits with `Thread.onSpinWait`.
pub fn java(fence: &Fence, group: &Group, shape: Shape, draw: &mut Draw) -> io::Result<Outside> {
    let java = outside::find("java")?;
    outside::build(
        Command::new(outside::find("javac")?)
            .args(["-J-Xmx96m", "-d"])
            .arg(fence.dir())
            .arg(outside::source("java/Waiters.java")),
    )?;
    let mut command = Command::new(java);
    command.args(["-Xmx64m", "-XX:+UseSerialGC", "-cp"]).arg(fence.dir()).arg("Waiters");
    let plan = Plan::draw(SpinWait::FlagPause, shape, 1, draw);
    pairs(fence, group, command, &plan, draw)
}

/// Pairs of goroutines, one of which waits for an atomic.
pub fn go(fence: &Fence, group: &Group, shape: Shape, draw: &mut Draw) -> io::Result<Outside> {
    let program = fence.dir().join(draw.word(9));
    unseen::build_go(&program, Path::new(fence.dir()))?;
    let plan = Plan::draw(SpinWait::FlagBare, shape, 1, draw);
    pairs(fence, group, Command::new(program), &plan, draw)
}

fn pairs(
    fence: &Fence,
    group: &Group,
    mut command: Command,
    plan: &Plan,
    draw: &mut Draw,
) -> io::Result<Outside> {
    command
        .args([&plan.waiter, &plan.pairs.to_string()])
        .args([plan.spin_us, plan.work_us, plan.rest_us].map(|us| us.to_string()))
        .arg(work::turns_per_us().to_string());
    let mut outside = Outside::start(fence, group, &mut command, &draw.word(7))?;
    let moving = |account: &Account| account.rows.len() > 4;
    outside.until("its threads", |outside| outside.accounts().iter().any(moving))?;
    Ok(outside)
}
