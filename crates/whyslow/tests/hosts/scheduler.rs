//! A host in steps of a millisecond: tasks that run and sleep by a script, CPUs that are given to them, quotas that run out.
//! What a probe would have seen of it goes into tables; what it cost is known by letting it run again without the fault.
//!
//! Not modelled: what a switch costs, caches, weights of groups. Nobody is moved while he runs.

use whyslow_model::table::{Cgroup, CgroupCpu, CgroupMemory, Task};

pub const MS: u64 = 1_000_000;
/// Milliseconds of the window.
pub const WINDOW: usize = 10_000;
const PERIOD: usize = 100;

/// A step of a script, in ms.
#[derive(Debug, Clone, Copy)]
pub enum Do {
    Run(u32),
    Sleep(u32),
}

#[derive(Debug, Clone, Default)]
pub struct Group {
    pub path: String,
    /// Place in the list; the first is the root.
    pub parent: usize,
    /// CPU time each 100 ms.
    pub quota_ms: Option<u32>,
    pub memory_limit: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct Thread {
    pub comm: String,
    pub pid: u32,
    pub tgid: u32,
    pub ppid: u32,
    pub group: usize,
    /// CPUs it may use; empty: all but the isolated ones.
    pub mask: Vec<u32>,
    /// 0: other; 1: FIFO, before all others by `priority`.
    pub policy: u32,
    pub priority: u32,
    pub script: Vec<Do>,
    /// It lives from here to there.
    pub life: (usize, usize),
    /// Further threads that the row stands for.
    pub folded: u64,
    /// A thread of the kernel.
    pub kernel: bool,
}

/// A host.
#[derive(Debug, Clone, Default)]
pub struct Host {
    pub cpus: u32,
    pub isolated: Vec<u32>,
    pub groups: Vec<Group>,
    pub threads: Vec<Thread>,
    /// Stretches in which the hypervisor ran somebody else: CPU, from, to.
    pub stolen: Vec<(u32, usize, usize)>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Is {
    #[default]
    Unborn,
    Ready,
    Runs(u32),
    Sleeps,
    Gone,
}

/// What became of a thread.
#[derive(Debug, Clone, Default)]
struct State {
    is: Is,
    step: usize,
    left: u32,
    /// When a sleep ends.
    due: usize,
    /// CPU time by weight: the smallest goes first.
    got: u64,
    since: usize,
    cpu: u32,
    row: Task,
    /// Of the cycle that goes on: how long it has been awake, in 1024 ns.
    awake: u64,
}

impl State {
    /// When something happens to it by itself, and whether it wants a CPU: kept apart, as most of a hundred thousand sleep.
    fn next(&self, thread: &Thread) -> (usize, bool) {
        match self.is {
            Is::Unborn => (thread.life.0, false),
            Is::Sleeps => (thread.life.1.min(self.due), false),
            Is::Ready | Is::Runs(_) => (thread.life.1, true),
            Is::Gone => (usize::MAX, false),
        }
    }
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub tasks: Vec<Task>,
    pub cgroups: Vec<Cgroup>,
    /// By CPU: busy and stolen milliseconds.
    pub busy: Vec<(u64, u64)>,
}

impl Host {
    /// The time that the threads `whom` lost to what is different in `without`: of each its life x (1 - got / would have got).
    pub fn lost(&self, without: &Host, whom: impl Fn(&Thread) -> bool) -> f64 {
        let (with, without) = (self.run(), without.run());
        let pairs = with.tasks.iter().zip(&without.tasks).zip(&self.threads);
        let one = |((is, would), thread): ((&Task, &Task), &Thread)| {
            let share = is.exec_ns as f64 / would.exec_ns.max(1) as f64;
            if whom(thread) { is.lived_ns as f64 * (1.0 - share).max(0.0) / 1e9 } else { 0.0 }
        };
        pairs.map(one).sum()
    }

