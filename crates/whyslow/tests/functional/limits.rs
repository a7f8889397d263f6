//! Limits on whyslow itself: the kernel does not kill it, it ends as documented, and names the limits; without limits it names none.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use whyslow_faults::cgroup::Group;
use whyslow_faults::draw::Draw;
use whyslow_faults::fence::Fence;
use whyslow_faults::spec::Work;
use whyslow_faults::{Victim, rounds, thresholds};

const MIB: u64 = 1 << 20;
const PERIOD: Duration = Duration::from_millis(100);
/// CPU time of a whole run under a quota, divided by that without one: most of it loads the probes. With a tenth of a CPU an answer takes
/// ten times as long in any case: whyslow cannot leave out the remaining work.
const AS_MUCH: f64 = 1.5;

/// Run whyslow in this cgroup. A shell joins the cgroup and executes whyslow: the group is charged for whyslow only.
fn whyslow_in(group: &Group, args: &[&str]) -> Output {
    let enter: String =
        group.procs_files().iter().map(|file| format!("echo $$ > {}\n", file.display())).collect();
    let script = format!("{enter}exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-e", "-c", &script]).arg(whyslow_faults::program!()).args(args).stdin(Stdio::null());
    command.output().unwrap()
}

fn document(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().rfind(|line| line.starts_with('{')).unwrap_or(&text);
    let said = String::from_utf8_lossy(&output.stderr);
    let document = serde_json::from_str(if text.starts_with('{') { &text } else { last })
        .unwrap_or_else(|err| panic!("{err}: {text} {said} {:?}", output.status));
    whyslow_faults::story::must_hold(&document);
    document
}

/// Texts of the document about whyslow's own limits.
fn own_limits(document: &Value) -> Vec<String> {
    let all = document["missing"].as_array().unwrap().iter();
    let texts = all.map(|note| note["text"].as_str().unwrap().to_owned());
    texts.filter(|text| text.contains("whyslow itself runs under")).collect()
}

fn exam_and_run() -> [(&'static str, Vec<&'static str>, [i32; 2]); 2] {
    [
        ("exam", vec!["exam", "--for", "700ms", "--json"], [0, 1]),
        ("run", vec!["run", "--json", "--", "sh", "-c", "sleep 0.3; exit 7"], [7, 7]),
    ]
}

/// The peak of a program's caller stays with the process that executes the program (getrusage(2), ru_maxrss).
#[test]
fn root_the_memory_of_its_caller_is_not_told_as_its_own() {
    let _fence = Fence::enter().unwrap();
    let callers = vec![1_u8; 400 * MIB as usize];
    let mut whyslow = Command::new(whyslow_faults::program!());
    let output = whyslow.args(["--for", "300ms", "--json"]).stdin(Stdio::null()).output().unwrap();
    std::hint::black_box(&callers);
    let peak = document(&output)["own_cost"]["rss_bytes"].as_u64().unwrap();
    assert!((MIB..300 * MIB).contains(&peak), "{} MiB", peak / MIB);
}

#[test]
fn root_under_a_memory_limit_it_lives_and_names_it() {
    let fence = Fence::enter().unwrap();
    let mut draw = Draw::of_run("own-memory-limit", 0);
    let mib = draw.between(64, 110);
    let limited = fence.group("small").unwrap();
    limited.set_memory_limit(Some(mib * MIB)).unwrap();
    for (verb, args, expected) in exam_and_run() {
        let output = whyslow_in(&limited, &args);
        let status = output.status.code();
        let seen = format!("seed {:#x}, {mib} MiB, {verb}: {status:?}", draw.seed());
        assert!(status.is_some_and(|status| expected.contains(&status)), "{seen}: {output:?}");
        let said = own_limits(&document(&output));
        let named = format!("a memory limit of {mib} MiB in cgroup ");
        let part = said.iter().find(|text| text.starts_with("a part of the tables was skipped"));
        assert!(part.is_some_and(|text| text.contains(&named)), "{seen}: {said:?}");
        assert!(part.is_some_and(|text| text.contains(limited.path())), "{seen}: {said:?}");
    }
}

