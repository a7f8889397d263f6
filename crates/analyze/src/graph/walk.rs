//! The way down from a root: whom it has led through, in which time each is waited for, and since when he has been asked.

/// Longer chains, and ways from a waiter to the next, are not followed: no report could print one. Of so many threads each is looked at.
pub(super) const DEEPEST: usize = 32;

/// The way from the root to where we are.
pub(super) struct Walk {
    /// Tasks whose stretch holds this one, and that stretch. Each waits for the next, so that to meet one again is a cycle.
    above: Vec<Above>,
    /// What was found depends on `above`, or was cut short: it holds here only.
    pub here_only: bool,
    /// The longer wait of which the one that is followed is a part.
    pub whole: Option<(u64, u64)>,
    /// A wait of the root for something to do is its own: nobody else is to be told of.
    pub served: bool,
    /// When the next one was asked, since the window began, as far as is known.
    asks: Option<i64>,
}

#[derive(Debug, Clone, Copy)]
struct Above {
    pid: u32,
    stretch: (u64, u64),
    asked_at: Option<i64>,
}

impl Walk {
    pub fn new(served: bool) -> Self {
        Walk { above: Vec::new(), here_only: false, whole: None, served, asks: None }
    }

    /// From a wait of this thread.
    pub fn from(pid: u32) -> Self {
        let mut walk = Walk::new(false);
        walk.enter(pid, (0, u64::MAX));
        walk
    }

    /// The next one is looked at, for this stretch or the longer wait that it is a part of ...
    pub fn enter(&mut self, pid: u32, stretch: (u64, u64)) {
        let (asked_at, stretch) = (self.asks.take(), self.whole.take().unwrap_or(stretch));
        self.above.push(Above { pid, stretch, asked_at });
    }

    /// ... no more.
    pub fn leave(&mut self) {
        self.above.pop();
    }

    /// Whoever is followed next was asked then.
    pub fn asks(&mut self, at: Option<i64>) {
        self.asks = at;
    }

    /// When the one that we look at was asked.
    pub fn asked_at(&self) -> Option<i64> {
        self.above.last().and_then(|above| above.asked_at)
    }

    /// In which the one that we look at does what another waits for; `None`: nobody does.
    pub fn stretch(&self) -> Option<(u64, u64)> {
        self.above.last().filter(|_| self.above.len() > 1).map(|above| above.stretch)
    }

    /// In which those of one process do what somebody else waits for.
    pub fn stretch_of(&self, is_its: impl Fn(u32) -> bool) -> Option<(u64, u64)> {
        let first = self.above.iter().position(|above| is_its(above.pid)).filter(|at| *at > 0)?;
        self.above.get(first).map(|above| above.stretch)
    }

    /// It is the root's own wait.
    pub fn is_at_top(&self) -> bool {
        self.above.len() == 1
    }

    /// Not to be met again.
    pub fn is_new(&self, pid: u32) -> bool {
        self.above.iter().all(|above| above.pid != pid)
    }

    /// Who waits above has had no answer when the window ends: a watch that was looked at meanwhile is not what it waits for.
    pub fn lasts(&self, window: u64) -> bool {
        self.stretch().is_some_and(|(_, to)| to >= window)
    }

    /// No report could print what is below.
    pub fn is_deep(&self) -> bool {
        self.above.len() >= DEEPEST
    }
}
