//! Waits that last when the window ends: nobody has ended them, so that only who has the other end of the connection or pipe can tell
//! what is waited for.

use whyslow_model::timeline::{OtherEnd, Span, State};
use whyslow_model::wait::{Detail, PeerAct, Thing};

use super::facts::Graph;
use super::timeline::What;
use crate::hashing::Table;
use crate::wait_reasons::Class;

/// By thread.
pub(super) fn lasting(spans: &[Span]) -> Table<u32, usize> {
    let rows = spans.iter().enumerate().filter(|(_, span)| span.open && span.other_end.is_some());
    rows.map(|(row, span)| (span.pid, row)).collect()
}

impl Graph<'_> {
    /// Whether a wait that lasts is followed to the other end: a client that has asked, or whose service has something else to do.
    /// To wait for requests or for news that nobody has asked for is a wait for something to do.
    pub fn awaits_other_end(&self, row: usize) -> bool {
        let Some((end, thread)) = self.behind_lasting(row) else { return false };
        end.client && (end.asked || self.is_kept(thread))
    }

    /// Whether it is that of a client who has asked, and the service has something else to do: a loss on a whole host, too. A service that waits
    /// for something to tell has been asked for news.
    pub fn is_unanswered(&self, row: usize) -> bool {
        let behind = self.behind_lasting(row).filter(|(end, _)| end.client && end.asked);
        behind.is_some_and(|(_, thread)| self.is_kept(thread))
    }

    /// The look that lasts of a client's longer wait: what it is for is told by that, and not by the watch that it looks at.
    pub fn lasting_look_of_client(&self, row: usize) -> Option<usize> {
        let lasting = self.lasting_look(row).filter(|lasting| *lasting != row)?;
        let end = self.spans.get(lasting)?.other_end.as_deref()?;
        end.client.then_some(lasting)
    }

    /// The thread at the other end of a wait that lasts.
    pub fn at_other_end(&self, row: usize) -> Option<u32> {
        self.behind_lasting(row).map(|(_, thread)| thread)
    }

    fn behind_lasting(&self, row: usize) -> Option<(&OtherEnd, u32)> {
        let lasting = self.spans.get(self.lasting_look(row)?)?;
        let end = lasting.other_end.as_deref()?;
        let process = self.holder_of(lasting.tgid, &end.processes)?;
        Some((end, self.one_thread(process)?))
    }

    /// Which of several processes: a parent has what it made open, too, and who waits may be one of them.
    fn holder_of(&self, own: u32, processes: &[u32]) -> Option<u32> {
        let others = || processes.iter().copied().filter(|process| *process != own);
        let is_parent = |process: u32| {
            others().any(|other| self.tasks.get(&other).is_some_and(|task| task.ppid == process))
        };
        let mut left = others().filter(|process| !is_parent(*process));
        left.next().filter(|_| left.next().is_none())
    }

    /// The only thread, or the only one that has something to do: of more nobody says which one serves that connection.
    fn one_thread(&self, process: u32) -> Option<u32> {
        let is_there = |pid: &u32| self.life(*pid).is_some_and(|(_, to)| to >= self.window);
        let mut all = self.threads_of(process).filter(is_there);
        let (first, second) = (all.next()?, all.next());
        if second.is_none() {
            return Some(first);
        }
        // A thread that keeps house sleeps of its own accord.
        let is_kept = |pid: &u32| self.is_kept(*pid) && !self.sleeps(*pid);
        let mut kept = [first].into_iter().chain(second).chain(all).filter(is_kept);
        kept.next().filter(|_| kept.next().is_none())
    }

    /// It has something to do as the window ends, or is kept from it.
    fn is_kept(&self, pid: u32) -> bool {
        match self.last_of(pid) {
            Some(What::Wait(row)) => self.keeps(row),
            Some(What::Mixed(_) | What::Ready(_)) => true,
            Some(What::Unborn | What::Gone | What::Hole) | None => false,
        }
    }

    fn sleeps(&self, pid: u32) -> bool {
        matches!(self.last_of(pid), Some(What::Wait(row)) if self.kind(row).class == Class::Voluntary)
    }

    fn last_of(&self, pid: u32) -> Option<What> {
        let line = self.lines.get(&pid)?;
        line.clip(self.window.saturating_sub(1), self.window).last().map(|piece| piece.what)
    }

    /// Pools wait for jobs as others wait for a lock, at a word of their own: it must be known that there is a lock.
    fn keeps(&self, row: usize) -> bool {
        let Some(span) = self.spans.get(row) else { return false };
        let disk = matches!(span.state, State::Io | State::Blocked);
        let kind = self.kind(row);
        match kind.class {
            Class::Handed | Class::Peer => {
                // It has asked somebody itself, or nobody takes what it sends.
                let asks = span.other_end.as_deref().is_some_and(|end| end.client && end.asked);
                let is_read = |act: &PeerAct| matches!(act, PeerAct::Send);
                asks || matches!(&*self.details.of(kind.what), Detail::Peer { act, .. } if !is_read(act))
            }
            // Who looks at a watch in a poll, or at a condition, has nothing to do.
            Class::Voluntary => *self.details.of(kind.what) == Detail::Thing(Thing::OwnSleep),
            Class::Held => disk || span.lock.is_some() || span.holder != 0,
            Class::Needed | Class::Device | Class::Limit | Class::Cpu => true,
            Class::Unknown => disk,
        }
    }
}