#[test]
fn root_under_a_limit_that_nothing_fits_in_it_says_so_and_runs_nothing() {
    let fence = Fence::enter().unwrap();
    let limited = fence.group("tiny").unwrap();
    let mib = Draw::of_run("own-tiny-limit", 0).between(8, 30);
    limited.set_memory_limit(Some(mib * MIB)).unwrap();
    let ran = fence.dir().join("ran");
    let touch = format!("touch {}", ran.display());
    let verbs = [
        (vec!["exam", "--for", "700ms", "--json"], 2),
        (vec!["run", "--json", "--", "sh", "-c", &touch], 125),
    ];
    for (args, status) in verbs {
        let output = whyslow_in(&limited, &args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{mib} MiB: {said}");
        assert!(said.contains(limited.path()) && said.contains("needs at least"), "{mib} MiB: {said}");
    }
    assert!(!ran.exists(), "the command was not started");
}

/// A finished run holds memory until the kernel's workers have freed its maps; the same holds for other processes that end meanwhile.
#[test]
fn root_exam_waits_for_memory_of_a_process_that_ends() {
    const ENDS_AFTER: Duration = Duration::from_millis(700);
    let fence = Fence::enter().unwrap();
    let limited = fence.group("full").unwrap();
    let mib = Draw::of_run("own-full-limit", 0).between(64, 90);
    limited.set_memory_limit(Some(mib * MIB)).unwrap();
    let work = Work::Touch { bytes: (mib - 24) * MIB, burst_us: 1000, random: false };
    let mut holder = Victim::spawn(fence.spec(&limited, "holder", 1, work)).unwrap();
    holder.go();
    holder.warm().unwrap();
    let exam = || whyslow_in(&limited, &["exam", "--for", "300ms", "--json"]);
    let refused = exam();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{mib} MiB, mostly used by another process: {said}");
    assert!(said.contains("needs at least"), "{said}");
    let asked = Instant::now();
    let ends = std::thread::spawn(move || {
        std::thread::sleep(ENDS_AFTER);
        drop(holder);
    });
    let output = exam();
    let (took, said) = (asked.elapsed(), String::from_utf8_lossy(&output.stderr));
    ends.join().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{mib} MiB: {:?} {said}", output.status);
    assert!(took >= ENDS_AFTER, "{took:?}");
    assert!(own_limits(&document(&output)).iter().any(|text| text.contains(limited.path())));
}

#[test]
fn root_under_a_cpu_quota_it_names_it_and_sheds_what_few_ask_for() {
    let fence = Fence::enter().unwrap();
    let limited = fence.group("slow").unwrap();
    let percent = Draw::of_run("own-cpu-quota", 0).between(10, 40);
    for (verb, args, expected) in exam_and_run() {
        // The time of a run depends on the machine: measure one without a quota.
        limited.set_quota(None).unwrap();
        let before = limited.cpu_used().unwrap();
        whyslow_in(&limited, &args);
        let free = limited.cpu_used().unwrap() - before;
        limited.set_quota(Some((PERIOD * u32::try_from(percent).unwrap() / 100, PERIOD))).unwrap();
        let (asked, before) = (Instant::now(), limited.cpu_used().unwrap());
        let output = whyslow_in(&limited, &args);
        let (took, used) = (asked.elapsed(), limited.cpu_used().unwrap() - before);
        assert!(output.status.code().is_some_and(|status| expected.contains(&status)), "{verb}: {output:?}");
        let document = document(&output);
        let window = Duration::from_secs_f64(document["window_s"].as_f64().unwrap());
        let said = format!(
            "{verb} under a quota of {percent} %: {took:.1?} and {used:.1?} of CPU for {window:.1?}, {free:.1?} without"
        );
        rounds::say(&said);
        assert!(used <= free.mul_f64(AS_MUCH), "{said}");
        // Its CPU time under the quota, plus the bar for a sick host.
        let within =
            used * 100 / u32::try_from(percent).unwrap() + thresholds::patient(thresholds::ANSWER_WITHIN);
        assert!(took <= window + within, "{said}, not {within:?} more");
        let said = own_limits(&document);
        let named = format!("a CPU quota of {percent} % of a CPU in cgroup ");
        for what in ["CPU speed", "IRQ latency", "a part of the tables"] {
            let note = said.iter().find(|text| text.starts_with(what));
            let is_named = note.is_some_and(|text| text.contains(&named) && text.contains(limited.path()));
            assert!(is_named, "{percent} %, {verb}, {what}: {said:?}");
        }
    }
    let doctor = whyslow_in(&limited, &["doctor"]);
    let words: Vec<_> =
        String::from_utf8_lossy(&doctor.stdout).split_whitespace().map(str::to_owned).collect();
    assert!(words.join(" ").contains(&format!("CPU quota of {percent} % of a CPU in cgroup")), "{doctor:?}");
}

#[test]
fn root_without_a_limit_of_its_own_it_names_none() {
    let fence = Fence::enter().unwrap();
    let free = fence.group("free").unwrap();
    for (verb, args, expected) in exam_and_run() {
        let output = whyslow_in(&free, &args);
        assert!(output.status.code().is_some_and(|status| expected.contains(&status)), "{verb}: {output:?}");
        let document = document(&output);
        assert_eq!(own_limits(&document), Vec::<String>::new(), "{verb}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("whyslow itself"), "{verb}: {said}");
    }
}
