//! Requests that were sent before the window and are answered after it: nothing ends these waits in the window.

use whyslow_faults::rounds::Trouble;
use whyslow_faults::{Draw, Fence, Wrong};

use super::judge::{self, Hang};
use super::{Answer, Judged, Services, WINDOW_S, attach, cell, chains, perl};

const HANG: &str = include_str!("hang.pl");

/// The processes, the truth about them, and what was drawn.
struct Started {
    services: Services,
    expected: Hang,
    what: String,
}

impl Started {
    fn judged(self, right: Result<(), Wrong>, answers: Vec<Answer>) -> Result<Judged, Trouble> {
        Ok(Judged { right, what: format!("{}, {:?}", self.what, self.expected), answers })
    }
}

/// Loops between the client and the service: each with its name, its socket, how it waits, and how often it wakes up by timeout.
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
    let what = format!("{act}, {way}, {wire}, {relays:?}");
    let relays = relays.iter().map(|relay| relay[0].clone()).collect();
    Started { services, expected: Hang { client, relays, service, holder, window_s: WINDOW_S }, what }
}

/// In the last two the service has not read the request, or has not even accepted the connection.
const KEPT: [&str; 6] = ["sleep", "burn", "lock", "stop", "unread", "queued"];

#[test]
fn root_an_attached_client_that_nobody_answers_waits_for_what_keeps_its_service() {
    cell("attached-hang", |fence, draw| {
        let unix = draw.one_in(2);
        let between = relays(draw, 4, true);
        let started = start(fence, draw, &KEPT, unix, &between);
        let answer = attach(fence, &started.services.at)?;
        let right = judge::of_hang(&answer.document, &started.expected);
        started.judged(right, vec![answer])
    });
}

#[test]
fn root_on_a_whole_host_a_client_that_nobody_answers_has_a_chain() {
    cell("hang", |fence, draw| {
        // A unix socket does not tell when data was sent through it: only unread data shows a request. A service that has read it and
        // sleeps may just wait for the next message.
        let unix = draw.one_in(2);
        let between = relays(draw, if unix { 0 } else { 4 }, false);
        let started = start(fence, draw, if unix { &KEPT[4..] } else { &KEPT }, unix, &between);
        let answer = chains(fence)?;
        let right = judge::of_hang_on_host(&answer.document, &started.expected);
        started.judged(right, vec![answer])
    });
}

/// The loop sends a request to a queue that has no job for it, and serves other clients all the time.
#[test]
fn root_on_a_whole_host_a_queue_without_jobs_keeps_nobody() {
    cell("jobs", |fence, draw| {
        let unix = draw.one_in(2);
        let started = start(fence, draw, &["jobs"], unix, &[]);
        let answer = chains(fence)?;
        let right = judge::of_nobody(&answer.document, &started.expected);
        started.judged(right, vec![answer])
    });
}

/// The innocent twin: the client got its answer, and waits for the next message.
#[test]
fn root_a_client_that_was_answered_waits_for_nobody() {
    cell("answered", |fence, draw| {
        let unix = draw.one_in(2);
        let between = relays(draw, 4, true);
        let started = start(fence, draw, &["answers"], unix, &between);
        let (of_client, of_host) = (attach(fence, &started.services.at)?, chains(fence)?);
        let right = judge::of_answered(&of_client.document, &of_host.document, &started.expected);
        started.judged(right, vec![of_client, of_host])
    });
}
