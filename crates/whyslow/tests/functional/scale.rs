//! The cost of a rule grows with the host by at most n log n: a host with four times as many tasks, cgroups, CPUs and rows costs about five
//! times as much. The test measures CPU time of this thread within one run: other load on the machine changes little of it.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use whyslow::store;
use whyslow_analyze::{Evidence, rules};
use whyslow_faults::Draw;
use whyslow_model::Recording;

#[path = "../scale/host.rs"]
mod host;
#[path = "../scale/largest.rs"]
mod largest;

/// n log n gives 5; data that no longer fit in a cache cost up to twice as much; n squared gives 16.
const MOST: f64 = 11.0;
/// Smaller costs disappear in the cost of allocations.
const MEASURABLE: Duration = Duration::from_millis(20);
/// A measurement can be disturbed: the least of so many counts.
const TRIES: usize = 3;

fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` has room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The least cost of a rule on this host, with nothing cached from earlier questions.
fn cost(rule: &rules::Rule, rec: &Recording, tries: usize) -> Duration {
    let once = |_| {
        let ev = Evidence::of(rec);
        let before = cpu();
        let _ = (rule.check)(&ev);
        if let Some(ask) = rule.rules_out {
            let _ = ask(&ev);
        }
        cpu() - before
    };
    (0..tries).map(once).min().unwrap_or_default()
}

/// As `recording`, with all groups whose quota runs out below one group that also has a quota.
fn nested(size: host::Size) -> Recording {
    let mut rec = host::recording(size, 1);
    let groups = rec.tables.cgroups.as_mut().unwrap();
    let (first, others) = groups.split_first_mut().unwrap();
    let throttled =
        others.iter_mut().filter(|group| group.cpu.as_ref().is_some_and(|cpu| cpu.quota_ns.is_some()));
    for group in throttled {
        group.parent = first.id;
        first.cpu = group.cpu.clone();
    }
    if let Some(cpu) = &mut first.cpu {
        cpu.quota_ns = Some(u64::from(size.cpus) * cpu.period_ns / 2);
    }
    rec
}

#[test]
fn timed_quotas_below_one_quota() {
    let [small, large] = [8, 2].map(|n| nested(largest::LARGEST.part(n)));
    let rule = rules::ALL.iter().find(|rule| rule.id == "cpu-quota").unwrap();
    let [before, after] = [&small, &large].map(|rec| cost(rule, rec, TRIES));
    assert!(after.as_secs_f64() < MOST * before.as_secs_f64(), "{before:?}, then {after:?}");
    println!("{before:?}, then {after:?}");
}

#[test]
fn timed_no_rule_costs_more_than_n_log_n() {
    let [small, large] = [8, 2].map(|n| host::recording(largest::LARGEST.part(n), 1));
    let mut bad = Vec::new();
    for rule in rules::ALL {
        let grows = |tries| {
            let after = cost(rule, &large, tries);
            let before = cost(rule, &small, TRIES);
            (after > MEASURABLE).then(|| after.as_secs_f64() / before.as_secs_f64().max(1e-9))
        };
        let worse = |ratio: Option<f64>| ratio.filter(|ratio| *ratio > MOST);
        if let Some(ratio) = worse(grows(1)).and_then(|_| worse(grows(TRIES))) {
            bad.push(format!("{}: {ratio:.1} times the CPU time on four times the host", rule.id));
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}

/// Set in the process that reports on the largest host: the path of its recording.
const LARGEST: &str = "WHYSLOW_TEST_LARGEST";
/// Memory that a report may take, beside the program itself, its libraries and stacks.
const MOST_BYTES: u64 = 1 << 30;
const PROGRAM_BYTES: u64 = 128 << 20;

/// Text and JSON of the largest host, in yardsticks of CPU time: measured were 3.1 to 4.6 beside other load on both CPUs, 4.9 to 5.9 on a
/// day on which the yardstick took a sixth more or less from one time to the next, 5.9 to 6.5 for the same code on another day. Not in
/// seconds, of which 5 are the goal: other load on the machine stretches both by a third and more.
const MOST_YARDSTICKS: f64 = 7.0;

/// Work like that of a report, which does not change with the program: lookups, sorting, many small allocations.
fn yardstick() -> Duration {
    let before = cpu();
    let mut draw = Draw::with(7);
    let numbers: Vec<u64> = (0..1_000_000).map(|_| draw.any()).collect();
    let mut groups: HashMap<u64, Vec<u64>> = HashMap::new();
    for number in &numbers {
        groups.entry(number % 300_000).or_default().push(*number);
    }
    let names: BTreeMap<u64, String> = numbers.iter().map(|number| (*number, number.to_string())).collect();
    let found = groups.values().flatten().filter_map(|number| names.get(number));
    assert!(found.map(String::len).sum::<usize>() > numbers.len());
    drop((groups, names));
    cpu() - before
}

/// For the next test, in a process of its own.
#[test]
#[ignore = "part of another test, in a process of its own"]
fn it_tells_of_the_largest_host() {
    let path = std::env::var_os(LARGEST).unwrap();
    let first = yardstick();
    let before = cpu();
    let document = whyslow_analyze::examine(&store::open(path.as_ref()).unwrap());
    let text = whyslow_report::text(&document, &whyslow_report::Style::default());
    println!("\n{} bytes of text, {} of JSON", text.len(), whyslow_report::json(&document).len());
    let took = cpu() - before;
    let yard = first.max(yardstick());
    println!(
        "{took:?}, and {yard:?} for a yardstick\nyardsticks: {:.2}",
        took.as_secs_f64() / yard.as_secs_f64()
    );
}

#[test]
fn cost_of_the_largest_host_it_tells_within_a_gib_and_seven_yardsticks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("largest.why");
    store::save(&host::recording(largest::LARGEST, 1), &path).unwrap();
    let mut reported = Vec::new();
    for _ in 0..2 * TRIES {
        let said = largest_is_reported(&path);
        // For measurements: seconds of CPU time.
        println!("{said}");
        let yardsticks = said.lines().find_map(|line| line.strip_prefix("yardsticks: "));
        if yardsticks.unwrap().parse::<f64>().unwrap() < MOST_YARDSTICKS {
            return;
        }
        reported.push(said);
    }
    panic!("more than {MOST_YARDSTICKS} yardsticks each time: {reported:#?}");
}

/// Output of a process that reports on the largest host within its limit of memory.
fn largest_is_reported(path: &Path) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "scale::it_tells_of_the_largest_host", "--ignored", "--nocapture"])
        .env(LARGEST, path);
    let most = MOST_BYTES + PROGRAM_BYTES;
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: a plain system call on a local value.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_AS, &raw const limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains(" of JSON"), "{:?}: {said}{wrong}", output.status);
    said
}
