//! Clients and services over TCP, as programs are: an event loop that serves others meanwhile, and peers that never answer.
//!
//! What whyslow says is held against the programs' own clocks. `WHYSLOW_SEED` repeats a run.

mod hang;
mod judge;

use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use whyslow_faults::{Draw, Fence, rounds};

use judge::{Expected, OfHost, Vain};

const SERVICES: &str = include_str!("services/services.pl");
const CLIENT: &str = include_str!("services/client.pl");
const NEWS: &str = include_str!("services/news.pl");
const VAIN: &str = include_str!("services/vain.pl");
/// A whole host is looked at for so long.
const WINDOW_S: f64 = 2.0;

/// Perl's program, entered into a group of the test's.
fn perl(fence: &Fence, label: &str, script: &str, args: &[String]) -> Vec<String> {
    let files = fence.group(label).unwrap().procs_files();
    let enter: String = files.iter().map(|file| format!("echo $$ > {}\n", file.display())).collect();
    let shell = format!("{enter}exec perl -e \"$@\"");
    let begin = ["sh", "-ec", &shell, "sh", script].map(str::to_owned);
    begin.into_iter().chain(args.iter().cloned()).collect()
}

/// Services that run until they are dropped.
struct Services {
    child: Child,
    /// A port, or the path of a unix socket.
    at: String,
}

impl Services {
    fn start(command: &[String]) -> Self {
        let mut child = Command::new(&command[0]);
        child.args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let at = line.trim().strip_prefix("up ").expect("they are up").to_owned();
        Services { child, at }
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Names, what is done for a request, and how many ask for something else meanwhile.
struct Drawn {
    names: [String; 3],
    act: &'static str,
    ms: u64,
    clients: u64,
    /// Unix sockets, not TCP.
    unix: bool,
}

impl fmt::Display for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wire = if self.unix { "unix sockets" } else { "TCP" };
        write!(f, "{} for {} ms, {} others, {wire}", self.act, self.ms, self.clients)
    }
}

impl Drawn {
    fn of(draw: &mut Draw) -> Self {
        let names = ["loop", "back", "fast"].map(|name| format!("{name}-{}", draw.word(5)));
        let act = draw.pick(&["sleep", "burn", "lock"]);
        Drawn { names, act, ms: draw.between(20, 60), clients: draw.between(0, 3), unix: draw.one_in(3) }
    }

    /// Of a loop that serves several through unix sockets nobody tells whose answer comes next.
    fn of_whom_it_is_told(self) -> Self {
        Drawn { unix: self.unix && self.clients == 0, ..self }
    }

    /// How a client waits. Looks with a timeout end long before the answer, and long after: one that comes while it is about to look again
    /// ends no wait.
    fn way(&self, draw: &mut Draw) -> String {
        match draw.pick(&["read", "select", "looks"]) {
            "looks" => format!("looks={}", self.ms as f64 * 0.37e-3),
            other => other.to_owned(),
        }
    }

    fn start(&self, fence: &Fence, draw: &mut Draw) -> Services {
        let lock = fence.dir().join("lock").display().to_string();
        let numbers = [self.ms, self.clients, draw.between(4, 12)].map(|number| number.to_string());
        let [ms, clients, think] = numbers;
        let mut args = self.names.to_vec();
        args.extend([self.act.to_owned(), ms, clients, think, lock]);
        if self.unix {
            args.push(fence.dir().display().to_string());
        }
        Services::start(&perl(fence, &draw.word(6), SERVICES, &args))
    }
}

/// What `whyslow ARGS` said, and what the command that it ran did.
fn whyslow(args: &[String]) -> (Value, String) {
    let mut child = Command::new(whyslow_faults::program!());
    child.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = child.spawn().unwrap();
    let mut all = String::new();
    child.stdout.take().unwrap().read_to_string(&mut all).unwrap();
    child.wait().unwrap();
    if let Ok(document) = serde_json::from_str(&all) {
        return (document, String::new());
    }
    let (before, document) = all.trim_end().rsplit_once('\n').expect("two lines");
    (serde_json::from_str(document).expect("the last line is a document"), before.to_owned())
}

fn run(command: Vec<String>) -> (Value, String) {
    let begin = ["run", "--json", "--"].map(str::to_owned);
    whyslow(&begin.into_iter().chain(command).collect::<Vec<_>>())
}

/// A client of its own, until it is dropped.
struct Client(Child);

