//! Each program of the set behaves as intended, by its own clocks and by the kernel's. Drawn at random.

use std::fs;
use std::io::{self, Write as _};
use std::time::Duration;

use whyslow_faults::spinners::{Program, Running, Sbwt, Shape};
use whyslow_faults::{Draw, Fence, Span, clock, host, rounds, thresholds};

/// Programs drawn of each sort in one run.
const DRAWN: usize = 3;
const WINDOW: Duration = Duration::from_millis(1_000);
/// A program that only spins spends at least this share of its CPU time spinning.
const SPINS: f64 = 0.9;
/// Its threads are runnable for this share of the window, whether they get a CPU or not. A sleeping poll is not.
const WANTS: f64 = 0.9;
/// Largest difference between a spinner's clocks and the kernel's: a giver keeps no account, and on a full host a thread may write one row
/// of its account in a tenth of a second.
const DIFFER: f64 = 0.3;
/// Least share of the VM's CPU time that Erlang's schedulers spin, when they may.
const SCHEDULERS: f64 = 0.1;

fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Seconds that the tasks of a process ran, and those that they waited for a CPU.
fn ran_and_waited(pid: u32) -> [f64; 2] {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let mut sum = [0.0; 2];
    for task in tasks.flatten() {
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        for (sum, ns) in sum.iter_mut().zip(text.split_whitespace()) {
            *sum += ns.parse::<f64>().unwrap_or(0.0) * 1e-9;
        }
    }
    sum
}

fn is_honest(running: &Running) -> Result<String, String> {
    let before = running.progress();
    let deadline = clock::now() + thresholds::patient(Duration::from_secs(20)).as_nanos() as u64;
    while running.progress() == before {
        if clock::now() > deadline {
            return Err("no progress".to_owned());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let window = clock::span_of(WINDOW);
    let spin_s = running.reported(window).map_err(|err| err.to_string())?.spin_s;
    if spin_s > 0.0 {
        return Err(format!("{spin_s:.3} s of spinning"));
    }
    Ok(format!("went on by {} in {:?}", running.progress() - before, window.length()))
}

fn is_spinner(running: &Running) -> Result<String, String> {
    let pid = running.pid().ok_or("no process")?;
    // Between two reads of a clock this test may wait for a CPU itself.
    let from = clock::now();
    let before = ran_and_waited(pid);
    let window = clock::span_of(WINDOW);
    let after = ran_and_waited(pid);
    let around = Span { from, to: clock::now() };
    let [ran, waited] = [after[0] - before[0], after[1] - before[1]];
    let most = running.reported(around).map_err(|err| err.to_string())?.cpu_s;
    let reported = running.reported(window).map_err(|err| err.to_string())?;
    let said = format!(
        "{} ({pid}): share {:.2}, ran {ran:.2} s, waited {waited:.2} s, {reported:?}",
        running.comm(),
        reported.share()
    );
    let erlang = matches!(running.program(), Program::Erlang(_));
    let pure = !erlang && running.program() != Program::OpenMp;
    let sleeps = running.program().to_string() == "Usleep";
    if ran * (1.0 - DIFFER) > most || reported.cpu_s > ran * (1.0 + DIFFER) {
        Err(format!("its clocks and the kernel's differ: {said}"))
    } else if reported.share()
        < if erlang {
            SCHEDULERS
        } else if pure {
            SPINS
        } else {
            0.2
        }
    {
        Err(format!("it spins too little: {said}"))
    } else if pure && !sleeps && (ran + waited) / window.length().as_secs_f64() < WANTS {
        Err(format!("it does not want a CPU all the time: {said}"))
    } else if reported.spinning.is_empty() || running.progress() > 0 && !erlang {
        Err(format!("no thread spins: {said}"))
    } else {
        Ok(said)
    }
}

fn check(programs: &[Program]) {
    if !host::is_root() {
        return println!("not run: needs root");
    }
    let mut failed = Vec::new();
    for program in programs {
        let mut draw = Draw::of_run(&program.to_string(), 0);
        let fence = Fence::enter().unwrap();
        let group = fence.group(&draw.word(6)).unwrap();
        let reported = match Running::start(&fence, &group, *program, Shape::Pure, &mut draw) {
            Err(err) if err.kind() == io::ErrorKind::Unsupported => Ok(format!("not run: {err}")),
            Err(err) if err.kind() == io::ErrorKind::TimedOut => Ok(format!("HOST NOT IDLE: {err}")),
            Err(err) => Err(err.to_string()),
            Ok(running) if program.spins() => is_spinner(&running),
            Ok(running) => is_honest(&running),
        };
        say(&format!("{program}: {reported:?}"));
        failed.extend(reported.err().map(|why| format!("{program}: {why}")));
    }
    assert!(failed.is_empty(), "WHYSLOW_SEED={}: {failed:#?}", whyslow_faults::draw::run_seed());
}

fn drawn(of: Vec<Program>, label: &str) -> Vec<Program> {
    if rounds::is_set("WHYSLOW_ALL") {
        return of;
    }
    // A VM and the compiler of its program cost as much as all other programs together.
    let costly = |program: &Program| matches!(program, Program::Java | Program::Erlang(_) | Program::Go);
    let some: Vec<Program> = of.into_iter().filter(|program| !costly(program)).collect();
    let drawn = Draw::of_run(label, 0).some(DRAWN, &some);
    say(&format!("drawn of {label}: {drawn:?}"));
    drawn
}

fn all() -> Vec<Program> {
    Program::seen().into_iter().chain(Program::unseen()).collect()
}

#[test]
fn root_spinners_spin() {
    check(&drawn(all().into_iter().filter(|program| program.spins()).collect(), "spinners"));
}

#[test]
fn root_honest_programs_get_something_done() {
    check(&drawn(all().into_iter().filter(|program| !program.spins()).collect(), "honest programs"));
}

#[test]
fn root_an_erlang_vm_may_be_reported_not_to_spin() {
    check(&[Program::Erlang(Sbwt::None)]);
}
