//! Whether a document about clients and services is right. No I/O: takes a document and the programs' own clocks, returns a verdict.

use serde_json::Value;
use whyslow_faults::{Wrong, report_checks};

/// Largest difference between a share and the programs' own clocks, as a part of the wall time.
const POINTS: f64 = 0.10;
/// Least reported share of the time behind a loop that serves other clients.
const PART: f64 = 0.4;
/// The same where no process is followed: with three others beside answers of 20 ms it was 0.37 to 0.41.
const PART_OF_HOST: f64 = 0.3;

/// The programs' own numbers.
#[derive(Debug)]
pub struct Expected {
    /// The loop, the service behind it, and other clients of the loop.
    pub front: String,
    pub back: String,
    pub others: String,
    pub waited_s: f64,
    pub acted_s: f64,
    /// The service behind the loop waits for a lock.
    pub is_locked: bool,
    /// The loop serves other clients meanwhile.
    pub has_others: bool,
}

/// Polls without an answer.
#[derive(Debug)]
pub struct Vain {
    pub to: String,
    pub waited_s: f64,
    /// The wait is for a connection, not for data.
    pub connects: bool,
}

/// A client in a document about the whole host.
#[derive(Debug)]
pub struct OfHost {
    pub client: String,
    pub front: String,
    pub back: String,
    pub others: String,
    pub window_s: f64,
    pub has_others: bool,
}

/// A client that has sent a request and has no answer yet.
#[derive(Debug)]
pub struct Hang {
    pub client: String,
    /// The process that the client sends its request to, and so on down to the service.
    pub relays: Vec<String>,
    pub service: String,
    /// The holder of the lock that the service waits for.
    pub holder: Option<String>,
    pub window_s: f64,
}

fn wall(document: &Value) -> Result<(f64, &[Value]), Wrong> {
    let wall = document["wall"]["wall_s"].as_f64().filter(|wall| *wall > 0.0).ok_or("no wall time")?;
    Ok((wall, document["wall"]["parts"].as_array().map_or(&[][..], Vec::as_slice)))
}

/// Time of the outermost parts for which `is` holds.
fn time(parts: &[Value], is: &dyn Fn(&Value) -> bool) -> f64 {
    let of = |part: &Value| match is(part) {
        true => part["time_s"].as_f64().unwrap_or(0.0),
        false => part["parts"].as_array().map_or(0.0, |inner| time(inner, is)),
    };
    parts.iter().map(of).sum()
}

fn time_of(parts: &[Value], who: &str) -> f64 {
    time(parts, &|part| part["who"].as_str() == Some(who))
}

/// Time in which the client itself was ready for a CPU: in this time it waits for no other process, whatever their clocks say.
fn without_cpu(parts: &[Value]) -> f64 {
    parts.iter().filter(|part| part["reason"] == "runnable").filter_map(|part| part["time_s"].as_f64()).sum()
}

fn near(what: &str, said: f64, clock: f64, wall: f64) -> Result<(), Wrong> {
    if (said - clock).abs() <= POINTS * wall {
        return Ok(());
    }
    let text = format!("{what}: {said:.3} s of {wall:.3}, by their own clock {clock:.3}");
    Err(if said <= POINTS * wall { Wrong::missed(text) } else { Wrong::inexact(text) })
}

/// Time of processes that cost no other task any time.
fn none(what: &str, said: f64, wall: f64) -> Result<(), Wrong> {
    match said <= POINTS * wall {
        true => Ok(()),
        false => Err(Wrong::accused(format!("{what}: {said:.3} s of {wall:.3}"))),
    }
}

