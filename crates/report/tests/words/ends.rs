//! Ways in which a chain may end.

use whyslow_model::chain::Chain;
use whyslow_model::wait::Note;
use whyslow_model::{Culprit, Hop, SubjectKind};

use crate::sample::waits::{chain, hop, noted, task};

fn unknown() -> Culprit {
    Culprit::new(SubjectKind::Kernel, "unknown", "not known")
}

/// Ways in which a chain ends.
pub fn all() -> Vec<Chain> {
    let after = |edge: &str, waits_for: &str, last: Hop, pids: &'static [u32], leaf: Culprit| {
        let state = if edge == "runnable" { "runnable" } else { "uninterruptible" };
        let first: (Hop, &[u32]) = (hop(edge, "db", state, waits_for, 0.2), &[1, 2, 3, 4, 5, 6, 7, 8]);
        chain(0.2, 1, 0.2, vec![first, (last, pids)], leaf)
    };
    let stop = |edge: &str, who: &str, state: &str, what: &str| hop(edge, who, state, what, 0.2);
    let timer = Culprit::new(SubjectKind::Kernel, "a timer", "a timer");
    let shared = Culprit::new(SubjectKind::Cpu, "cpu", "a CPU that others use, too");
    let open = stop("open", "", "unknown", "no wakeup came in the window");
    let unseen = stop("unexplained", "", "unknown", "its waker was not seen");
    vec![
        after("futex", "a futex", stop("timer", "", "unknown", "a timer"), &[], timer),
        noted(after("completion", "a completion in x", open, &[], unknown()), &[Note::Open]),
        after("unix-socket", "data from a unix socket", unseen, &[], unknown()),
        after("lock", "mutex m", stop("unexplained", "web", "unknown", "not explained"), &[9], unknown()),
        after(
            "thread",
            "a thread to end",
            stop("not-begun", "web", "unknown", "it had not begun"),
            &[9],
            unknown(),
        ),
        after("runnable", "a CPU", stop("running", "", "running", "short runs of other tasks"), &[], shared),
        after(
            "work",
            "a work item",
            stop("running", "kworker (f)", "running", "on CPU"),
            &[9],
            task(9, "kworker (f)"),
        ),
        after("epoll", "events", stop("unknown", "web", "sleeping", "something"), &[9], unknown()),
    ]
}
