//! Clients and services over TCP, as in real programs: an event loop that serves other clients meanwhile, and peers that never answer.
//!
//! The programs' own clocks give the truth. `WHYSLOW_SEED` repeats a run.

mod hang;
mod judge;

use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use whyslow_faults::host::Calm;
use whyslow_faults::rounds::{self, Trouble, Verdict};
use whyslow_faults::{Draw, Fence, Wrong, sys};

use judge::{Expected, OfHost, Vain};

const SERVICES: &str = include_str!("services/services.pl");
const CLIENT: &str = include_str!("services/client.pl");
const NEWS: &str = include_str!("services/news.pl");
const VAIN: &str = include_str!("services/vain.pl");
/// Window of a whole host.
const WINDOW_S: f64 = 2.0;

/// Run Perl in a group of the test.
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

/// Names, the action on a request, and how many other clients send requests meanwhile.
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

    /// For a loop that serves several clients through unix sockets, it is not visible whose answer comes next.
    fn of_whom_it_is_told(self) -> Self {
        Drawn { unix: self.unix && self.clients == 0, ..self }
    }

    /// How a client waits. Polls with a timeout end long before the answer or long after it: an answer that comes between two polls ends no
    /// wait.
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

/// whyslow's answer.
struct Answer {
    document: Value,
    /// Output of the command that it ran.
    before: String,
    /// CPU time, by the kernel's account.
    used: Duration,
}

/// The longest request takes a few seconds.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// The answer of `whyslow ARGS`.
fn whyslow(fence: &Fence, args: &[String]) -> Result<Answer, Trouble> {
    let said = fence.dir().join("said");
    let mut child = Command::new(whyslow_faults::program!());
    child.args(args).stdin(Stdio::null()).stdout(File::create(&said)?).stderr(Stdio::null());
    let mut child = child.spawn()?;
    if !sys::ends_within(child.id(), ENDS_WITHIN)? {
        child.kill()?;
        child.wait()?;
        return Err(Wrong::missed(format!("no answer in {ENDS_WITHIN:?}")).into());
    }
    let (_, used) = sys::reap(child.id())?;
    let all = std::fs::read_to_string(said)?;
    let (before, document) = all.trim_end().rsplit_once('\n').unwrap_or(("", all.trim_end()));
    match serde_json::from_str(document).or_else(|_| serde_json::from_str(&all)) {
        Ok(document) => Ok(Answer { document, before: before.to_owned(), used }),
        Err(err) => Err(Wrong::missed(format!("no document: {err}: {all}")).into()),
    }
}

fn run(fence: &Fence, command: Vec<String>) -> Result<Answer, Trouble> {
    let begin = ["run", "--json", "--"].map(str::to_owned);
    whyslow(fence, &begin.into_iter().chain(command).collect::<Vec<_>>())
}

fn attach(fence: &Fence, pid: &str) -> Result<Answer, Trouble> {
    let length = format!("{WINDOW_S}s");
    whyslow(fence, &["attach", pid, "--for", &length, "--json"].map(str::to_owned))
}

fn chains(fence: &Fence) -> Result<Answer, Trouble> {
    let length = format!("{WINDOW_S}s");
    whyslow(fence, &["chains", "--for", &length, "--json"].map(str::to_owned))
}

/// A separate client that runs until it is dropped.
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

/// A client whose request outlasts the window, the truth about it, and what was drawn.
fn asks(drawn: &Drawn, services: &Services, fence: &Fence, draw: &mut Draw) -> (Client, OfHost, String) {
    let (client, way) = (format!("asks-{}", draw.word(5)), drawn.way(draw));
    let args = [services.at.clone(), "100000".to_owned(), way.clone(), client.clone()];
    let started = Client::start(&perl(fence, &draw.word(6), CLIENT, &args));
    let [front, back, others] = drawn.names.clone();
    let expected = OfHost { client, front, back, others, window_s: WINDOW_S, has_others: drawn.clients > 0 };
    let what = format!("{drawn}, {way}, {expected:?}");
    (started, expected, what)
}

/// Verdicts on answers, with all data for debugging.
struct Judged {
    right: Result<(), Wrong>,
    /// What was drawn.
    what: String,
    answers: Vec<Answer>,
}

/// Above this share of the CPUs, the client waits for other tasks, too.
const CROWDED: f64 = 0.2;

/// A cell: with too much other load a result proves nothing, and the cell is made again.
fn cell(name: &str, make: impl Fn(&Fence, &mut Draw) -> Result<Judged, Trouble>) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("services");
    rounds::run_judged(&name, &dir, |draw, _| {
        let fence = Fence::enter()?;
        let calm = Calm::watch(Some(fence.top()))?;
        let Judged { right, what, answers } = make(&fence, draw)?;
        rounds::say(&format!("{name}: {what}"));
        let own = answers.iter().map(|answer| answer.used).sum();
        Ok(match (calm.crowded(Some(fence.top()), own, CROWDED)?, right) {
            (Some(why), right) => Verdict::Again(format!("{why}; {right:?}; {what}")),
            (None, Ok(())) => Verdict::Passed,
            (None, Err(wrong)) => {
                let of =
                    |answer: &Answer| format!("{}\n{}", answer.document["wall"], answer.document["chains"]);
                let all: Vec<String> = answers.iter().map(of).collect();
                Verdict::Wrong(wrong.told(|why| format!("{why}; {what}\n{}", all.join("\n"))))
            }
        })
    });
}

