//! Risks without a loss yet, on the live kernel: each rule that reports only risks meets a risk made for it.
//!
//! All is drawn; the test reads the kernel's own counts to learn what came about; each risk has its healthy twin. `WHYSLOW_SEED` repeats a
//! run. whyslow's documents are kept under `target/*/tmp/risks`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use whyslow_faults::cgroup::Group;
use whyslow_faults::expected::{Answer, Expected, Facts, Never, Proof, Section};
use whyslow_faults::ledger::Fact;
use whyslow_faults::look::Look;
use whyslow_faults::report_checks::{KILLS, Sight, Verb};
use whyslow_faults::rounds::{self, Outcome, Trouble};
use whyslow_faults::spec::{Network, Work};
use whyslow_faults::{Draw, Fence, Victim, thresholds};

mod bpf;
mod stand_ins;

/// The risk that was made.
#[derive(Debug, Clone, Copy, Default)]
struct Made<'m> {
    rule: &'m str,
    healthy: bool,
    /// Rules whose causes are right, too: making the risk costs time.
    may: &'m [&'m str],
    /// CPU seconds of the risk, by its own clock.
    cpu: Option<f64>,
}

/// Bounds of the reported CPU time, as multiples of what the threads counted: samples are 5 ms apart, and the entry into the call and the
/// exit count, too.
const CPU: [f64; 2] = [0.6, 1.4];
/// With less CPU time it is no fault yet (the rule's own threshold is 5 % of a CPU).
const LEAST_CPU_S: f64 = 0.3;

impl Made<'_> {
    /// The risk must be reported in these words, the first of which name its subject; the twin's must not be. `sight`: a task that used
    /// some CPU time beside it.
    fn expected(&self, says: &[String], sight: Sight) -> Expected {
        let rules = vec![self.rule.to_owned()];
        let answer = Answer {
            section: if self.rule == KILLS { Section::Causes } else { Section::Risks },
            rank: usize::MAX,
            rules: rules.clone(),
            names: says.to_vec(),
            lost: self.cpu.map(|_| CPU),
            ..Answer::default()
        };
        let proof = Proof::rises("the test's own counts", 1.0, 0.0, 1.0);
        let lost_s = self.cpu.map(|cpu| (cpu, cpu));
        let risks = if self.healthy { rules.clone() } else { Vec::new() };
        let rules = if self.rule == KILLS { risks.clone() } else { rules };
        Expected {
            faults: vec![Facts { proof, lost_s, names: BTreeMap::new() }],
            seen: vec![sight],
            answer: (!self.healthy).then_some(answer).into_iter().collect(),
            never: Never { risks, rules, ..Never::default() },
            may: self.may.iter().map(|rule| (*rule).to_owned()).collect(),
            about: says.first().cloned(),
            ..Expected::default()
        }
    }

    /// Why it is no fault, by its own clock.
    fn is_idle(&self) -> Option<String> {
        let cpu = self.cpu.filter(|cpu| !self.healthy && *cpu < LEAST_CPU_S)?;
        Some(format!("it used {cpu:.2} s of CPU only"))
    }
}

/// A cell: the risk, the words that the report must contain, why it did not come about, the run.
type Seen<'m> = (Made<'m>, Vec<String>, Option<String>, Look);

fn look(label: &str) -> Result<Look, Trouble> {
    crate::look("risks", label, &["exam"])
}

/// A cell that is repeated until it came about.
fn run<'m>(cell: &str, make: impl Fn(&mut Draw, &Fence, &str) -> Result<Seen<'m>, Trouble>) {
    rounds::run_judged(&cell, &crate::kept_in("risks"), |draw, label| {
        let fence = Fence::enter()?;
        let group = fence.group("witness")?;
        let work = Work::Paced { burst_us: 1000, every_us: 10_000 };
        let witness = Victim::spawn(fence.spec(&group, "witness", 1, work))?;
        witness.go();
        let before = group.cpu_used()?;
        let (made, says, again, look) = make(draw, &fence, label)?;
        let expected = made.expected(&says, look.sight(&group, before)?);
        fence.check_time()?;
        Ok(look.judged(&expected, Verb::Exam, again.or_else(|| made.is_idle())))
    });
}

/// A fault and its twin, which differ only in the cause of the fault.
fn pair<'m>(cell: &str, make: impl Fn(&mut Draw, &Fence, &str, bool) -> Result<Seen<'m>, Trouble>) {
    run(cell, |draw, fence, label| make(draw, fence, label, false));
    run(&format!("{cell}-twin"), |draw, fence, label| make(draw, fence, label, true));
}

