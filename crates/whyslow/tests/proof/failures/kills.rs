//! A process that the kernel kills because of its memory, and that is started again and again; its twin needs less memory.

use std::time::{Duration, Instant};

use serde_json::Value;
use whyslow_faults::look::Look;
use whyslow_faults::programs::Programs;
use whyslow_faults::report_checks::{self, Verb};
use whyslow_faults::rounds::{self, Verdict};
use whyslow_faults::{Fence, Wrong, thresholds};

const RULE: &str = "oom-kill";

/// The first cause names the group whose processes were killed, the number of kills, the limit, and what filled it; for the twin there is
/// no such cause.
fn judge(look: &Look, group: &str, kills: f64) -> Result<(), Wrong> {
    report_checks::could_tell(&look.document, &[RULE])?;
    let causes: Vec<&Value> = report_checks::list(&look.document, "findings")?
        .iter()
        .filter(|found| found["kind"] == "cause")
        .collect();
    let told = causes.iter().find(|found| found["rule"] == RULE);
    let Some(found) = told else {
        return if kills > 0.0 { Err(Wrong::missed("no kill is reported")) } else { Ok(()) };
    };
    if kills == 0.0 {
        return Err(Wrong::accused(format!("no process was killed, and: {}", found["title"])));
    }
    if causes[0]["rule"] != RULE || found["victim"]["id"] != group {
        return Err(Wrong::accused(format!("not {group} first: {}", causes[0])));
    }
    let title = found["title"].as_str().unwrap_or_default();
    let count =
        title.strip_prefix("the kernel killed ").and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    // One kill more or less at each end of the window.
    let is_counted = count.is_some_and(|told| (told - kills).abs() <= (thresholds::EXACT * kills).max(2.0));
    let says = ["reached its memory limit of", "heap"];
    match is_counted && says.iter().all(|words| title.contains(words)) {
        true => Ok(()),
        false => Err(Wrong::inexact(format!("{kills:.1} were killed: {title}"))),
    }
}

fn cell(is_fault: bool) {
    let name = format!("kills{}", if is_fault { "" } else { "-twin" });
    rounds::run_judged(&name, &crate::kept_in("failures"), |draw, label| {
        let fence = Fence::enter()?;
        let group = fence.group(&draw.word(6))?;
        let limit = draw.between(48, 96) << 20;
        group.set_memory_limit(Some(limit))?;
        let needs = if is_fault { limit * 2 } else { limit / 4 };
        let rest = draw.between(1, 4) as f64 / 10.0;
        // The process rests, so that the kernel kills it a few times, not a hundred times, in the window.
        let takes = format!(
            "while :; do sleep {rest}; perl -e 'open(my $zeros, \"<\", \"/dev/zero\"); sysread($zeros, my $all, {needs}); sleep 1'; done"
        );
        println!("{}: a limit of {} MiB; {takes}", group.path(), limit >> 20);
        let _loop = Programs::of_script(&group, fence.dir(), 1, &takes)?;
        let until = Instant::now() + Duration::from_secs(10);
        while is_fault && group.oom_kills()? < 2 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        let (began, before) = (Instant::now(), group.oom_kills()?);
        let look = crate::look("failures", label, &["exam"])?;
        let (kills, took) = (group.oom_kills()? - before, began.elapsed());
        look.is_sound(Verb::Exam)?;
        fence.check_time()?;
        if is_fault && kills < 4 || !is_fault && kills > 0 {
            return Ok(Verdict::Again(format!("{kills} were killed")));
        }
        let in_window = kills as f64 * look.window.length().as_secs_f64() / took.as_secs_f64();
        Ok(judge(&look, group.path(), in_window).map_or_else(Verdict::Wrong, |()| Verdict::Passed))
    });
}

#[test]
fn root_processes_that_are_killed_at_their_limit_are_the_headline() {
    cell(true);
    cell(false);
}
