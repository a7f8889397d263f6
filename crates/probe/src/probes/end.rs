//! The end of a window: collects the results of every probe.

use std::time::Duration;

use whyslow_model::{Missing, MissingNote};

use super::probe::{Probe, note_lost};
use super::{Probes, Traced, keep};
use crate::bpf::{pidns, sched, tasks};

impl Probes<'_> {
    /// The window ends: all probes stop at about the same time.
    pub fn end(&mut self, window: Duration, missing: &mut Vec<MissingNote>) -> Traced {
        let (start, code) = (std::mem::take(&mut self.start), std::mem::take(&mut self.code));
        let mut traced = Traced { start, code, followed: self.followed.clone(), ..Traced::default() };
        // The rest takes time: a call that was counted meanwhile would be longer than the window.
        self.tell(missing, |probe| probe.stop(window));
        // The counts of programs that are gone are not known.
        if let Some(programs) = &mut self.programs {
            programs.disable();
        }
        self.end_numbers(&mut traced, missing);
        traced.tables.speeds = self.speeds.take().map(|speeds| speeds.end(missing));
        // If the whole host is observed, nothing depends on one task's end.
        if let Some(sched) = self.sched.as_ref().filter(|_| self.follows) {
            sched.await_exits(traced.numbers.as_ref());
        }
        if let Some(sched) = &mut self.sched {
            sched.mark();
        }
        // The kernel's totals and ours are compared: no slow work may come between these two.
        if let Some(tasks) = &mut self.tasks {
            traced.end = keep(tasks.snapshot(), missing);
        }
        self.end_scheduler(&mut traced, missing);
        for (_, probe) in &mut self.running {
            keep(traced.take(probe.as_mut(), window, missing), missing);
        }
        if let Some(tasks) = &self.tasks {
            note_lost(&mut traced.lost, tasks::WHAT, tasks.lost());
        }
        self.end_programs(&mut traced, window, missing);
        traced
    }

    /// Call a method of each probe; a probe that fails is dropped.
    pub(super) fn tell(
        &mut self,
        missing: &mut Vec<MissingNote>,
        mut tell: impl FnMut(&mut dyn Probe) -> Result<(), Missing>,
    ) {
        self.running.retain_mut(|(_, probe)| keep(tell(probe.as_mut()), missing).is_some());
    }

    fn end_numbers(&self, traced: &mut Traced, missing: &mut Vec<MissingNote>) {
        let Some(pidns) = &self.pidns else { return };
        traced.numbers = keep(pidns.numbers(), missing);
        if pidns.is_full() {
            let reason =
                "more tasks were born than can be remembered: some that ended are reported as if outside";
            missing.push(Missing::skipped(pidns::WHAT, reason).into());
        }
    }

    fn end_scheduler(&mut self, traced: &mut Traced, missing: &mut Vec<MissingNote>) {
        let Some(sched) = self.sched.take() else { return };
        let Some((seen, lost)) = keep(sched.finish(), missing) else { return };
        if !seen.without_wakers.is_zero() {
            let ms = seen.without_wakers.as_millis();
            let reason = format!("for {ms} ms of the window a CPU had too many switches to check each");
            missing.push(Missing::skipped("which task woke which", reason).into());
        }
        if !seen.tells_ready {
            let what = "the sender whose data ended a wait for several sockets, or in an io_uring".to_owned();
            missing.push(Missing::NotInKernel { what, needs: "Linux 6.3".to_owned() }.into());
        }
        if !seen.tells_refused {
            let what = "the holder of a file lock that other processes try to take repeatedly".to_owned();
            let needs = "the tracepoints posix_lock_inode and flock_lock_inode".to_owned();
            missing.push(Missing::NotInKernel { what, needs }.into());
        }
        missing.extend(seen.ends_missing.clone().map(MissingNote::from));
        missing.extend(seen.rows.missing().into_iter().map(MissingNote::from));
        traced.sched = Some(seen);
        note_lost(&mut traced.lost, sched::WHAT, lost);
    }

    fn end_programs(&mut self, traced: &mut Traced, window: Duration, missing: &mut Vec<MissingNote>) {
        let Some(mut programs) = self.programs.take() else { return };
        programs.knows_entry(|| self.tasks.as_ref()?.entry_cost());
        if let Some((rows, own_ns)) = keep(programs.rows(window), missing) {
            traced.tables.programs = Some(rows);
            traced.own_bpf_ns = own_ns;
        }
    }
}
