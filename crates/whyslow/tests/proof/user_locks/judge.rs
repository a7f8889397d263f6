//! Whether the document about a cell is right. No I/O: takes the scenario and the document, returns a verdict (`stand_ins`).

use serde_json::Value;
use whyslow_faults::rounds::Verdict;
use whyslow_faults::user_lock::{Held, Meanwhile, Plan, Shape};
use whyslow_faults::{Span, Wrong};

/// Largest difference between a share and the program's own clock.
const SLACK: f64 = 0.10;
/// A smaller share of the wall time in the wait is too little to judge.
const WORTH: f64 = 0.4;

/// A program that was made, and the document about it.
pub struct Made {
    pub plan: Plan,
    /// Another program beside it: one that waits.
    pub beside: Option<Plan>,
    /// The wait of its first thread, by its own clock; `None`: it has not returned.
    pub waited: Option<Span>,
    pub document: Value,
}

pub fn judge(made: &Made) -> Verdict {
    let judged = match made.plan.shape {
        Shape::Hold(_, does) if made.plan.lasts => held_on_host(made, &made.plan, does),
        Shape::Free(..) if made.plan.lasts => free_on_host(made),
        Shape::Hold(held, does) => holder(made, held, does),
        Shape::Parent(_, does) => {
            below(made, &["child"], |name| made.plan.names[1..].iter().any(|known| known == name), does)
        }
        Shape::Cycle(_) => cycle(made),
        Shape::Idle(_) | Shape::Free(..) => idle(made),
    };
    let tell = |what| format!("{what}\n{:?}\n{:#}", made.plan, told(made));
    judged.unwrap_or_else(|wrong| Verdict::Wrong(wrong.told(tell)))
}

fn told(made: &Made) -> Value {
    let part = |name: &str| made.document[name].clone();
    serde_json::json!({ "wall": part("wall"), "chains": part("chains") })
}

fn parts(value: &Value) -> &[Value] {
    value["parts"].as_array().map_or(&[], Vec::as_slice)
}

fn holder(made: &Made, held: Held, does: Meanwhile) -> Result<Verdict, Wrong> {
    let reason = match held {
        Held::Mutex => "futex",
        Held::Join => "thread",
        _ => "file-lock",
    };
    below(made, &[reason], |name| name == made.plan.names[1], does)
}

/// The words for what the holder does.
fn deeds(does: Meanwhile) -> &'static [&'static str] {
    match does {
        Meanwhile::Sleeps => &["timer", "sleep"],
        Meanwhile::Computes => &["running", "runnable"],
        Meanwhile::Stopped => &["stopped"],
        Meanwhile::Traced => &["traced"],
    }
}

/// Checks that the parts below the waits for these reasons name one of these tasks with this action, for as long as the wait.
fn below(
    made: &Made,
    reasons: &[&str],
    is_one: impl Fn(&str) -> bool,
    does: Meanwhile,
) -> Result<Verdict, Wrong> {
    let wall = made.document["wall"]["wall_s"].as_f64().unwrap_or(0.0);
    let Some(waited) = made.waited.filter(|_| wall > 0.0) else { return Err("no wall time".into()) };
    let truth = waited.length().as_secs_f64() / wall;
    if truth < WORTH {
        return Ok(Verdict::Again(format!("it waited for {truth:.2} of its time only")));
    }
    let is_wait = |part: &&Value| part["reason"].as_str().is_some_and(|reason| reasons.contains(&reason));
    let waits = parts(&made.document["wall"]).iter().filter(is_wait);
    let of_them = waits.flat_map(parts).filter(|part| part["who"].as_str().is_some_and(&is_one));
    let right =
        of_them.filter(|part| part["reason"].as_str().is_some_and(|word| deeds(does).contains(&word)));
    let share = right.filter_map(|part| part["time_s"].as_f64()).sum::<f64>() / wall;
    let hidden = hidden(&made.document["wall"]) / wall;
    match share {
        share if (share - truth).abs() <= SLACK => Ok(Verdict::Passed),
        share if share < truth && (share + hidden - truth).abs() <= SLACK => {
            Ok(Verdict::Again(format!("of {hidden:.2} of its time the host hid the end from tracing")))
        }
        share => {
            let what = format!("{does:?} for {share:.2} of the wall time, by its own clock {truth:.2}");
            Err(if share > SLACK { Wrong::inexact(what) } else { Wrong::missed(what) })
        }
    }
}

