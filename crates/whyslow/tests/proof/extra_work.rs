//! Extra work of the kernel in a call, on the live kernel: rules of a packet filter, a long seccomp filter, copies of an overlay; calls
//! that fail; and delays of a call on an idle host: small writes that wait for acknowledgements, a shaper, a service that is down, dropped
//! SYNs. Each has a twin with a little of it: ten rules, a short filter, a file that was copied before, a hundred failing calls beside
//! thousands that succeed, a connection that sends at once, a shaper as fast as its device, a service that stays up.
//!
//! The victim itself measures how long a call takes without the extra work and with it. `WHYSLOW_SEED` repeats a run. whyslow's documents
//! are kept under `target/*/tmp/extra_work`.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use whyslow_faults::look::Look;
use whyslow_faults::report_checks::{self, Verb};
use whyslow_faults::rounds::{self, Trouble, Verdict};
use whyslow_faults::{Draw, Fence, Wrong, thresholds};

use crate::script::Script;

const WORKS: &str = include_str!("extra_work/works.pl");

/// Number of calls, and their seconds.
#[derive(Clone, Copy, Default)]
struct Calls {
    count: f64,
    seconds: f64,
}

/// The calls without the extra work, and the sums of the others so far.
fn calls(log: &Path) -> Option<[Calls; 2]> {
    let text = std::fs::read_to_string(log).ok()?;
    // The last line may be incomplete.
    let lines = text.rsplit_once('\n')?.0.lines();
    let mut all = lines.filter_map(|line| {
        let (count, seconds) = line.split_once(' ')?;
        Some(Calls { count: count.parse().ok()?, seconds: seconds.parse().ok()? })
    });
    let without = all.next()?;
    Some([without, all.next_back()?])
}

/// Rules, comparisons of a filter or MiB in a twin: every host has some.
const LITTLE: u64 = 10;

/// The extra work, the call that it slows down, and how much of it there is.
struct Work {
    what: &'static str,
    rule: &'static str,
    /// The culprit, as a stack shows it; "service": the process of the service.
    culprit: &'static str,
    size: (u64, u64),
    unshared: &'static [&'static str],
    begin: &'static str,
    /// The size is the size of the table of tracked connections.
    is_table: bool,
}

impl Work {
    fn cell(&self, is_fault: bool) {
        let name = format!("work-{}{}", self.what, if is_fault { "" } else { "-twin" });
        rounds::run_judged(&name, &crate::kept_in("extra_work"), |draw, label| {
            let fence = Fence::enter()?;
            let size = if is_fault { draw.between(self.size.0, self.size.1) } else { LITTLE };
            let _table = (self.is_table && is_fault).then(|| Table::of(size)).transpose()?;
            let script = self.start(draw, &fence, size)?;
            let until = Instant::now() + Duration::from_secs(20);
            let before = loop {
                match calls(&script.log) {
                    Some(calls) => break calls,
                    None if Instant::now() > until => {
                        return Ok(Verdict::Again("it made no call".to_owned()));
                    }
                    None => std::thread::sleep(Duration::from_millis(20)),
                }
            };
            let began = Instant::now();
            let look = crate::look("extra_work", label, &["exam"])?;
            let took = began.elapsed().as_secs_f64();
            let after = calls(&script.log).unwrap_or_default();
            look.is_sound(Verb::Exam)?;
            fence.check_time()?;
            let without = before[0].seconds / before[0].count.max(1.0);
            let (made, spent) = (after[1].count - before[1].count, after[1].seconds - before[1].seconds);
            let window = look.window.length().as_secs_f64();
            let lost = (spent - without * made) / took * window;
            println!(
                "{made} calls in {took:.2} s, {spent:.2} s in them, {without:.9} s each without; lost {lost:.2} s"
            );
            if is_fault && lost < thresholds::A_FAULT * window {
                return Ok(Verdict::Again(format!("{lost:.2} s lost")));
            }
            let judged = judge(&look, &script, self, is_fault.then_some(lost));
            Ok(judged.map_or_else(Verdict::Wrong, |()| Verdict::Passed))
        });
    }

    fn start(&self, draw: &mut Draw, fence: &Fence, size: u64) -> Result<Script, Trouble> {
        let place = fence.dir().join("work");
        std::fs::create_dir(&place)?;
        let begin = self.begin.replace("PLACE", &place.to_string_lossy());
        let args = [self.what.to_owned(), size.to_string(), place.to_string_lossy().into_owned()];
        Script::start(draw, fence, (WORKS, self.unshared, &begin), &args.each_ref().map(AsRef::as_ref))
    }

    /// A fault, and its twin.
    fn pair(&self) {
        self.cell(true);
        self.cell(false);
    }
}

/// "net:[4026531840]" without its frame.
fn netns_of(pid: u32) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
    Some(link.to_str()?.trim_start_matches("net:[").trim_end_matches(']').to_owned())
}