    /// Let it run for the window.
    pub fn run(&self) -> Seen {
        let mut states: Vec<State> = self.threads.iter().map(|thread| self.born(thread)).collect();
        let mut nexts: Vec<(usize, bool)> =
            states.iter().zip(&self.threads).map(|(state, thread)| state.next(thread)).collect();
        let mut left: Vec<i64> = self.groups.iter().map(|g| g.quota_ms.map_or(0, i64::from)).collect();
        let mut cpu: Vec<CgroupCpu> = self.groups.iter().map(|group| self.cpu_of(group)).collect();
        let (mut bitten, mut used) = (vec![false; left.len()], vec![false; left.len()]);
        let mut seen = Seen { busy: vec![(0, 0); self.cpus as usize], ..Seen::default() };
        for now in 0..WINDOW {
            if now % PERIOD == 0 {
                for at in 0..left.len() {
                    let Some(quota) = self.groups[at].quota_ms else { continue };
                    left[at] = i64::from(quota) + left[at].min(0);
                    cpu[at].periods += u64::from(used[at]);
                    cpu[at].throttled_periods += u64::from(bitten[at]);
                    (bitten[at], used[at]) = (false, false);
                }
            }
            for (at, next) in nexts.iter_mut().enumerate().filter(|(_, next)| next.0 <= now) {
                states[at].wake(&self.threads[at], now);
                *next = states[at].next(&self.threads[at]);
            }
            let want: Vec<usize> = (0..nexts.len()).filter(|at| nexts[*at].1).collect();
            self.give(want.clone(), &mut states, &mut left, &mut bitten, &mut used, &mut cpu, now, &mut seen);
            for at in want {
                nexts[at] = states[at].next(&self.threads[at]);
            }
        }
        for (state, thread) in states.iter_mut().zip(&self.threads) {
            state.close(WINDOW.min(thread.life.1));
        }
        seen.tasks = states.into_iter().map(|state| state.row).collect();
        seen.cgroups =
            self.groups.iter().zip(cpu).enumerate().map(|(at, (g, cpu))| self.row(at, g, cpu)).collect();
        seen
    }

    /// A millisecond of every CPU goes to somebody of those who want one.
    #[allow(clippy::too_many_arguments)]
    fn give(
        &self,
        mut order: Vec<usize>,
        states: &mut [State],
        left: &mut [i64],
        bitten: &mut [bool],
        used: &mut [bool],
        cpu: &mut [CgroupCpu],
        now: usize,
        seen: &mut Seen,
    ) {
        let mut free: Vec<bool> = vec![true; self.cpus as usize];
        for (cpu, from, to) in &self.stolen {
            if (*from..*to).contains(&now) {
                free[*cpu as usize] = false;
            }
        }
        // Who runs goes on for a slice of some ms.
        let place = |at: &usize| {
            let (state, thread) = (&states[*at], &self.threads[*at]);
            let bonus = if matches!(state.is, Is::Runs(_)) { 4 } else { 0 };
            (std::cmp::Reverse(thread.priority), state.got.saturating_sub(bonus), thread.pid)
        };
        order.sort_by_key(place);
        for at in order {
            let (thread, state) = (&self.threads[at], &mut states[at]);
            let above = self.above(thread.group);
            let stopped = above.iter().find(|g| self.groups[**g].quota_ms.is_some() && left[**g] <= 0);
            if let Some(stopped) = stopped.filter(|_| thread.policy == 0) {
                bitten[*stopped] = true;
                cpu[*stopped].throttled_ns += MS;
                state.waits(now);
                continue;
            }
            let may = |cpu: u32| match thread.mask.is_empty() {
                true => !self.isolated.contains(&cpu),
                false => thread.mask.contains(&cpu),
            };
            let fits = |cpu: &u32| may(*cpu) && free[*cpu as usize];
            let Some(on) = Some(state.cpu).filter(fits).or_else(|| (0..self.cpus).find(fits)) else {
                if let Some((cpu, ..)) =
                    self.stolen.iter().find(|(c, from, to)| may(*c) && (*from..*to).contains(&now))
                {
                    seen.busy[*cpu as usize].1 += 1;
                }
                state.waits(now);
                continue;
            };
            free[on as usize] = false;
            seen.busy[on as usize].0 += 1;
            for group in above {
                left[group] -= 1;
                used[group] = true;
            }
            state.runs(thread, on, now);
        }
    }

    fn above(&self, group: usize) -> Vec<usize> {
        let mut way = vec![group];
        while way.last() != Some(&0) {
            let last = way.last().copied().unwrap_or(0);
            way.push(self.groups[last].parent);
        }
        way
    }

    fn born(&self, thread: &Thread) -> State {
        let all = self.cpus - self.isolated.len() as u32;
        let default: Vec<u32> = (0..self.cpus).filter(|cpu| !self.isolated.contains(cpu)).collect();
        let mask = if thread.mask.is_empty() { &default } else { &thread.mask };
        let id = group_id(thread.group);
        let row = Task {
            pid: thread.pid,
            tgid: thread.tgid,
            ppid: thread.ppid,
            comm: thread.comm.clone(),
            cpu_cgroup: id,
            memory_cgroup: id,
            io_cgroup: id,
            unified_cgroup: id,
            lived_ns: (thread.life.1.min(WINDOW) - thread.life.0) as u64 * MS,
            born: thread.life.0 > 0,
            ended: thread.life.1 < WINDOW,
            folded: thread.folded,
            kthread: thread.kernel,
            allowed: listed(mask),
            allowed_count: if thread.mask.is_empty() { all } else { thread.mask.len() as u32 },
            policy: thread.policy,
            weight: 1024,
            ..Task::default()
        };
        State { row, cpu: mask.first().copied().unwrap_or(0), ..State::default() }
    }