/// The number after a word.
fn after(said: &str, word: &str) -> f64 {
    let mut words = said.split_whitespace().skip_while(|at| *at != word);
    words.nth(1).and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {word} in {said:?}"))
}

#[test]
fn root_a_client_behind_an_event_loop_waits_for_what_the_loop_asked() {
    cell("client", |fence, draw| {
        let drawn = Drawn::of(draw).of_whom_it_is_told();
        let services = drawn.start(fence, draw);
        let way = drawn.way(draw);
        let args = [services.at.clone(), "1000".to_owned(), way.clone()];
        let answer = run(fence, perl(fence, &draw.word(6), CLIENT, &args))?;
        let clock = answer.before.as_str();
        let [front, back, others] = drawn.names.clone();
        let (waited_s, acted_s) = (after(clock, "waited"), after(clock, "acted"));
        let (is_locked, has_others) = (drawn.act == "lock", drawn.clients > 0);
        let expected = Expected { front, back, others, waited_s, acted_s, is_locked, has_others };
        let what = format!("{drawn}, {way}, {expected:?}");
        Ok(Judged { right: judge::of_client(&answer.document, &expected), what, answers: vec![answer] })
    });
}

#[test]
fn root_an_attached_client_waits_for_its_service() {
    cell("attached-client", |fence, draw| {
        let drawn = Drawn::of(draw).of_whom_it_is_told();
        let services = drawn.start(fence, draw);
        let (client, expected, what) = asks(&drawn, &services, fence, draw);
        let answer = attach(fence, &client.0.id().to_string())?;
        Ok(Judged { right: judge::of_attached(&answer.document, &expected), what, answers: vec![answer] })
    });
}

/// Clients that think, and a service that waits for them: no task lost time.
#[test]
fn root_a_loop_that_waits_for_requests_has_no_chain() {
    cell("idle-services", |fence, draw| {
        let drawn = Drawn { clients: draw.between(1, 3), ..Drawn::of(draw) };
        let services = drawn.start(fence, draw);
        let children = format!("/proc/{0}/task/{0}/children", services.child.id());
        let children = std::fs::read_to_string(children).unwrap();
        let pid = children.split_whitespace().find(|pid| {
            let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            drawn.names[0].starts_with(comm.trim()) && comm.trim().starts_with("loop")
        });
        let answer = attach(fence, pid.ok_or("the loop does not run")?)?;
        let right = judge::of_idle(&answer.document, &drawn.names[2]);
        Ok(Judged { right, what: drawn.to_string(), answers: vec![answer] })
    });
}

#[test]
fn root_polls_that_nobody_answers_name_the_address() {
    cell("vain", |fence, draw| {
        let what = draw.pick(&["udp", "tcp", "connect"]);
        let way = draw.pick(&["poll", "select"]);
        let (count, ms) = (draw.between(3, 8), draw.between(60, 200));
        let args = [what.to_owned(), way.to_owned(), count.to_string(), ms.to_string()];
        let answer = run(fence, perl(fence, &draw.word(6), VAIN, &args))?;
        let clock = answer.before.as_str();
        let to = clock.split_whitespace().skip_while(|word| *word != "to").nth(1).expect("it tells where");
        let (to, waited_s) = (to.to_owned(), after(clock, "waited"));
        let expected = Vain { to, waited_s, connects: what == "connect" };
        let what = format!("{what} {way} {count} times {ms} ms, {expected:?}");
        Ok(Judged { right: judge::of_vain(&answer.document, &expected), what, answers: vec![answer] })
    });
}

/// No process is followed here: a client that waits for its answer has a chain all the same.
#[test]
fn root_on_a_whole_host_a_client_has_a_chain_and_a_service_has_none() {
    cell("host-services", |fence, draw| {
        // The kernel does not tell when data was sent through a unix socket: the service must be asleep when a request arrives.
        let drawn = Drawn { unix: false, ..Drawn::of(draw) };
        let services = drawn.start(fence, draw);
        let (_client, expected, what) = asks(&drawn, &services, fence, draw);
        let answer = chains(fence)?;
        Ok(Judged { right: judge::of_host(&answer.document, &expected), what, answers: vec![answer] })
    });
}

#[test]
fn root_wait_for_the_next_message_or_job_has_no_chain() {
    cell("news", |fence, draw| {
        let names = ["tells", "hears", "brings"].map(|name| format!("{name}-{}", draw.word(5)));
        let way = draw.pick(&["plain", "acks", "queue"]);
        let mut args = names.to_vec();
        args.extend([draw.between(30, 300).to_string(), way.to_owned()]);
        let _services = Services::start(&perl(fence, &draw.word(6), NEWS, &args));
        let answer = chains(fence)?;
        Ok(Judged {
            right: judge::of_news(&answer.document, &names),
            what: way.to_owned(),
            answers: vec![answer],
        })
    });
}
