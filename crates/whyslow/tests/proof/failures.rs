//! Calls that fail for lack of a resource on the live kernel: space, inodes, open files, ports; each with a twin that has enough.
//!
//! Victim, rate and place are drawn; the victim itself counts its failures. The headline names it and the count. `WHYSLOW_SEED` repeats a
//! run. whyslow's documents are kept under `target/*/tmp/failures`.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use whyslow_faults::look::Look;
use whyslow_faults::report_checks::{self, Verb};
use whyslow_faults::rounds::{self, Trouble, Verdict};
use whyslow_faults::{Draw, Fence, Wrong, thresholds};

use crate::script::Script;
use crate::small::Small;

mod kills;

const WANTS: &str = include_str!("failures/wants.pl");
const RULE: &str = "failed-calls";
/// Least number of failures in the window.
const LEAST: u64 = 10;

/// A process that lacks the resource; its log has one byte for each failed call.
fn start(
    draw: &mut Draw,
    fence: &Fence,
    want: &Want,
    place: &Path,
    begin: &str,
) -> Result<(Script, Duration), Trouble> {
    let rest = Duration::from_millis(draw.between(5, 60));
    println!("{}: a rest of {rest:?}", want.what);
    let ms = rest.as_millis().to_string();
    let args = [want.what.as_ref(), ms.as_ref(), place.as_os_str()];
    let unshared: &[&str] = if want.alone { &["--net"] } else { &[] };
    Ok((Script::start(draw, fence, (WANTS, unshared, begin), &args)?, rest))
}

fn failed(wanting: &Script) -> u64 {
    std::fs::metadata(&wanting.log).map_or(0, |log| log.len())
}

/// "and its threads slept 4.2 s in all before they tried again": in seconds.
fn slept(title: &str) -> Option<f64> {
    let (_, rest) = title.split_once("its threads slept ")?;
    let mut words = rest.split(' ');
    let time: f64 = words.next()?.parse().ok()?;
    match words.next()? {
        "s" => Some(time),
        "ms" => Some(time / 1_000.0),
        _ => None,
    }
}

/// The first cause names this process, the number of its failed calls, and the time that it slept between them, `rest` s each time; for the
/// twin there is no such cause.
fn judge(look: &Look, wanting: &Script, rest: f64, failed: Option<f64>) -> Result<(), Wrong> {
    report_checks::could_tell(&look.document, &[RULE])?;
    let causes =
        report_checks::list(&look.document, "findings")?.iter().filter(|found| found["kind"] == "cause");
    let pid = wanting.pid().to_string();
    let is_its = |found: &&Value| found["rule"] == RULE || found["victim"]["id"] == pid.as_str();
    match (failed, causes.clone().next(), causes.clone().find(is_its)) {
        (None, _, None) => Ok(()),
        (None, _, Some(found)) => Err(Wrong::accused(format!("nothing failed, and: {}", found["title"]))),
        (Some(_), first, _) if first.is_none_or(|first| first["rule"] != RULE) => {
            Err(Wrong::missed(format!("the first cause is {first:?}")))
        }
        (Some(_), Some(first), _) if first["victim"]["id"] != pid.as_str() => {
            Err(Wrong::accused(format!("not {} ({pid}): {first}", wanting.name)))
        }
        (Some(failed), Some(first), _) => {
            let told = first["failed_calls"].as_f64().unwrap_or_default();
            let title = first["title"].as_str().unwrap_or_default();
            let (slept, rested) = (slept(title).unwrap_or_default(), failed * rest);
            match (told - failed).abs() <= thresholds::EXACT * failed {
                false => Err(Wrong::inexact(format!("{told} calls failed, by its own account {failed:.0}"))),
                true if (slept - rested).abs() > thresholds::EXACT * rested => {
                    Err(Wrong::inexact(format!("it rested {rested:.2} s, and: {title}")))
                }
                true => Ok(()),
            }
        }
        (Some(_), None, _) => Err(Wrong::missed("no cause")),
    }
}

/// The resource and its place; with too little of it, and with enough.
#[derive(Default)]
struct Want {
    what: &'static str,
    place: &'static str,
    /// Options of the small file system: fault, twin.
    mount: [&'static str; 2],
    /// First commands of the shell: fault, twin.
    begin: [&'static str; 2],
    /// Whether it needs a network namespace of its own.
    alone: bool,
}

impl Want {
    fn cell(&self, is_fault: bool) {
        let [mount, begin] = [self.mount, self.begin].map(|of| of[usize::from(!is_fault)]);
        let name = format!("want-{}{}", self.what, if is_fault { "" } else { "-twin" });
        rounds::run_judged(&name, &crate::kept_in("failures"), |draw, label| {
            let fence = Fence::enter()?;
            let small = Small::new(&fence, mount)?;
            let (wanting, rest) = start(draw, &fence, self, &small.0.join(self.place), begin)?;
            let until = Instant::now() + Duration::from_secs(10);
            while is_fault && failed(&wanting) == 0 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
            let (began, before) = (Instant::now(), failed(&wanting));
            let look = crate::look("failures", label, &["exam"])?;
            let (failed, took) = (failed(&wanting) - before, began.elapsed());
            look.is_sound(Verb::Exam)?;
            fence.check_time()?;
            if failed < LEAST && is_fault || failed > 0 && !is_fault {
                return Ok(Verdict::Again(format!("{failed} calls failed")));
            }
            let in_window = failed as f64 * look.window.length().as_secs_f64() / took.as_secs_f64();
            let judged = judge(&look, &wanting, rest.as_secs_f64(), is_fault.then_some(in_window));
            Ok(judged.map_or_else(Verdict::Wrong, |()| Verdict::Passed))
        });
    }

    /// A fault, and its twin.
    fn pair(&self) {
        self.cell(true);
        self.cell(false);
    }
}

const AMPLE: &str = "size=200m";

#[test]
fn root_a_full_file_system_is_the_headline() {
    Want { what: "room", place: "spool", mount: ["size=128k", AMPLE], ..Want::default() }.pair();
}

#[test]
fn root_a_file_system_without_inodes_is_the_headline() {
    Want { what: "inodes", place: "new", mount: ["size=4m,nr_inodes=16", AMPLE], ..Want::default() }.pair();
}

#[test]
fn root_a_process_that_may_open_no_more_files_is_the_headline() {
    let begin = ["ulimit -n 40", "ulimit -n 4000"];
    Want { what: "files", place: "-", mount: [AMPLE; 2], begin, ..Want::default() }.pair();
}

#[test]
fn root_local_ports_that_are_used_up_are_the_headline() {
    let begin = [
        "ip link set lo up; echo 20000 20019 > /proc/sys/net/ipv4/ip_local_port_range",
        "ip link set lo up; echo 20000 29999 > /proc/sys/net/ipv4/ip_local_port_range",
    ];
    Want { what: "ports", place: "-", mount: [AMPLE; 2], begin, alone: true }.pair();
}