impl Client {
    fn start(command: &[String]) -> Self {
        let mut child = Command::new(&command[0]);
        child.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        Client(child.spawn().unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client that asks for longer than anybody looks, what is true of it, and what was drawn.
fn asks(drawn: &Drawn, services: &Services, fence: &Fence, draw: &mut Draw) -> (Client, OfHost, String) {
    let (client, way) = (format!("asks-{}", draw.word(5)), drawn.way(draw));
    let args = [services.at.clone(), "100000".to_owned(), way.clone(), client.clone()];
    let started = Client::start(&perl(fence, &draw.word(6), CLIENT, &args));
    let [front, back, others] = drawn.names.clone();
    let expected = OfHost { client, front, back, others, window_s: WINDOW_S, has_others: drawn.clients > 0 };
    (started, expected, format!("{drawn}, {way}, seed {}", draw.seed()))
}

fn chains() -> Value {
    let length = format!("{WINDOW_S}s");
    whyslow(&["chains", "--for", &length, "--json"].map(str::to_owned)).0
}

/// The number behind a word.
fn after(said: &str, word: &str) -> f64 {
    let mut words = said.split_whitespace().skip_while(|at| *at != word);
    words.nth(1).and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {word} in {said:?}"))
}

#[test]
fn root_a_client_behind_an_event_loop_waits_for_what_the_loop_asked() {
    let fence = Fence::enter().unwrap();
    let mut draw = Draw::of_run("services", 0);
    let drawn = Drawn::of(&mut draw).of_whom_it_is_told();
    let services = drawn.start(&fence, &mut draw);
    let way = drawn.way(&mut draw);
    let args = [services.at.clone(), "1000".to_owned(), way.clone()];
    let (document, clock) = run(perl(&fence, &draw.word(6), CLIENT, &args));
    let [front, back, others] = drawn.names.clone();
    let (waited_s, acted_s) = (after(&clock, "waited"), after(&clock, "acted"));
    let expected = Expected {
        front,
        back,
        others,
        waited_s,
        acted_s,
        is_locked: drawn.act == "lock",
        has_others: drawn.clients > 0,
    };
    let what = format!("{drawn}, {way}, seed {}", draw.seed());
    rounds::say(&format!("services: {what}"));
    judge::of_client(&document, &expected)
        .unwrap_or_else(|why| panic!("{why}\n{what}\n{expected:?}\n{}", document["wall"]));
}

#[test]
fn root_an_attached_client_waits_for_its_service() {
    let fence = Fence::enter().unwrap();
    let mut draw = Draw::of_run("attached client", 0);
    let drawn = Drawn::of(&mut draw).of_whom_it_is_told();
    let services = drawn.start(&fence, &mut draw);
    let (client, expected, what) = asks(&drawn, &services, &fence, &mut draw);
    let (pid, length) = (client.0.id().to_string(), format!("{WINDOW_S}s"));
    let (document, _) = whyslow(&["attach", &pid, "--for", &length, "--json"].map(str::to_owned));
    rounds::say(&format!("attached client: {what}"));
    judge::of_attached(&document, &expected)
        .unwrap_or_else(|why| panic!("{why}\n{what}\n{expected:?}\n{}", document["wall"]));
}

/// Clients that think, and a service that waits for them: nobody lost anything.
#[test]
fn root_a_loop_that_waits_for_requests_has_no_chain() {
    let fence = Fence::enter().unwrap();
    let mut draw = Draw::of_run("idle services", 0);
    let drawn = Drawn { clients: draw.between(1, 3), ..Drawn::of(&mut draw) };
    let services = drawn.start(&fence, &mut draw);
    let children = format!("/proc/{0}/task/{0}/children", services.child.id());
    let children = std::fs::read_to_string(children).unwrap();
    let pid = children.split_whitespace().find(|pid| {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        drawn.names[0].starts_with(comm.trim()) && comm.trim().starts_with("loop")
    });
    let args = ["attach", pid.expect("the loop runs"), "--for", "2s", "--json"].map(str::to_owned);
    let (document, _) = whyslow(&args);
    judge::of_idle(&document, &drawn.names[2])
        .unwrap_or_else(|why| panic!("{why}, seed {}\n{}", draw.seed(), document["chains"]));
}

#[test]
fn root_polls_that_nobody_answers_name_the_address() {
    let fence = Fence::enter().unwrap();
    let mut draw = Draw::of_run("vain", 0);
    let what = draw.pick(&["udp", "tcp", "connect"]);
    let way = draw.pick(&["poll", "select"]);
    let (count, ms) = (draw.between(3, 8), draw.between(60, 200));
    let args = [what.to_owned(), way.to_owned(), count.to_string(), ms.to_string()];
    let (document, clock) = run(perl(&fence, &draw.word(6), VAIN, &args));
    let to =
        clock.split_whitespace().skip_while(|word| *word != "to").nth(1).expect("it tells where").to_owned();
    let expected = Vain { to, waited_s: after(&clock, "waited"), connects: what == "connect" };
    let drawn = format!("{what} {way} {count} times {ms} ms, seed {}", draw.seed());
    rounds::say(&format!("vain: {drawn}"));
    judge::of_vain(&document, &expected)
        .unwrap_or_else(|why| panic!("{why}\n{drawn}\n{expected:?}\n{}", document["wall"]));
}

/// Nobody is followed: who has asked, and waits, has a chain all the same.
#[test]
fn root_on_a_whole_host_a_client_has_a_chain_and_a_service_has_none() {
    let fence = Fence::enter().unwrap();
    let mut draw = Draw::of_run("host services", 0);
    // Nobody says when something was sent through a unix socket: there a service has to be asleep when it is asked.
    let drawn = Drawn { unix: false, ..Drawn::of(&mut draw) };
    let services = drawn.start(&fence, &mut draw);
    let (_client, expected, what) = asks(&drawn, &services, &fence, &mut draw);
    let document = chains();
    rounds::say(&format!("host services: {what}"));
    judge::of_host(&document, &expected)
        .unwrap_or_else(|why| panic!("{why}\n{what}\n{expected:?}\n{}", document["chains"]));
}

#[test]
fn root_who_waits_for_news_or_jobs_has_no_chain() {
    let fence = Fence::enter().unwrap();
    let mut draw = Draw::of_run("news", 0);
    let names = ["tells", "hears", "brings"].map(|name| format!("{name}-{}", draw.word(5)));
    let way = draw.pick(&["plain", "acks", "queue"]);
    let mut args = names.to_vec();
    args.extend([draw.between(30, 300).to_string(), way.to_owned()]);
    rounds::say(&format!("news: {way}, seed {}", draw.seed()));
    let _services = Services::start(&perl(&fence, &draw.word(6), NEWS, &args));
    let document = chains();
    judge::of_news(&document, &names)
        .unwrap_or_else(|why| panic!("{why}, seed {}\n{}", draw.seed(), document["chains"]));
}