    fn cpu_of(&self, group: &Group) -> CgroupCpu {
        let quota_ns = group.quota_ms.map(|ms| u64::from(ms) * MS);
        CgroupCpu { weight: 1024, quota_ns, period_ns: PERIOD as u64 * MS, ..CgroupCpu::default() }
    }

    fn row(&self, at: usize, group: &Group, cpu: CgroupCpu) -> Cgroup {
        let memory = CgroupMemory { usage: 90 << 20, limit: group.memory_limit, ..CgroupMemory::default() };
        Cgroup {
            id: group_id(at),
            parent: if at == 0 { 0 } else { group_id(group.parent) },
            controllers: ["cpu", "memory", "io", "unified"].map(str::to_owned).to_vec(),
            name: group.path.rsplit('/').next().unwrap_or_default().to_owned(),
            path: group.path.clone(),
            files: Some(format!("/sys/fs/cgroup{}", group.path.trim_end_matches('/'))),
            cpu: Some(cpu),
            memory: Some(memory),
            ..Cgroup::default()
        }
    }
}

impl State {
    fn wake(&mut self, thread: &Thread, now: usize) {
        if now == thread.life.0 || (now == 0 && thread.life.0 == 0) {
            (self.is, self.since) = (Is::Ready, now);
            self.begin(thread, now);
        }
        if now == thread.life.1 {
            self.close(now);
            self.is = Is::Gone;
        }
        if self.is == Is::Sleeps && now >= self.due {
            self.step += 1;
            self.begin(thread, now);
        }
    }

    /// The next step of the script.
    fn begin(&mut self, thread: &Thread, now: usize) {
        let next = match thread.script[self.step % thread.script.len()] {
            Do::Run(ms) => (Is::Ready, ms),
            Do::Sleep(ms) => (Is::Sleeps, ms),
        };
        // The millisecond in which it falls asleep counts.
        (self.left, self.due) = (next.1, now + next.1.saturating_sub(1) as usize);
        if next.0 != self.is && !(next.0 == Is::Ready && matches!(self.is, Is::Runs(_))) {
            self.close(now);
            (self.is, self.since) = (next.0, now);
        }
    }

    fn waits(&mut self, now: usize) {
        if self.is != Is::Ready {
            self.close(now);
            (self.is, self.since) = (Is::Ready, now);
            self.row.involuntary += 1;
        }
    }

    fn runs(&mut self, thread: &Thread, on: u32, now: usize) {
        if self.is != Is::Runs(on) {
            self.close(now);
            (self.is, self.since, self.cpu) = (Is::Runs(on), now, on);
            self.row.switches_in += 1;
        }
        self.got += 1;
        self.left -= 1;
        if self.left == 0 {
            self.step += 1;
            self.begin(thread, now + 1);
        }
    }

    /// The stretch ends.
    fn close(&mut self, now: usize) {
        let ms = now.saturating_sub(self.since) as u64;
        let (ns, row) = (ms * MS, &mut self.row);
        if ms == 0 {
            return;
        }
        match self.is {
            Is::Runs(_) => {
                row.exec_ns += ns;
                row.traced_ns += ns;
                self.awake += ns >> 10;
            }
            Is::Ready => {
                row.runnable_ns += ns;
                row.run_delay_ns += ns;
                row.runnable_worst_ns = row.runnable_worst_ns.max(ns);
                row.runnable_count += 1;
                self.awake += ns >> 10;
            }
            Is::Sleeps => {
                row.sleep_ns += ns;
                row.sleep_worst_ns = row.sleep_worst_ns.max(ns);
                row.sleep_count += 1;
                row.voluntary += 1;
                let (awake, rest) = (self.awake, ns >> 10);
                row.cycles += 1;
                row.awake += awake;
                row.rest += rest;
                row.awake_awake += awake * awake;
                row.awake_rest += awake * rest;
                row.rest_rest += rest * rest;
                self.awake = 0;
            }
            Is::Unborn | Is::Gone => {}
        }
        self.since = now;
    }
}

pub fn group_id(at: usize) -> u64 {
    at as u64 + 1
}

/// "0-3,8".
pub fn listed(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut().filter(|last| last.1 + 1 == *cpu) {
            Some(last) => last.1 = *cpu,
            None => ranges.push((*cpu, *cpu)),
        }
    }
    let one = |(from, to): &(u32, u32)| if from == to { format!("{from}") } else { format!("{from}-{to}") };
    ranges.iter().map(one).collect::<Vec<_>>().join(",")
}
