//! How long which CPUs were idle, and how much of a task's waiting other tasks can have caused.
//!
//! The source is the counters of each CPU, where they were recorded; else the CPU time of the tasks, as far as that sets a bound.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use whyslow_model::table::Task;

use crate::Evidence;
use crate::cpu::allowed::{Allowed, Cpus};

/// Time of each CPU over the window, in ns.
#[derive(Debug, Default)]
pub struct Times {
    /// By CPU: idle time, and time that the hypervisor had it.
    known: BTreeMap<u32, (f64, f64)>,
    /// CPU time of the tasks of each mask (`Allowed::masks`).
    had: Vec<f64>,
    /// ... of tasks whose mask is not known.
    had_anywhere: f64,
    /// Time that the CPUs of this mask were busy at most, by mask, computed on demand: masks are few, tasks are many.
    busy: Vec<OnceCell<f64>>,
    cpu: f64,
}

impl Times {
    /// Of a window of `cpu` ns.
    pub fn of(ev: &Evidence<'_>, tasks: &[Task], allowed: &Allowed, cpu: f64) -> Self {
        let rows = ev.cpu_time_by_cpu().unwrap_or_default().into_iter();
        let ns = |time: std::time::Duration| (time.as_nanos() as f64).min(cpu);
        let known = rows.map(|(cpu, time)| (cpu, (ns(time.idle + time.iowait), ns(time.steal)))).collect();
        let masks = allowed.masks().len();
        let busy = vec![OnceCell::new(); masks];
        let mut times = Times { known, had: vec![0.0; masks], had_anywhere: 0.0, busy, cpu };
        for (at, task) in tasks.iter().enumerate() {
            match allowed.number(at).and_then(|mask| times.had.get_mut(mask)) {
                Some(had) => *had += task.exec_ns as f64,
                None => times.had_anywhere += task.exec_ns as f64,
            }
        }
        times
    }

    fn counted(&self, cpus: &Cpus) -> Option<(f64, f64)> {
        let mut sum = (0.0, 0.0);
        for cpu in cpus.iter() {
            let (idle, stolen) = self.known.get(&cpu)?;
            sum = (sum.0 + idle, sum.1 + stolen);
        }
        Some(sum)
    }

    fn all_of(&self, cpus: &Cpus) -> f64 {
        f64::from(cpus.count()) * self.cpu
    }

    /// CPU time of the tasks that may use none but these CPUs.
    fn had_within(&self, cpus: &Cpus, allowed: &Allowed) -> f64 {
        let within = allowed.masks().iter().zip(&self.had).filter(|(mask, _)| mask.are_in(cpus));
        within.map(|(_, had)| had).sum()
    }

    /// Idle time of these CPUs, if all of them were counted.
    pub fn idle(&self, cpus: &Cpus) -> Option<f64> {
        Some(self.counted(cpus)?.0)
    }

    /// Idle time of these CPUs: an upper bound.
    pub fn idle_at_most(&self, cpus: &Cpus, allowed: &Allowed) -> f64 {
        match self.counted(cpus) {
            Some((idle, _)) => idle,
            None => (self.all_of(cpus) - self.had_within(cpus, allowed)).max(0.0),
        }
    }

    /// Idle time of `outside`: a lower bound, if `outside` and `others` together had `idle` left over.
    pub fn idle_at_least(&self, outside: &Cpus, others: &Cpus, idle: f64, allowed: &Allowed) -> f64 {
        match self.counted(outside) {
            Some((counted, _)) => counted.min(idle),
            None => (idle - self.idle_at_most(others, allowed)).clamp(0.0, self.all_of(outside)),
        }
    }

    /// CPU time of whyslow itself on `outside`: a lower bound, if it had `own` on `outside` and `others` together. What the tasks of the
    /// others had there was not its own.
    pub fn own_at_least(&self, outside: &Cpus, others: &Cpus, own: f64, allowed: &Allowed) -> f64 {
        let free = match self.counted(others) {
            Some((idle, stolen)) => self.all_of(others) - idle - stolen,
            None => self.all_of(others),
        };
        (own - (free - self.had_within(others, allowed)).max(0.0)).clamp(0.0, self.all_of(outside))
    }

    /// The time that a task can have waited at most because others had its CPUs: it waits for others only while all of its CPUs are busy.
    /// A task that waits while one of them is idle waits for that CPU to wake up, or for the scheduler, as it would on any other CPU.
    pub fn behind_others(&self, mask: usize, exec_ns: u64, allowed: &Allowed) -> f64 {
        let Some(cpus) = allowed.masks().get(mask) else { return f64::INFINITY };
        let near = || {
            let near = allowed.masks().iter().zip(&self.had).filter(|(other, _)| other.meet(cpus));
            near.map(|(_, had)| had).sum::<f64>() + self.had_anywhere
        };
        let busy = || match self.counted(cpus) {
            Some((idle, stolen)) => self.all_of(cpus) - idle - stolen,
            None => near(),
        };
        let busy = self.busy.get(mask).map_or_else(busy, |known| *known.get_or_init(busy));
        let others = busy.min(self.all_of(cpus)) - exec_ns as f64;
        (others / f64::from(cpus.count().max(1))).max(0.0)
    }
}
