//! Services that wait at another epoll than the one that looks at their client: a database's backend for a row lock. Of a client that has
//! asked, such a wait is no wait for something to do.

use std::collections::HashSet;

use whyslow_model::table::Task;
use whyslow_model::timeline::{Asked, Span, State};
use whyslow_model::wait::{Detail, WaitTarget};

use super::facts::{Graph, Kind};
use crate::hashing::Table;
use crate::wait_reasons::Class;

impl Graph<'_> {
    /// The kind of a wait for events at an epoll that looks at no client: its thread waits there as the window ends.
    pub fn at_another_epoll(&self, span: &Span, own: Kind) -> Option<Kind> {
        // Where something is known of what it waits for, that says more.
        let is_for_events =
            own.class == Class::Idle && *self.details.of(own.what) == Detail::Target(WaitTarget::EpollEvents);
        if !is_for_events || epoll_of(span).is_none() {
            return None;
        }
        let last = self.parked_at(span.tgid).and_then(|row| self.spans.get(row))?;
        let is_there = last.pid == span.pid && epoll_of(last) == epoll_of(span);
        let what = || self.details.id(WaitTarget::EpollElsewhere.into());
        is_there.then(|| Kind { what: what(), class: Class::Dependency, ..own })
    }

    /// Whether all of a process waits so as the window ends.
    pub fn is_parked(&self, process: u32) -> bool {
        let what = self.parked_at(process).map(|row| self.kind(row).what);
        what.is_some_and(|what| *self.details.of(what) == Detail::Target(WaitTarget::EpollElsewhere))
    }

    /// The wait of a process that looks at no client: the row of its only thread.
    fn parked_at(&self, process: u32) -> Option<usize> {
        self.parked.get_or_init(|| self.all_parked()).get(&process).copied()
    }

    /// By process. Of several threads it is not known which one was to look. A process that may have asked others waits for their answer, and one
    /// whose relatives are at work may wait for what they do for it.
    fn all_parked(&self) -> Table<u32, usize> {
        let requests = || self.rec.tables.requests.iter().flatten();
        let waits = self.spans.iter().filter(|span| span.open).filter_map(|span| span.other_end.as_deref());
        let (mut looks, mut parked) = (HashSet::new(), HashSet::new());
        for end in waits.chain(requests().map(|request| &request.other_end)) {
            if let ([process], Some(watched)) = (&end.processes[..], end.watched) {
                if watched { &mut looks } else { &mut parked }.insert(*process);
            }
        }
        let asks = requests().filter(|request| request.other_end.asked != Asked::No);
        looks.extend(asks.map(|request| request.tgid));
        parked.retain(|process| {
            !looks.contains(process)
                && self.is_of_one_thread(*process)
                && !self.has_relatives_at_work(*process)
        });
        let waits = self.spans.iter().enumerate();
        let is_one = |span: &Span| span.open && span.other_end.is_none() && epoll_of(span).is_some();
        let waits = waits.filter(|(_, span)| parked.contains(&span.tgid) && is_one(span));
        waits.map(|(row, span)| (span.tgid, row)).collect()
    }

    /// Its children and siblings, as those of a database that share a query: together they have CPUs, wait for them, or for disks, for half of the
    /// window or longer.
    fn has_relatives_at_work(&self, process: u32) -> bool {
        /// init and kthreadd have children of all sorts.
        const LAST_OF_THE_KERNELS: u32 = 2;
        let Some(own) = self.tasks.get(&process) else { return true };
        let is_sibling = |task: &Task| task.ppid == own.ppid && own.ppid > LAST_OF_THE_KERNELS;
        let relatives = self.tasks.values().copied().filter(|task| task.tgid != process);
        let relatives = relatives.filter(|task| task.ppid == process || is_sibling(task));
        let at_work = |task: &Task| task.exec_ns.saturating_add(task.runnable_ns).saturating_add(task.io_ns);
        relatives.map(at_work).fold(0, u64::saturating_add) >= self.window / 2
    }

    /// As the window ends.
    fn is_of_one_thread(&self, process: u32) -> bool {
        let is_there = |pid: &u32| self.life(*pid).is_some_and(|(_, to)| to >= self.window);
        self.threads_of(process).filter(is_there).count() == 1
    }
}

/// The descriptor of an epoll that a task waits at until an event comes, for any time: one that has a timeout may be a sleep that its client has
/// asked for. x86-64: epoll_wait, epoll_pwait, epoll_pwait2.
fn epoll_of(span: &Span) -> Option<u64> {
    let [epoll, .., timeout] = span.args;
    let is_timed = match span.syscall? {
        232 | 281 => timeout as u32 as i32 > 0,
        441 => timeout != 0,
        _ => return None,
    };
    (!is_timed && span.state == State::Sleep).then_some(epoll)
}