/// The first cause is this work in this process, with the right loss; or there is no such cause.
fn judge(look: &Look, script: &Script, work: &Work, lost: Option<f64>) -> Result<(), Wrong> {
    let Work { rule, culprit, .. } = work;
    report_checks::could_tell(&look.document, &[rule])?;
    let causes =
        report_checks::list(&look.document, "findings")?.iter().filter(|found| found["kind"] == "cause");
    let pid = script.pid().to_string();
    let is_its = |found: &&Value| found["rule"] == *rule || found["victim"]["id"] == pid.as_str();
    let Some(lost) = lost else {
        return match causes.clone().find(is_its) {
            Some(found) => Err(Wrong::accused(format!("nothing was on top, and: {}", found["title"]))),
            None => Ok(()),
        };
    };
    let Some(first) = causes.clone().next().filter(|found| found["rule"] == *rule) else {
        return Err(Wrong::missed(format!("the first cause is {:?}", causes.clone().next())));
    };
    let is_culprit = match *culprit {
        "conntrack" => netns_of(script.pid()).is_some_and(|inode| first["culprit"]["id"] == inode.as_str()),
        "service" => first["culprit"]["name"] == format!("{}-service", script.name),
        id => first["culprit"]["id"] == id,
    };
    if first["victim"]["id"] != pid.as_str() || !is_culprit {
        return Err(Wrong::accused(format!("not {} ({pid}) and {culprit}: {first}", script.name)));
    }
    let told = first["lost_s"].as_f64().unwrap_or_default();
    match (told - lost).abs() <= thresholds::EXACT * lost {
        true => Ok(()),
        false => Err(Wrong::inexact(format!("{told:.2} s, by its own clock {lost:.2} s"))),
    }
}

#[test]
fn root_rules_of_a_packet_filter_are_the_headline() {
    let (culprit, begin) = ("ipt_do_table", "ip link set lo up");
    Work { what: "rules", culprit, size: (2_000, 9_000), unshared: &["--net"], begin, ..EXTRA }.pair();
}

#[test]
fn root_a_long_seccomp_filter_is_the_headline() {
    Work { what: "seccomp", culprit: "__seccomp_filter", size: (1_500, 4_000), ..EXTRA }.pair();
}

#[test]
fn root_copies_of_an_overlay_are_the_headline() {
    let (culprit, begin) = ("ovl_copy_up_file", "mount -t tmpfs -o size=200m whyslow-test PLACE");
    Work { what: "layers", culprit, size: (16, 64), unshared: &["--mount"], begin, ..EXTRA }.pair();
}

/// The most frequent failing call is close(2) on a closed descriptor; here it is chmod(2) on a missing file. Perl prepares a longer list,
/// which takes part of the time.
#[test]
fn root_calls_that_fail_one_after_the_other_are_the_headline() {
    Work { what: "vain", rule: "vain-calls", culprit: "chmod", size: (1_000, 5_000), ..EXTRA }.pair();
}

/// A request in two small writes, answered in two writes.
#[test]
fn root_small_writes_that_wait_for_acknowledgements_are_the_headline() {
    Work { what: "writes", rule: "nagle", culprit: "nagle", size: (11, 40), ..EXTRA }.pair();
}

/// An answer of some tens of KiB, through 2 Mbit/s. A packet larger than a bucket of tokens is dropped: packets have the size of a
/// network's.
#[test]
fn root_packets_that_a_shaper_holds_are_the_headline() {
    let (culprit, begin) = ("lo", "ip link set lo mtu 1500 up");
    let work = Work { what: "shaper", rule: "send-queue", culprit, ..EXTRA };
    Work { size: (30, 90), unshared: &["--net"], begin, ..work }.pair();
}

/// The service ends after 0.15 s, again and again, and is started again after a while.
#[test]
fn root_a_service_that_is_away_is_the_headline() {
    let work = Work { what: "away", rule: "service-away", culprit: "service", ..EXTRA };
    Work { size: (100, 250), unshared: &["--net"], begin: "ip link set lo up", ..work }.pair();
}

/// Each network namespace has its own table of tracked connections, but the host sets its size; the host tracks no connections. A separate
/// process restores the size when this one ends, in whatever way.
struct Table(Child);

const TABLE: &str = "/proc/sys/net/netfilter/nf_conntrack_max";

impl Table {
    fn of(entries: u64) -> std::io::Result<Self> {
        let before = std::fs::read_to_string(TABLE)?;
        let tracked = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count")?;
        if tracked.trim() != "0" {
            return Err(std::io::Error::other(format!("this host tracks {} connections", tracked.trim())));
        }
        let puts_back = format!("cat > /dev/null; echo {} > {TABLE}", before.trim());
        let keeper =
            Command::new("sh").args(["-c", &puts_back]).stdin(Stdio::piped()).process_group(0).spawn()?;
        let table = Table(keeper);
        std::fs::write(TABLE, entries.to_string())?;
        Ok(table)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The kernel tracks its connections as soon as a rule requires it.
#[test]
fn root_a_full_table_of_tracked_connections_is_the_headline() {
    let begin = "ip link set lo up; iptables-legacy -A INPUT -m conntrack --ctstate INVALID -j DROP";
    let work = Work { what: "tracked", rule: "unanswered-connects", culprit: "conntrack", ..EXTRA };
    Work { size: (300, 900), unshared: &["--net"], begin, is_table: true, ..work }.pair();
}

#[test]
fn root_a_filter_that_drops_what_asks_for_a_connection_is_the_headline() {
    let work = Work { what: "dropped", rule: "unanswered-connects", culprit: "127.0.0.1:7780", ..EXTRA };
    Work { size: (11, 12), unshared: &["--net"], begin: "ip link set lo up", ..work }.pair();
}

const EXTRA: Work = Work {
    what: "",
    rule: "extra-work",
    culprit: "",
    size: (0, 0),
    unshared: &[],
    begin: "",
    is_table: false,
};