/// The client waits for the loop, the loop waits for the service behind it, and neither waits for other clients.
pub fn of_client(document: &Value, expected: &Expected) -> Result<(), Wrong> {
    let (wall, parts) = wall(document)?;
    none("others", time_of(parts, &expected.others), wall)?;
    let own = without_cpu(parts);
    let at_most =
        |what: &str, said: f64, clock: f64| near(what, said.max(clock.min(said + own)), clock, wall);
    at_most("the loop", time_of(parts, &expected.front), expected.waited_s)?;
    // An answer that comes while the loop is awake ends no wait: among requests of other clients not all its waits are visible.
    let (back, clock) = (time_of(parts, &expected.back), expected.acted_s);
    let part = if expected.has_others { PART } else { 1.0 };
    at_most("the service behind it", back.max(back.min(clock) / part).min(back.max(clock)), clock)?;
    let least = expected.acted_s * PART / 2.0;
    match expected.is_locked && time_of(parts, "holder") < least {
        true => Err(format!("the holder of the lock has {:.3} s", time_of(parts, "holder")).into()),
        false => Ok(()),
    }
}

/// The same for a client that exists for longer than the window: its request is pending, so no part may say that it is without work.
pub fn of_attached(document: &Value, expected: &OfHost) -> Result<(), Wrong> {
    let (wall, parts) = wall(document)?;
    none("others", time_of(parts, &expected.others), wall)?;
    near("without work", time(parts, &|part| part["reason"] == "handed"), 0.0, wall)?;
    let own = without_cpu(parts);
    if own > 0.5 * wall {
        return Err(Wrong::inexact(format!("{own:.3} s of {wall:.3} without a CPU: it hardly runs")));
    }
    let least = if expected.has_others { PART } else { 1.0 - 2.0 * POINTS };
    for (who, of) in [("the loop", &expected.front), ("the service behind it", &expected.back)] {
        let told = time_of(parts, of);
        if told < (least * wall).min(wall - own) {
            return Err(format!("{who}: {told:.3} s of {wall:.3}").into());
        }
    }
    Ok(())
}

/// No client may be reported to have kept an idle loop waiting.
pub fn of_idle(document: &Value, others: &str) -> Result<(), Wrong> {
    let (wall, parts) = wall(document)?;
    // The loop may have had the CPU, or the end of a row may be missing.
    let chains = document["chains"].as_array().into_iter().flatten();
    let of_others = chains.filter(|chain| chain["hops"].to_string().contains(others));
    let told: f64 = of_others.filter_map(|chain| chain["time_s"].as_f64()).sum();
    none("a client that the loop waits for", told, wall)?;
    let idle = time(parts, &|part| part["reason"] == "handed");
    match idle < 0.5 * wall {
        true => Err(format!("{idle:.3} s of {wall:.3} without work").into()),
        false => Ok(()),
    }
}

/// The list must be present, and empty where there is no chain.
fn all_chains(document: &Value) -> Result<&[Value], Wrong> {
    report_checks::has_its_probes(document)?;
    Ok(document["chains"].as_array().map_or(&[][..], Vec::as_slice))
}

fn names(chain: &Value) -> Vec<&str> {
    chain["hops"].as_array().into_iter().flatten().filter_map(|hop| hop["who"].as_str()).collect()
}

fn seconds(chains: &[Value], is: impl Fn(&[&str]) -> bool) -> f64 {
    chains.iter().filter(|chain| is(&names(chain))).filter_map(|chain| chain["time_s"].as_f64()).sum()
}

/// The client waits nearly all the time: for the loop, which waits for the service behind it. The loop has not waited for clients.
pub fn of_host(document: &Value, expected: &OfHost) -> Result<(), Wrong> {
    let chains = all_chains(document)?;
    let begins = |names: &[&str], who: &str| names.first() == Some(&who);
    let told = seconds(chains, |names| begins(names, &expected.client) && names.contains(&&*expected.back));
    let least = expected.window_s * if expected.has_others { PART_OF_HOST } else { 1.0 - 2.0 * POINTS };
    let is_clients =
        |names: &[&str]| names.iter().any(|name| [&*expected.client, &*expected.others].contains(name));
    let services = [&*expected.front, &*expected.back];
    let turned = seconds(chains, |names| {
        services.iter().any(|service| begins(names, service)) && is_clients(&names[1..])
    });
    none("services that wait for clients", turned, expected.window_s)?;
    if told < least || told > expected.window_s * (1.0 + POINTS) {
        let what = format!("{told:.3} s behind the client of {:.1}", expected.window_s);
        return Err(if told > 0.0 { Wrong::inexact(what) } else { Wrong::missed(what) });
    }
    Ok(())
}