/// Waits whose waker whyslow did not see: a host may hide a few tasks from tracing.
fn hidden(wall: &Value) -> f64 {
    let is_unseen = |part: &&Value| part["detail"]["thing"] == "waker-not-seen";
    let all = parts(wall).iter().flat_map(parts).filter(is_unseen);
    all.filter_map(|part| part["time_s"].as_f64()).sum()
}

/// Share of the window that must be reported: sleeps are rows of their own, and the task runs between two of them.
const MOST_OF_IT: f64 = 0.85;

/// Chains of a task that waits for something other than a CPU: (the next task, its action, the time).
fn chains_of<'d>(made: &'d Made, who: &str) -> Vec<(&'d str, &'d str, f64)> {
    let of = |chain: &'d Value| {
        let waits = |hops: &&Vec<Value>| hops[0]["who"] == *who && hops[0]["reason"] != "runnable";
        let hops = chain["hops"].as_array().filter(waits)?;
        let word = |field: &str| hops.get(1).and_then(|hop| hop[field].as_str()).unwrap_or_default();
        Some((word("who"), word("reason"), chain["time_s"].as_f64().unwrap_or(0.0)))
    };
    made.document["chains"].as_array().into_iter().flatten().filter_map(of).collect()
}

/// For nearly all of the window the task waited for the holder, which did this, and for no other task.
fn held_on_host(made: &Made, plan: &Plan, does: Meanwhile) -> Result<Verdict, Wrong> {
    let Some(window) = made.document["window_s"].as_f64() else { return Err("no window".into()) };
    let chains = chains_of(made, &plan.names[0]);
    let right = |(who, did, _): &&(&str, &str, f64)| *who == plan.names[1] && deeds(does).contains(did);
    let (right, wrong): (Vec<_>, Vec<_>) = chains.iter().partition(right);
    let sum = |all: &[&(&str, &str, f64)]| all.iter().map(|(.., lost)| lost).sum::<f64>() / window;
    let (right, wrong) = (sum(&right), sum(&wrong));
    let what = || format!("{does:?} for {right:.2} of the window, others for {wrong:.2}: {chains:?}");
    if wrong > SLACK {
        return Err(Wrong::accused(what()));
    }
    if !(MOST_OF_IT..=1.0 + SLACK).contains(&right) {
        return Err(if right > SLACK { Wrong::inexact(what()) } else { Wrong::missed(what()) });
    }
    cause_of_wait(made, plan, does, window).map(|()| Verdict::Passed)
}

/// The process that holds the lock is the cause, with the cost of that; it is in the same tree, and its computing there may be a separate
/// matter.
fn cause_of_wait(made: &Made, plan: &Plan, does: Meanwhile, window: f64) -> Result<(), Wrong> {
    let causes = made.document["findings"].as_array().into_iter().flatten();
    let mut causes = causes.filter(|finding| finding["kind"] == "cause" && finding["rule"] == "held-up");
    let ends = |finding: &Value| {
        let hops = finding["chain"].as_array().map_or(&[][..], Vec::as_slice);
        let who = |hop: Option<&Value>| hop.and_then(|hop| hop["who"].as_str()).map(str::to_owned);
        [who(hops.first()), who(hops.last())]
    };
    let its = causes.find(|finding| ends(finding)[0].as_ref() == Some(&plan.names[0]));
    match its {
        None if does == Meanwhile::Computes => Ok(()),
        None => Err("no cause".into()),
        Some(cause) => {
            let lost = cause["lost_s"].as_f64().unwrap_or(0.0) / window;
            // Behind a stopped task, the chain may say that no process continued it.
            let hops = cause["chain"].as_array().map_or(&[][..], Vec::as_slice);
            let last = hops.iter().rev().filter_map(|hop| hop["who"].as_str()).find(|who| !who.is_empty());
            let is_right = last == Some(&*plan.names[1]);
            let is_whole = (MOST_OF_IT..=1.0 + SLACK).contains(&lost);
            match (is_right, is_whole) {
                (true, true) => Ok(()),
                (true, false) => Err(Wrong::inexact(format!("not its loss: {cause:#}"))),
                (false, _) => Err(Wrong::accused(format!("not the holder: {cause:#}"))),
            }
        }
    }
}