#[test]
fn root_a_cgroup_with_hardly_room_for_a_task_is_a_risk() {
    pair("pid-limit", |draw, fence, label, healthy| {
        let (sleepers, comm) = (draw.between(60, 150), format!("few-{}", draw.word(5)));
        let group = fence.group(&draw.word(6))?;
        let work = Work::Few { tasks: sleepers, idle_us: draw.between(50, 400) * 1000 };
        let victim = Victim::spawn(fence.spec(&group, &comm, 1, work))?;
        victim.go();
        std::thread::sleep(thresholds::SETTLE);
        let now = group.tasks()?;
        let limit = if healthy { now * 2 } else { now + draw.between(0, now / 12) };
        group.set_pids_limit(limit)?;
        let look = look(label)?;
        let says = vec![group.path().to_owned(), format!("{now} tasks of at most {limit}")];
        drop(victim);
        Ok((Made { rule: "pid-limit", healthy, ..Made::default() }, says, None, look))
    });
}

/// A program with its own name, in a group; it ends with this test.
fn program(fence: &Fence, group: &Group, name: &str, script: &str) -> Result<Child, Trouble> {
    let path = fence.dir().join(name);
    fs::copy("/bin/sh", &path)?;
    let procs: Vec<_> = group.procs_files();
    let join: String = procs.iter().map(|file| format!("echo $$ > {}; ", file.display())).collect();
    let mut command = Command::new(&path);
    command.arg("-c").arg(format!("{join}{script}"));
    // SAFETY: the child makes one system call between fork and exec.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    Ok(command.spawn()?)
}

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

#[test]
fn root_processes_that_the_kernel_kills_for_their_memory_are_told() {
    pair("oom-kill", |draw, fence, label, healthy| {
        let (name, mib) = (format!("oom-{}", draw.word(6)), draw.between(12, 24));
        let group = fence.group(&draw.word(6))?;
        group.set_memory_limit(Some(mib << 20))?;
        let _ = group.set_swappiness(0); // where there is swap; v2 has no such file
        let wants = if healthy { mib / 4 } else { mib * 3 };
        // A string of this size, in a child with the program's name, again and again.
        let script = format!(
            "while :; do (x=$(head -c {} /dev/zero | tr '\\0' x); :); sleep 0.{}; done",
            wants << 20,
            draw.between(1, 3)
        );
        let program = Ends(program(fence, &group, &name, &script)?);
        std::thread::sleep(thresholds::SETTLE);
        let before = group.oom_kills()?;
        let look = look(label)?;
        let kills = group.oom_kills()? - before;
        drop(program);
        println!("{kills} kills in the window");
        // Kills come one after the other: of three, one falls into the window.
        let again = (!healthy && kills < 3).then(|| format!("only {kills} were killed"));
        let says = vec![group.path().to_owned(), "the kernel killed".to_owned()];
        let may: &[_] = if healthy { &[] } else { &["memory-limit"] };
        Ok((Made { rule: "oom-kill", healthy, may, ..Made::default() }, says, again, look))
    });
}

/// CPU time that the threads of a victim have spent in reading.
fn in_reads(victim: &Victim) -> f64 {
    let ledger = victim.ledger();
    let busy = (0..ledger.slots()).map(|slot| ledger.fact(slot, Fact::Busy).load(Ordering::Acquire));
    busy.sum::<u64>() as f64 * 1e-9
}

#[test]
fn root_agent_that_reads_statistics_files_all_day_is_a_risk() {
    pair("monitoring-agent", |draw, fence, label, healthy| {
        let comm = format!("agent-{}", draw.word(5));
        let statistics = draw.pick(&["/proc/vmstat", "/proc/interrupts", "/proc/stat", "/proc/softirqs"]);
        let plain = fence.dir().join("plain");
        fs::write(&plain, vec![7; 4096])?;
        let file = if healthy { plain } else { PathBuf::from(statistics) };
        let group = fence.group(&draw.word(6))?;
        let work = Work::ReadWhole { file, rest_us: draw.between(5, 40) };
        let victim = Victim::spawn(fence.spec(&group, &comm, draw.between(3, 5), work))?;
        victim.go();
        std::thread::sleep(thresholds::SETTLE);
        let (before, began) = (in_reads(&victim), Instant::now());
        let look = look(label)?;
        let used = (in_reads(&victim) - before) / began.elapsed().as_secs_f64();
        println!("{statistics}: {used:.2} of a CPU in reads");
        let says = vec![comm, format!("pid {}", victim.pid())];
        let cpu = Some(used * thresholds::WINDOW_S as f64);
        Ok((Made { rule: "monitoring-agent", healthy, cpu, ..Made::default() }, says, None, look))
    });
}

