//! A program of the set, running in the fence.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::outside::Outside;
use super::plan::{Plan, Shape};
use super::runtimes::{self, Erlang};
use super::tools::{self, AtWork};
use super::{Account, Loop, Program, SpinWait, Told, openmp};
use crate::cgroup::Group;
use crate::ledger::Fact;
use crate::spec::{Place, Work};
use crate::victim::Launch;
use crate::{Draw, Fence, Span, Victim, host, thresholds};

/// It ends when this is dropped.
pub struct Running {
    program: Program,
    /// Name of its process.
    comm: String,
    body: Body,
}

enum Body {
    Pairs(Victim, Box<Plan>),
    Worker(Victim),
    /// Clients first: they end in this order.
    Server {
        _clients: Victim,
        server: Victim,
    },
    Threads(Outside),
    Erlang(Erlang),
    Tool(AtWork),
}

/// A round of a spinner takes some milliseconds of CPU, which on a busy host may take seconds.
const NOTED_WITHIN: Duration = Duration::from_secs(20);
/// CPU time of an answer.
const ANSWER_US: [u64; 2] = [10, 80];
/// Clients of a server: enough that a request is always pending.
const CLIENTS: u64 = 6;
/// Words of memory that a loop works on: from a first-level cache to beyond the second.
const SIZES: [u64; 2] = [1 << 10, 1 << 18];

impl Running {
    /// Draw a program and start it in `group`. `Unsupported`: this host lacks something that it needs.
    pub fn start(
        fence: &Fence,
        group: &Group,
        program: Program,
        shape: Shape,
        draw: &mut Draw,
    ) -> io::Result<Self> {
        fence.check_time()?;
        let testbed = TestBed { fence, group, shape };
        let (comm, body) = match program {
            Program::Wait(wait) => testbed.pairs(wait, draw)?,
            Program::Loop(each) => testbed.looping(each, draw)?,
            Program::Server => testbed.server(draw)?,
            Program::OpenMp => {
                let (team, name) = openmp::start(fence, group, draw)?;
                (name, Body::Threads(team))
            }
            Program::Java => ("java".to_owned(), Body::Threads(runtimes::java(fence, group, shape, draw)?)),
            Program::Go => {
                let go = runtimes::go(fence, group, shape, draw)?;
                (name_of(go.pid()), Body::Threads(go))
            }
            Program::Erlang(sbwt) => {
                let erlang = Erlang::start(fence, group, sbwt, draw)?;
                (name_of(erlang.vm().pid()), Body::Erlang(erlang))
            }
            Program::Tool(tool) => {
                let tool = tools::start(fence, group, tool, draw)?;
                let name = match &tool {
                    AtWork::One(one) => name_of(one.pid()),
                    AtWork::Compile(_) => "cc1".to_owned(),
                };
                (name, Body::Tool(tool))
            }
        };
        Ok(Running { program, comm, body })
    }

    /// Which one.
    #[must_use]
    pub fn program(&self) -> Program {
        self.program
    }

    /// Name of its process.
    #[must_use]
    pub fn comm(&self) -> &str {
        &self.comm
    }