/// A document about a free lock, beside another task that waits: no task that does not wait may be reported as waiting.
fn free_on_host(made: &Made) -> Result<Verdict, Wrong> {
    let Some((beside, Shape::Hold(_, does))) = made.beside.as_ref().map(|plan| (plan, plan.shape)) else {
        return Err("no task waits beside it".into());
    };
    let chains = made.plan.names.iter().flat_map(|name| chains_of(made, name));
    let ours = |finding: &&Value| {
        finding["rule"] == "held-up" && made.plan.names.iter().any(|name| finding.to_string().contains(name))
    };
    if let Some(blame) = made.document["findings"].as_array().into_iter().flatten().find(ours) {
        return Err(Wrong::accused(format!("tasks that wait for no other task are held up: {blame:#}")));
    }
    let lost = chains.map(|(.., lost)| lost).sum::<f64>();
    if lost > SLACK {
        return Err(Wrong::accused(format!("tasks that wait for no other task have chains of {lost:.2} s")));
    }
    held_on_host(made, beside, does)
}

/// A chain that passes through all of them and back is a deadlock.
fn cycle(made: &Made) -> Result<Verdict, Wrong> {
    let chains = made.document["chains"].as_array().map_or(&[][..], Vec::as_slice);
    let is_deadlock = |chain: &&Value| {
        chain["notes"].as_array().is_some_and(|notes| notes.iter().any(|note| note == "deadlock"))
    };
    let names = |chain: &Value| -> Vec<String> {
        let hops = chain["hops"].as_array().into_iter().flatten();
        hops.filter_map(|hop| hop["who"].as_str()).map(str::to_owned).collect()
    };
    let n = made.plan.names.len();
    let whole = |names: Vec<String>| {
        let first = names.first().and_then(|first| made.plan.names.iter().position(|name| name == first));
        let Some(first) = first.filter(|_| names.len() == n + 1) else { return false };
        names.iter().enumerate().all(|(at, name)| *name == made.plan.names[(first + at) % n])
    };
    match chains.iter().filter(is_deadlock).map(names).any(whole) {
        true => Ok(Verdict::Passed),
        false => Err("no deadlock of all of them".into()),
    }
}

/// No task may be reported as a lock holder, and none as deadlocked.
fn idle(made: &Made) -> Result<Verdict, Wrong> {
    let Some(wall) = made.document["wall"]["wall_s"].as_f64().filter(|wall| *wall > 0.0) else {
        return Err("no wall time".into());
    };
    let ours = |who: &Value| who.as_str().is_some_and(|who| made.plan.names.iter().any(|name| name == who));
    let blames = |chain: &&Value| {
        let hops = chain["hops"].as_array().map_or(&[][..], Vec::as_slice);
        hops.iter().skip(1).any(|hop| ours(&hop["who"]))
            || chain["notes"].as_array().is_some_and(|notes| notes.iter().any(|note| note == "deadlock"))
    };
    let blame = made.document["chains"].as_array().into_iter().flatten().find(blames);
    if let Some(chain) = blame.filter(|chain| chain["hops"][0]["reason"] != "runnable") {
        return Err(Wrong::accused(format!("it is blamed: {chain:#}")));
    }
    // Its clock also counts the time until it got a CPU after each sleep.
    let is_sleep = |part: &&Value| part["reason"] == "timer" || part["reason"] == "runnable";
    let slept = parts(&made.document["wall"]).iter().filter(is_sleep);
    let slept = slept.filter_map(|part| part["time_s"].as_f64()).sum::<f64>() / wall;
    let truth = made.waited.map_or(0.0, |waited| waited.length().as_secs_f64()) / wall;
    if (slept - truth).abs() > SLACK {
        let what = format!("its own sleep for {slept:.2} of the wall time, by its own clock {truth:.2}");
        return Err(Wrong::inexact(what));
    }
    Ok(Verdict::Passed)
}
