//! The days, by their fault.

use std::fmt;

use whyslow_faults::Form;

use crate::days::locks::How;

/// The fault of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Day {
    /// A crowd with more weight.
    Weight,
    /// A crowd with the same weight.
    Number,
    /// A crowd in the same cgroup with a lower nice value.
    Nice,
    /// Real programs that compute.
    Programs,
    /// The same, beside processes that live for milliseconds.
    ShortLived,
    /// A quota, beside a crowd of little weight that keeps all CPUs busy.
    Quota,
    /// Small reads behind large ones.
    Reads,
    /// An fsync behind the writes of other processes.
    Fsync,
    /// Another process streams through the page cache of both.
    Evicted,
    /// A process drops all caches again and again.
    Dropped,
    /// The heap of another process fills the memory limit of a cache ...
    Heap,
    /// ... or a file that a process left in a tmpfs.
    Tmpfs,
    /// The holder of a file's lock sleeps.
    Asleep(How),
    /// It computes.
    AtWork(How),
    /// The holder was stopped.
    Stopped(How),
    /// A tracer stops it at each of its system calls.
    Traced,
    /// A service that was stopped.
    ServiceStopped,
    /// A service that answers one client after the other.
    OneThread,
    /// A service that sleeps before each answer.
    ServiceSleeps,
    /// A service that sends a request to a service that sleeps.
    Upstream,
    /// ... through some more relays; the last service may also be stopped.
    Relays,
    /// A service whose threads all sleep before their answers, with more clients than threads.
    Pool,
    /// A service whose threads all wait for an event that never comes: it answers no client.
    PoolStuck,
    /// A service whose processes all sleep before their answers (1), or wait for an event that never comes (2), also at an epoll of their
    /// own (3), with more clients than processes.
    Prefork(u64),
    /// A service with a thread that holds the interpreter's lock for its own work.
    Interpreter,
    /// A daemon that grants permission to open files, and sleeps before it does.
    Guard,
    /// A service whose cgroup has a quota.
    ServiceThrottled,
    /// A service of little weight beside a crowd.
    ServiceCrowded,
    /// A service that reads a disk behind another process.
    ServiceReads,
    /// The reader of a connection sleeps or computes between two messages.
    SlowReader,
    /// A file system that is frozen.
    Frozen,
    /// A daemon's file system, which sleeps before it answers a read.
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