    /// Its process; `None`: there are several.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        match &self.body {
            Body::Pairs(victim, _) | Body::Worker(victim) | Body::Server { server: victim, .. } => {
                Some(victim.pid())
            }
            Body::Threads(outside) | Body::Tool(AtWork::One(outside)) => Some(outside.pid()),
            Body::Erlang(erlang) => Some(erlang.vm().pid()),
            Body::Tool(AtWork::Compile(_)) => None,
        }
    }

    /// Its spinning in a past window, by its own clocks; zero for an honest program. Waits until all its threads have recorded their work
    /// up to the window's end.
    pub fn reported(&self, window: Span) -> io::Result<Told> {
        let began = Instant::now();
        loop {
            let accounts = self.accounts();
            if accounts.iter().all(|account| account.until() >= window.to) {
                return Ok(self.reported_by(&accounts, window));
            }
            if began.elapsed() > thresholds::patient(NOTED_WITHIN) {
                let why = format!("{} does not go on", self.program);
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Its threads that record their spinning: their ids, if all of them know their ids.
    #[must_use]
    pub fn tellers(&self) -> Vec<u32> {
        let tids: Vec<u32> = self.accounts().iter().map(|account| account.tid).collect();
        if tids.contains(&0) { Vec::new() } else { tids }
    }

    fn accounts(&self) -> Vec<Account> {
        match &self.body {
            Body::Pairs(victim, plan) => self.pairs(victim, plan),
            Body::Threads(outside) => {
                let mut accounts = outside.accounts();
                for account in accounts.iter_mut().filter(|account| account.name == "-") {
                    account.name.clone_from(&self.comm);
                }
                accounts
            }
            Body::Erlang(erlang) => erlang.vm().accounts(),
            Body::Worker(_) | Body::Server { .. } | Body::Tool(_) => Vec::new(),
        }
    }

    fn reported_by(&self, accounts: &[Account], window: Span) -> Told {
        match &self.body {
            Body::Pairs(_, plan) => {
                let mut reported = Told::of(accounts, window);
                let main = if plan.main_waits { None } else { Some(self.comm.clone()) };
                reported.others.extend(
                    main.into_iter().chain((plan.pairs > 1 || plan.main_waits).then(|| plan.giver.clone())),
                );
                reported
            }
            Body::Threads(_) => Told::of(accounts, window),
            Body::Erlang(erlang) => {
                let [cpu_s, spin_s, most_s] = erlang.cpu_and_spin(window);
                let spinning = if spin_s > 0.0 { vec!["_scheduler".to_owned()] } else { Vec::new() };
                Told { spin_s, most_s, cpu_s, spinning, others: Vec::new() }
            }
            Body::Worker(_) | Body::Server { .. } | Body::Tool(_) => Told::default(),
        }
    }

    /// Its progress: pieces, rounds, bytes.
    #[must_use]
    pub fn progress(&self) -> u64 {
        match &self.body {
            Body::Worker(victim) | Body::Server { server: victim, .. } => {
                let ledger = victim.ledger();
                (0..ledger.slots()).map(|slot| ledger.fact(slot, Fact::Count).load(Ordering::Acquire)).sum()
            }
            Body::Tool(tool) => tool.progress(),
            Body::Erlang(erlang) => erlang.trips(),
            Body::Pairs(..) | Body::Threads(_) => 0,
        }
    }

    fn pairs(&self, victim: &Victim, plan: &Plan) -> Vec<Account> {
        let waiters = (0..2 * plan.pairs).filter(|slot| plan.waits(*slot));
        waiters
            .map(|slot| {
                let name = if slot == 0 { &self.comm } else { &plan.waiter };
                Account::of_pair(victim.ledger(), slot, name)
            })
            .collect()
    }
}

/// The place where a program of this crate is started.
struct TestBed<'a> {
    fence: &'a Fence,
    group: &'a Group,
    shape: Shape,
}

impl TestBed<'_> {
    fn pairs(&self, wait: SpinWait, draw: &mut Draw) -> io::Result<(String, Body)> {
        let pairs = draw.between(1, host::cpus().len().min(3) as u64);
        let plan = Box::new(Plan::draw(wait, self.shape, pairs as usize, draw));
        let victim = self.ours(2 * pairs, Work::Spinner(plan.clone()), draw)?;
        if pairs == 1 && draw.one_in(3) {
            victim.pin(&[draw.pick(&host::cpus())])?;
        }
        Ok((victim.comm().to_owned(), Body::Pairs(victim, plan)))
    }

    fn looping(&self, each: Loop, draw: &mut Draw) -> io::Result<(String, Body)> {
        let size = draw.between(SIZES[0], SIZES[1]) as usize;
        let rest_us = if draw.one_in(3) { draw.between(100, 2_000) } else { 0 };
        let threads = draw.between(1, host::cpus().len().min(3) as u64);
        let victim = self.ours(threads, Work::Loop { each, size, rest_us }, draw)?;
        Ok((victim.comm().to_owned(), Body::Worker(victim)))
    }

    fn server(&self, draw: &mut Draw) -> io::Result<(String, Body)> {
        let at = Place::Path(self.fence.dir().join(draw.word(6)));
        let burst_us = draw.between(ANSWER_US[0], ANSWER_US[1]);
        let answer = Work::Answer { at: at.clone(), burst_us, sleep_us: 0, upstream: None };
        let server = self.ours(1, answer, draw)?;
        let clients = self.ours(CLIENTS, Work::Ask { at }, draw)?;
        Ok((server.comm().to_owned(), Body::Server { _clients: clients, server }))
    }

    /// A victim at work, under a path of its own: the name of its file gives nothing away.
    fn ours(&self, threads: u64, work: Work, draw: &mut Draw) -> io::Result<Victim> {
        let name = draw.word(10);
        let program: PathBuf = self.fence.dir().join(&name);
        std::fs::copy(std::env::current_exe()?, &program)?;
        let spec = self.fence.spec(self.group, &name, threads, work);
        let victim = Victim::start(spec, Launch { program: Some(program), ..Launch::default() })?;
        victim.go();
        Ok(victim)
    }
}

fn name_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}