/// All its time belongs to the service, and to the lock holder where there is one.
pub fn of_hang(document: &Value, expected: &Hang) -> Result<(), Wrong> {
    let (wall, parts) = wall(document)?;
    near("without work", time(parts, &|part| part["reason"] == "handed"), 0.0, wall)?;
    let mut below = vec![parts];
    for who in expected.behind_client() {
        near(who, below.iter().map(|parts| time_of(parts, who)).sum(), wall, wall)?;
        below = below.into_iter().flat_map(|parts| parts_of(parts, who)).collect();
    }
    Ok(())
}

impl Hang {
    fn behind_client(&self) -> impl Iterator<Item = &str> {
        let all = self.relays.iter().chain([&self.service]).chain(&self.holder);
        all.map(String::as_str)
    }
}

/// The parts below the outermost parts of one process.
fn parts_of<'v>(parts: &'v [Value], who: &'v str) -> Box<dyn Iterator<Item = &'v [Value]> + 'v> {
    let inner = |part: &'v Value| part["parts"].as_array().map_or(&[][..], Vec::as_slice);
    Box::new(parts.iter().flat_map(move |part| match part["who"].as_str() == Some(who) {
        true => Box::new(std::iter::once(inner(part))),
        false => parts_of(inner(part), who),
    }))
}

/// The same on a whole host.
pub fn of_hang_on_host(document: &Value, expected: &Hang) -> Result<(), Wrong> {
    let mut way = vec![&*expected.client];
    way.extend(expected.behind_client());
    let chains = all_chains(document)?;
    let told = seconds(chains, |names| names.starts_with(&way));
    let others = seconds(chains, |names| names.first() == Some(&&*expected.client)) - told;
    none("behind the client, of others", others, expected.window_s)?;
    near("behind the client", told, expected.window_s, expected.window_s)
}

/// The client has nothing to do, or waits for data from an address, for which no process is to blame; and it has no chain.
pub fn of_answered(of_client: &Value, of_host: &Value, expected: &Hang) -> Result<(), Wrong> {
    let (wall, parts) = wall(of_client)?;
    let for_news = |part: &Value| {
        part["reason"] == "handed" || part["detail"]["peer"]["act"] == "send" && part["parts"].is_null()
    };
    of_nobody(of_host, expected)?;
    let named = expected.behind_client().map(|who| time_of(parts, who)).fold(0.0, f64::max);
    none("for a process", named, wall)?;
    near("for news", time(parts, &for_news), wall, wall)
}

/// On a whole host it has no chain, and no process waits for it.
pub fn of_nobody(of_host: &Value, expected: &Hang) -> Result<(), Wrong> {
    let told = seconds(all_chains(of_host)?, |names| names.contains(&&*expected.client));
    none("chains of the client", told, expected.window_s)
}

/// The processes wait for the next message, not for an answer.
pub fn of_news(document: &Value, names_of: &[String]) -> Result<(), Wrong> {
    let told = seconds(all_chains(document)?, |names| {
        names.iter().any(|name| names_of.iter().any(|one| one == name))
    });
    match told == 0.0 {
        true => Ok(()),
        false => Err(Wrong::accused(format!(
            "{told:.3} s are reported of processes that wait for the next message"
        ))),
    }
}