#[test]
fn root_a_connection_that_loses_segments_is_a_risk() {
    pair("retransmits", |draw, fence, label, healthy| {
        let per_mille = if healthy { 0 } else { draw.between(40, 150) as u32 };
        let (bytes, every_us) = (draw.between(200, 1400), draw.between(200, 600));
        let work = Work::Lossy { port: draw.between(20_000, 40_000) as u16, per_mille, bytes, every_us };
        let group = fence.group(&draw.word(6))?;
        let mut spec = fence.spec(&group, &format!("lossy-{}", draw.word(5)), 1, work);
        spec.network = Network::Own;
        let victim = Victim::spawn(spec)?;
        victim.go();
        std::thread::sleep(thresholds::SETTLE);
        let place = fs::read_link(format!("/proc/{}/ns/net", victim.pid()))?;
        let inode = place.to_string_lossy().trim_matches(|c: char| !c.is_ascii_digit()).to_owned();
        let before = retransmitted(victim.pid())?;
        let look = look(label)?;
        let again = retransmitted(victim.pid())? - before;
        println!("{per_mille} of 1000 segments lost: {again} were retransmitted in the window");
        let few = (!healthy && again < 60).then(|| format!("only {again} segments were retransmitted"));
        let says = vec![inode, "TCP segments were retransmitted".to_owned()];
        Ok((Made { rule: "retransmits", healthy, ..Made::default() }, says, few, look))
    });
}

/// Segments that its network namespace has retransmitted: `RetransSegs`, the 12th number of "Tcp:".
fn retransmitted(pid: u32) -> Result<u64, Trouble> {
    let text = fs::read_to_string(format!("/proc/{pid}/net/snmp"))?;
    let line = text.lines().filter(|line| line.starts_with("Tcp: ")).nth(1).ok_or("no second line of Tcp")?;
    Ok(line.split(' ').nth(12).ok_or("a short line of Tcp")?.parse()?)
}

#[test]
fn root_bpf_run_time_statistics_kept_on_are_a_risk() {
    pair("bpf-statistics", |draw, _, label, healthy| {
        // Another process's BPF program, which pays for the statistics.
        let pace = Duration::from_micros(draw.between(500, 2000));
        let _traffic = bpf::Filtered::begin(pace)?;
        let others = bpf::others_count();
        let held = (!healthy).then(bpf::statistics).transpose()?;
        let look = look(label)?;
        drop(held);
        let others = others || bpf::others_count();
        let again = others.then(|| "another process has the statistics on".to_owned());
        let says = vec!["BPF run time statistics".to_owned()];
        Ok((Made { rule: "leftover-debugging", healthy, ..Made::default() }, says, again, look))
    });
}

/// The shortest exit latency of a sleeping idle state on any CPU, in us.
fn quickest_us() -> Option<u64> {
    let below =
        |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let number =
        |path: &Path, file: &str| fs::read_to_string(path.join(file)).ok()?.trim().parse::<u64>().ok();
    let states = below("/sys/devices/system/cpu".into()).flat_map(|cpu| below(cpu.join("cpuidle")));
    let sleeps = |path: &PathBuf| {
        number(path, "disable") == Some(0)
            && fs::read_to_string(path.join("name")).is_ok_and(|name| name.trim() != "POLL")
    };
    states.filter(sleeps).filter_map(|path| number(&path, "latency")).filter(|us| *us > 0).min()
}

const DEVICE: &str = "/dev/cpu_dma_latency";
/// Value of the file without any request (PM_QOS_CPU_LATENCY_DEFAULT_VALUE).
const NO_WISH_US: i32 = 2_000_000_000;

/// The strictest request now.
fn wished() -> Result<i32, Trouble> {
    let mut bytes = [0; 4];
    fs::File::open(DEVICE)?.read_exact(&mut bytes)?;
    Ok(i32::from_ne_bytes(bytes))
}

#[test]
fn root_pm_qos_request_that_keeps_all_cpus_from_sleeping_is_a_risk() {
    let Some(quickest) = quickest_us().filter(|_| Path::new(DEVICE).exists()) else {
        let why = || Ok(Outcome::NotRun("there is no idle state, or no way to wish for none".to_owned()));
        return rounds::run(&"idle-policy", &crate::kept_in("risks"), |_| why());
    };
    pair("idle-policy", |draw, _, label, healthy| {
        let wish = if healthy { quickest + draw.between(1, 1000) } else { draw.between(0, quickest - 1) };
        let again = (wished()? != NO_WISH_US).then(|| "another process has a request".to_owned());
        let mut file = fs::OpenOptions::new().write(true).open(DEVICE)?;
        file.write_all(&i32::try_from(wish)?.to_ne_bytes())?;
        let look = look(label)?;
        drop(file);
        let says = vec![format!("({})", std::process::id()), format!("at {wish} us")];
        Ok((Made { rule: "idle-policy", healthy, ..Made::default() }, says, again, look))
    });
}
