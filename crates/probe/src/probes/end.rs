//! The end of a window: every probe gives what it saw.

use std::path::Path;
use std::time::Duration;

use whyslow_model::{Missing, MissingNote};

use super::{Probes, Traced, keep};
use crate::bpf::{
    blkio, calls, connect, dma_latency, ipi, irq, irq_latency, locks, memory, napi, oncpu, pidns, sched,
    tasks, work,
};
use crate::listeners;

impl Probes<'_> {
    /// The window ends: everything stops at about the same time.
    pub fn end(&mut self, window: Duration, missing: &mut Vec<MissingNote>) -> Traced {
        let (start, code) = (std::mem::take(&mut self.start), std::mem::take(&mut self.code));
        let mut traced = Traced { start, code, ..Traced::default() };
        // What follows takes its time: a call that was counted meanwhile would be longer than the window.
        if let Some(calls) = &mut self.calls {
            keep(calls.stop(), missing);
        }
        if let Some(pidns) = &self.pidns {
            traced.numbers = keep(pidns.numbers(), missing);
            if pidns.is_full() {
                let reason =
                    "more were born than are remembered: of those that ended some are reported as if outside";
                missing.push(Missing::skipped(pidns::WHAT, reason).into());
            }
        }
        traced.speeds = self.speeds.take().map(|speeds| speeds.end(missing));
        if let Some(locks) = &mut self.locks {
            locks.end(window);
        }
        // Of a whole host nobody waits for one task's end.
        if let Some(sched) = self.sched.as_ref().filter(|_| self.calls.is_some()) {
            sched.let_the_dead_leave(traced.numbers.as_ref());
        }
        if let Some(sched) = &mut self.sched {
            sched.mark();
        }
        // The kernel's totals and ours are compared: nothing is done between these two that takes time.
        if let Some(tasks) = &mut self.tasks {
            traced.end = keep(tasks.snapshot(), missing);
        }
        if let Some(sched) = self.sched.take()
            && let Some((seen, lost)) = keep(sched.finish(), missing)
        {
            if !seen.without_wakers.is_zero() {
                let ms = seen.without_wakers.as_millis();
                let reason = format!("for {ms} ms of the window a CPU had too many switches to ask at each");
                missing.push(Missing::skipped("who woke whom", reason).into());
            }
            missing.extend(seen.rows.missing().into_iter().map(MissingNote::from));
            traced.sched = Some(seen);
            traced.note_lost(sched::WHAT, lost);
        }
        self.end_waits(&mut traced, missing);
        if let Some(tasks) = &self.tasks {
            traced.note_lost(tasks::WHAT, tasks.lost());
        }
        if let Some(oncpu) = &mut self.oncpu {
            traced.seen_on_cpu = keep(oncpu.finish(), missing).map(|seen| (seen, oncpu.pace()));
            traced.note_lost(oncpu::WHAT, oncpu.lost());
            traced.note_lost(oncpu::CODE, oncpu.without_room());
        }
        if let Some(irq) = &self.irq {
            traced.cpus = keep(irq.rows(), missing);
            traced.note_lost(irq::WHAT, irq.lost());
        }
        if let Some(napi) = &mut self.napi {
            traced.polls = keep(napi.rows(), missing);
            traced.sockets = keep(napi.sockets(window), missing);
            traced.note_lost(napi::WHAT, napi.lost());
        }
        if let Some(oncpu) = &self.oncpu
            && let Some(seen) = keep(oncpu.cpus(), missing)
        {
            traced.note_gaps(&seen);
        }
        self.end_rows(&mut traced, window, missing);
        traced
    }

    fn end_waits(&mut self, traced: &mut Traced, missing: &mut Vec<MissingNote>) {
        if let Some(locks) = self.locks.take()
            && let Some((seen, lost)) = keep(locks.finish(), missing)
        {
            traced.locks = Some(seen);
            traced.note_lost(locks::WHAT, lost);
        }
        if let Some(work) = self.work.take()
            && let Some((seen, lost)) = keep(work.finish(), missing)
        {
            traced.work = Some(seen);
            traced.note_lost(work::WHAT, lost);
        }
        if let Some(calls) = self.calls.take()
            && let Some((seen, lost)) = keep(calls.finish(), missing)
        {
            traced.calls = Some(seen);
            traced.note_lost(calls::WHAT, lost);
        }
        self.end_irq_latency(traced, missing);
    }

    fn end_irq_latency(&mut self, traced: &mut Traced, missing: &mut Vec<MissingNote>) {
        let ipi = self.ipi.take();
        if let Some(irq_latency) = self.irq_latency.take()
            && let Some((mut seen, lost)) = keep(irq_latency.finish(), missing)
        {
            seen.calls |= ipi.is_some();
            if seen.unseen > 0 {
                let reason = format!("{} were not looked at: a CPU made too many at once", seen.unseen);
                missing.push(Missing::skipped("some cross-CPU calls", reason).into());
            }
            traced.irq_latency = Some(seen);
            traced.note_lost(irq_latency::WHAT, lost + ipi.as_ref().map_or(0, ipi::Ipi::lost));
        }
    }

    fn end_rows(&mut self, traced: &mut Traced, window: Duration, missing: &mut Vec<MissingNote>) {
        if let Some(blkio) = &self.blkio {
            traced.disk = keep(blkio.rows(), missing);
            traced.note_lost(blkio::WHAT, blkio.lost());
        }
        if let Some(memory) = &self.memory {
            traced.memory = keep(memory.rows(), missing);
            traced.note_lost(memory::WHAT, memory.lost());
        }
        if let Some(connect) = &mut self.connect {
            traced.listeners = keep(listeners::full(connect), missing);
            traced.connects = keep(connect.rows(), missing);
            traced.note_lost(connect::WHAT, connect.lost());
        }
        if self.programs.is_some() && !self.is_thrifty {
            traced.latency_holders = keep(dma_latency::holders(Path::new("/")), missing);
        }
        let mut programs = self.programs.take();
        if let Some(programs) = &mut programs {
            programs.knows_entry(|| self.tasks.as_ref()?.entry_cost());
        }
        if let Some(mut programs) = programs
            && let Some((rows, own_ns)) = keep(programs.rows(window), missing)
        {
            traced.programs = Some(rows);
            traced.own_bpf_ns = own_ns;
        }
    }
}