/// The address is reported, for the whole time.
pub fn of_vain(document: &Value, expected: &Vain) -> Result<(), Wrong> {
    let (wall, parts) = wall(document)?;
    let act = if expected.connects { "accept" } else { "send" };
    let is = |part: &Value| {
        let peer = &part["detail"]["peer"];
        peer["address"].as_str() == Some(&expected.to) && peer["act"] == act
    };
    near("in vain", time(parts, &is), expected.waited_s, wall)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use whyslow_faults::wrong::Sort;

    use super::*;

    fn part(who: &str, time_s: f64, parts: Value) -> Value {
        json!({"who": who, "reason": "poll", "time_s": time_s, "parts": parts})
    }

    fn document(parts: Value) -> Value {
        json!({"wall": {"wall_s": 1.0, "parts": parts}, "chains": []})
    }

    fn expected(is_locked: bool) -> Expected {
        let [front, back, others] = ["loop", "back", "fast"].map(str::to_owned);
        Expected { front, back, others, waited_s: 0.9, acted_s: 0.85, is_locked, has_others: false }
    }

    #[test]
    fn the_truth_passes_and_silence_and_accusations_do_not() {
        let held = part("back", 0.85, json!([part("holder", 0.8, json!([]))]));
        let truth = document(json!([part("", 0.9, json!([part("loop", 0.9, json!([held]))]))]));
        assert_eq!(of_client(&truth, &expected(true)), Ok(()));
        let free = document(json!([part("loop", 0.9, json!([part("back", 0.85, json!([]))]))]));
        assert!(of_client(&free, &expected(true)).is_err() && of_client(&free, &expected(false)).is_ok());
        let others = json!([part("back", 0.5, json!([])), part("fast", 0.4, json!([]))]);
        let sort = |document: &Value| of_client(document, &expected(false)).unwrap_err().sort;
        assert_eq!(sort(&document(json!([part("loop", 0.9, others)]))), Sort::False);
        assert_eq!(sort(&document(json!([part("loop", 0.4, json!([]))]))), Sort::Inexact);
        assert_eq!([sort(&document(json!([]))), sort(&json!({}))], [Sort::Missed; 2]);
    }

    #[test]
    fn an_attached_client_is_not_without_work_nor_without_a_cpu() {
        let [client, front, back, others] = ["asks", "loop", "back", "fast"].map(str::to_owned);
        let expected = OfHost { client, front, back, others, window_s: 1.0, has_others: false };
        let judged = |parts: Value| of_attached(&document(parts), &expected);
        let back = |time_s: f64| json!([part("back", time_s, json!([]))]);
        assert_eq!(judged(json!([part("loop", 0.95, back(0.9))])), Ok(()));
        assert!(judged(json!([part("loop", 0.95, back(0.3))])).is_err() && judged(json!([])).is_err());
        assert!(judged(json!([part("loop", 0.95, json!([part("fast", 0.9, back(0.9))]))])).is_err());
        for reason in ["handed", "runnable"] {
            assert!(judged(json!([{"reason": reason, "time_s": 1.0}])).is_err(), "{reason}");
        }
        assert!(of_attached(&json!({}), &expected).is_err());
    }

    #[test]
    fn on_a_whole_host_clients_have_chains_and_services_have_none() {
        let of = |way: &[&str], time_s: f64| {
            let hops: Vec<Value> = way.iter().map(|who| json!({"who": who})).collect();
            json!({"time_s": time_s, "hops": hops})
        };
        let [client, front, back, others] = ["asks", "loop", "back", "fast"].map(str::to_owned);
        let expected = OfHost { client, front, back, others, window_s: 2.0, has_others: false };
        let whole = of(&["asks", "loop", "back"], 1.9);
        let whole_document = |chains: Value| json!({"missing": [], "chains": chains});
        let judged = |chains: Value| of_host(&whole_document(chains), &expected);
        assert_eq!(judged(json!([whole, of(&["loop", "back"], 1.8)])), Ok(()));
        assert!(judged(json!([])).is_err() && of_host(&json!({}), &expected).is_err());
        assert!(judged(json!([of(&["asks", "loop"], 1.9)])).is_err(), "it ends at the loop");
        assert!(
            judged(json!([whole, of(&["back", "asks"], 1.0)])).is_err(),
            "a service waits for its client"
        );
        let pair = ["tells", "hears"].map(str::to_owned);
        let news = |chains: Value| of_news(&whole_document(chains), &pair);
        assert!(news(json!([whole])).is_ok() && news(json!([of(&["hears", "tells"], 0.2)])).is_err());
        assert!(of_news(&json!({}), &pair).is_err());
    }

    #[test]
    fn an_idle_loop_has_no_work_and_no_culprit() {
        let mut idle = document(json!([{"reason": "handed", "time_s": 0.9}]));
        assert_eq!(of_idle(&idle, "fast"), Ok(()));
        idle["chains"] = json!([{"time_s": 0.8, "hops": [{"who": "fast"}]}]);
        let sort = |document: &Value| of_idle(document, "fast").unwrap_err().sort;
        assert_eq!((sort(&idle), sort(&document(json!([])))), (Sort::False, Sort::Missed));
    }

    #[test]
    fn a_client_that_nobody_answers_waits_for_its_service_and_one_that_was_answered_does_not() {
        let hang = Hang {
            client: "asks".to_owned(),
            relays: vec!["hands".to_owned()],
            service: "serves".to_owned(),
            holder: Some("holds".to_owned()),
            window_s: 1.0,
        };
        let holder = || json!([part("holds", 1.0, json!([]))]);
        let hands = |inner: Value| json!([part("hands", 1.0, inner)]);
        let told = document(json!([part("", 1.0, hands(json!([part("serves", 1.0, holder())])))]));
        let silent = document(json!([{"reason": "handed", "time_s": 1.0}]));
        assert_eq!(of_hang(&told, &hang), Ok(()));
        let beside = document(hands(json!([part("serves", 1.0, json!([])), part("holds", 1.0, json!([]))])));
        let no_relay = document(json!([part("serves", 1.0, holder())]));
        let no_holder = document(hands(json!([part("serves", 1.0, json!([]))])));
        for wrong in [&silent, &beside, &no_relay, &no_holder, &json!({})] {
            assert!(of_hang(wrong, &hang).is_err(), "{wrong}");
        }
        let chains = |way: &[&str]| {
            let hops: Vec<Value> = way.iter().map(|who| json!({"who": who})).collect();
            json!({"missing": [], "chains": [{"time_s": 1.0, "hops": hops}]})
        };
        let none = json!({"missing": [], "chains": []});
        assert_eq!(of_hang_on_host(&chains(&["asks", "hands", "serves", "holds"]), &hang), Ok(()));
        let ways =
            [&["asks", "hands", "serves"][..], &["hands", "serves", "holds"], &["asks", "serves", "holds"]];
        for wrong in [&chains(ways[0]), &chains(ways[1]), &chains(ways[2]), &none, &json!({})] {
            assert!(of_hang_on_host(wrong, &hang).is_err(), "{wrong}");
        }
        assert_eq!(of_answered(&silent, &none, &hang), Ok(()));
        assert!(
            of_answered(&told, &none, &hang).is_err() && of_answered(&silent, &json!({}), &hang).is_err()
        );
        let sort = |client: &Value, host: &Value| of_answered(client, host, &hang).unwrap_err().sort;
        assert_eq!(sort(&silent, &chains(&["asks", "serves"])), Sort::False);
        assert_eq!((sort(&told, &none), sort(&document(json!([])), &none)), (Sort::False, Sort::Missed));
    }

    #[test]
    fn unanswered_wait_passes_only_with_the_right_act_and_full_time() {
        let vain = Vain { to: "127.0.0.1:53".to_owned(), waited_s: 0.8, connects: false };
        let to = |act: &str, time_s: f64| {
            let peer = json!({"peer": {"address": "127.0.0.1:53", "act": act}});
            document(json!([{"reason": "poll", "detail": peer, "time_s": time_s}]))
        };
        assert_eq!(of_vain(&to("send", 0.8), &vain), Ok(()));
        assert!(of_vain(&to("send", 0.5), &vain).is_err() && of_vain(&to("accept", 0.8), &vain).is_err());
        assert!(of_vain(&to("accept", 0.8), &Vain { connects: true, ..vain }).is_ok());
        assert!(
            of_vain(&document(json!([])), &Vain { to: String::new(), waited_s: 0.8, connects: false })
                .is_err()
        );
    }
}
