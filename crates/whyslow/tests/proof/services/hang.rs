//! Requests that were made before anybody looked and are answered after it: nothing ends these waits in the window.

use serde_json::Value;
use whyslow_faults::{Draw, Fence, rounds};

use super::judge::{self, Hang};
use super::{Services, WINDOW_S, perl, whyslow};

const HANG: &str = include_str!("hang.pl");

/// What was started, what is true of it, and what was drawn.
struct Started {
    services: Services,
    expected: Hang,
    what: String,
}

/// Loops between the client and the service: each with its name, how it is asked, how it waits, and how often it looks at the watch.
fn relays(draw: &mut Draw, most: u64, unix: bool) -> Vec<[String; 4]> {
    let relay = |draw: &mut Draw| {
        let wire = if unix && draw.one_in(2) { "unix" } else { "tcp" };
        let tick = format!("0.{:03}", draw.between(30, 400));
        [format!("relay-{}", draw.word(5)), wire.to_owned(), draw.pick(&["select", "epoll"]).to_owned(), tick]
    };
    let count = if draw.one_in(4) { 0 } else { draw.between(most.min(1), most) };
    (0..count).map(|_| relay(draw)).collect()
}

fn start(
    fence: &Fence,
    draw: &mut Draw,
    acts: &[&'static str],
    unix: bool,
    relays: &[[String; 4]],
) -> Started {
    let [client, service, holder] =
        ["asks", "serves", "holds"].map(|name| format!("{name}-{}", draw.word(5)));
    let (act, way) = (draw.pick(acts), draw.pick(&["read", "select", "looks=0.05"]));
    let (folder, wire) = (fence.dir().display().to_string(), if unix { "unix" } else { "tcp" });
    let [act_word, way_word, wire_word] = [act, way, wire].map(str::to_owned);
    let mut args =
        vec![client.clone(), service.clone(), holder.clone(), act_word, way_word, folder, wire_word];
    args.extend(relays.iter().map(|relay| relay.join("/")));
    let services = Services::start(&perl(fence, &draw.word(6), HANG, &args));
    let holder = (act == "lock").then_some(holder);
    let what = format!("{act}, {way}, {wire}, {relays:?}, seed {}", draw.seed());
    let relays = relays.iter().map(|relay| relay[0].clone()).collect();
    Started { services, expected: Hang { client, relays, service, holder, window_s: WINDOW_S }, what }
}

fn attach(started: &Started) -> Value {
    let length = format!("{WINDOW_S}s");
    whyslow(&["attach", &started.services.at, "--for", &length, "--json"].map(str::to_owned)).0
}

/// The last two: it has not read what it is asked, or not even accepted the connection.
const KEPT: [&str; 6] = ["sleep", "burn", "lock", "stop", "unread", "queued"];

#[test]
fn root_an_attached_client_that_nobody_answers_waits_for_what_keeps_its_service() {
    let fence = Fence::enter().unwrap();
    let mut draw = Draw::of_run("attached hang", 0);
    let unix = draw.one_in(2);
    let between = relays(&mut draw, 4, true);
    let started = start(&fence, &mut draw, &KEPT, unix, &between);
    let document = attach(&started);
    rounds::say(&format!("attached hang: {}", started.what));
    judge::of_hang(&document, &started.expected)
        .unwrap_or_else(|why| panic!("{why}\n{}\n{}", started.what, document["wall"]));
}

#[test]
fn root_on_a_whole_host_a_client_that_nobody_answers_has_a_chain() {
    let fence = Fence::enter().unwrap();
    let mut draw = Draw::of_run("hang", 0);
    // A unix socket does not say when something was sent through it: only what is not read yet tells. A service that has read it, and sleeps, may
    // have been asked for news.
    let unix = draw.one_in(2);
    let between = relays(&mut draw, if unix { 0 } else { 4 }, false);
    let started = start(&fence, &mut draw, if unix { &KEPT[4..] } else { &KEPT }, unix, &between);
    let document = super::chains();
    rounds::say(&format!("hang: {}", started.what));
    judge::of_hang_on_host(&document, &started.expected)
        .unwrap_or_else(|why| panic!("{why}\n{}\n{}", started.what, document["chains"]));
}

/// It asks a queue that has no job for it, and serves others all the time.
#[test]
fn root_on_a_whole_host_a_queue_without_jobs_keeps_nobody() {
    let fence = Fence::enter().unwrap();
    let mut draw = Draw::of_run("jobs", 0);
    let unix = draw.one_in(2);
    let started = start(&fence, &mut draw, &["jobs"], unix, &[]);
    let document = super::chains();
    rounds::say(&format!("jobs: {}", started.what));
    judge::of_nobody(&document, &started.expected)
        .unwrap_or_else(|why| panic!("{why}\n{}\n{}", started.what, document["chains"]));
}

/// The innocent twin: it was answered, and waits for news.
#[test]
fn root_a_client_that_was_answered_waits_for_nobody() {
    let fence = Fence::enter().unwrap();
    let mut draw = Draw::of_run("answered", 0);
    let unix = draw.one_in(2);
    let between = relays(&mut draw, 4, true);
    let started = start(&fence, &mut draw, &["answers"], unix, &between);
    let (of_client, of_host) = (attach(&started), super::chains());
    rounds::say(&format!("answered: {}", started.what));
    judge::of_answered(&of_client, &of_host, &started.expected).unwrap_or_else(|why| {
        panic!("{why}\n{}\n{}\n{}", started.what, of_client["wall"], of_host["chains"])
    });
}
