//! The days, by what goes wrong.

use std::fmt;

use whyslow_faults::Form;

use crate::days::locks::How;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Day {
    /// A crowd of more weight.
    Weight,
    /// A crowd of the same weight.
    Number,
    /// A crowd of the same cgroup that is less nice.
    Nice,
    /// Real programs that compute.
    Programs,
    /// The same, beside processes that live for milliseconds.
    ShortLived,
    /// A quota, beside a crowd of little weight that leaves no CPU idle.
    Quota,
    /// Small reads behind large ones.
    Reads,
    /// An fsync behind what others write.
    Fsync,
    /// Somebody else streams through the cache of both.
    Evicted,
    /// Somebody drops all caches again and again.
    Dropped,
    /// What fills the memory limit of a cache is somebody's heap ...
    Heap,
    /// ... or what somebody has left in a tmpfs.
    Tmpfs,
    /// The holder of a file's lock sleeps.
    Asleep(How),
    /// It computes.
    AtWork(How),
    /// It was stopped.
    Stopped(How),
    /// A tracer stops it at each of its system calls.
    Traced,
    /// A service that was stopped.
    ServiceStopped,
    /// A service that answers one after the other.
    OneThread,
    /// A service that sleeps over each request.
    ServiceSleeps,
    /// A service that asks one that sleeps.
    Upstream,
    /// ... behind some more, and it may be stopped.
    Relays,
    /// A service whose threads all sleep over requests, with more clients than threads.
    Pool,
    /// A service whose threads all wait for what does not come: it answers nobody.
    PoolStuck,
    /// A service whose processes all sleep over requests (1), or wait for what does not come (2), also at an epoll of their own (3), with more clients
    /// than processes.
    Prefork(u64),
    /// A service with a thread that keeps the interpreter's lock for its own work.
    Interpreter,
    /// A daemon that gives leave to open files, and sleeps over it.
    Guard,
    /// A service whose cgroup has a quota.
    ServiceThrottled,
    /// A service of little weight beside a crowd.
    ServiceCrowded,
    /// A service that reads a disk behind somebody else.
    ServiceReads,
    /// Who reads a connection sleeps or computes between two messages.
    SlowReader,
    /// A file system that is frozen.
    Frozen,
    /// A daemon's file system, which sleeps over each read.
    Fuse,
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, more) = match self {
            Day::Asleep(how) => ("held-asleep", Some(how)),
            Day::AtWork(how) => ("held-at-work", Some(how)),
            Day::Stopped(how) => ("held-stopped", Some(how)),
            Day::Weight => ("weight", None),
            Day::Number => ("number", None),
            Day::Nice => ("nice", None),
            Day::Programs => ("programs", None),
            Day::ShortLived => ("short-lived", None),
            Day::Quota => ("quota", None),
            Day::Heap => ("heap", None),
            Day::Tmpfs => ("tmpfs", None),
            Day::Reads => ("reads", None),
            Day::Fsync => ("fsync", None),
            Day::Evicted => ("evicted", None),
            Day::Dropped => ("dropped", None),
            Day::Traced => ("traced", None),
            Day::ServiceStopped => ("service-stopped", None),
            Day::OneThread => ("one-thread", None),
            Day::ServiceSleeps => ("service-sleeps", None),
            Day::Upstream => ("upstream", None),
            Day::Relays => ("relays", None),
            Day::Pool => ("pool", None),
            Day::PoolStuck => ("pool-stuck", None),
            Day::Prefork(1) => ("prefork", None),
            Day::Prefork(2) => ("prefork-stuck", None),
            Day::Prefork(_) => ("prefork-parked", None),
            Day::Frozen => ("frozen", None),
            Day::Interpreter => ("interpreter", None),
            Day::Guard => ("guard", None),
            Day::ServiceThrottled => ("service-throttled", None),
            Day::ServiceCrowded => ("service-crowded", None),
            Day::ServiceReads => ("service-reads", None),
            Day::SlowReader => ("slow-reader", None),
            Day::Fuse => ("fuse", None),
        };
        f.write_str(name)?;
        more.map_or(Ok(()), |how| write!(f, "-{how:?}"))
    }
}

/// A day or its healthy twin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    pub day: Day,
    pub form: Form,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let twin = if self.form == Form::Fault { "" } else { "-twin" };
        write!(f, "day-{}{twin}", self.day)
    }
}
