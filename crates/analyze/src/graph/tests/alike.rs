//! Waits that do not say themselves what they were for. The rows are those of a guest with PREEMPT_RT (6.1), where threads that
//! each tick wakes had spent the budget of stacks: a kernel thread keeps an rtmutex and sleeps in it, `who` wants it.

use whyslow_model::Recording;
use whyslow_model::chain::Chain;
use whyslow_model::timeline::{Context, LockKind, LockWait, Span, Stack, State, Waker};

use super::host::MS;
use crate::graph::chains;

const SLEPT: u32 = 7;
const TIMER: u32 = 6;
const ELSEWHERE: u32 = 8;
const KEEPER: u32 = 109;

fn stack(id: u32, frames: &[&str]) -> Stack {
    Stack { id, kernel: frames.iter().map(|&frame| frame.to_owned()).collect(), user: Vec::new() }
}

/// A wait of the keeper, ended by the thread of timers; ms.
fn kept(at: u64, woken: u64, own: Option<u32>, wakers: Option<u32>, stands: u64) -> Span {
    let waker = Waker {
        pid: 28,
        tgid: 28,
        comm: "ktimers/1".into(),
        context: Context::Softirq,
        stack: wakers,
        ..Waker::default()
    };
    Span {
        pid: KEEPER,
        tgid: KEEPER,
        comm: "kkraytc".into(),
        at_ns: at * MS,
        woken_ns: woken * MS,
        to_ns: woken * MS,
        state: State::Blocked,
        waker: Some(waker),
        stack: own,
        sampled_wait_ns: stands * MS,
        ..Span::default()
    }
}

/// What was seen: the second wait has no stack at all, and the third one's stands for both.
fn seen() -> [Span; 4] {
    [
        kept(319, 410, Some(SLEPT), Some(TIMER), 91),
        kept(471, 563, None, None, 0),
        kept(637, 729, Some(SLEPT), Some(TIMER), 184),
        kept(792, 884, Some(SLEPT), Some(TIMER), 92),
    ]
}

/// Somebody wants the lock during each of the keeper's waits, a while after it began.
fn wanted(kept: &Span, window: u64) -> Span {
    let lock =
        LockWait { address: 9, kind: LockKind::Rtmutex, write: true, owner: KEEPER, ..LockWait::default() };
    let at_ns = kept.at_ns + 10 * MS;
    let waker = Waker {
        pid: KEEPER,
        tgid: KEEPER,
        comm: "kkraytc".into(),
        context: Context::Task,
        ..Waker::default()
    };
    Span {
        pid: 107,
        tgid: 107,
        comm: "hrjgdyo".into(),
        at_ns,
        woken_ns: if kept.open { window } else { kept.woken_ns },
        to_ns: if kept.open { window } else { kept.woken_ns },
        state: State::Blocked,
        open: kept.open,
        lock: Some(LockWait { since_ns: at_ns, owner_again: KEEPER, ..lock }),
        waker: Some(waker).filter(|_| !kept.open),
        ..Span::default()
    }
}

/// Rows of one thread touch.
fn touching(mut spans: Vec<Span>) -> Vec<Span> {
    let mut from = 0;
    for span in &mut spans {
        span.from_ns = from;
        span.mixed.running_ns = span.at_ns - from;
        from = span.to_ns;
    }
    spans
}

/// The time that is told as the keeper's sleep, and all that is told; ms.
fn told(kept: &[Span]) -> (u64, u64) {
    let mut rec = Recording::default();
    rec.meta.window_ns = 900 * MS;
    let mut spans = touching(kept.to_vec());
    spans.extend(touching(kept.iter().map(|kept| wanted(kept, 900 * MS)).collect()));
    rec.tables.spans = Some(spans);
    rec.tables.stacks = Some(vec![
        stack(SLEPT, &["tend_shelf", "tend_rounds", "helper", "loops", "kthread", "ret_from_fork"]),
        stack(ELSEWHERE, &["tend_desk", "tend_rounds", "helper", "loops", "kthread", "ret_from_fork"]),
        stack(TIMER, &["try_to_wake_up", "hrtimer_wakeup", "__hrtimer_run_queues", "run_timersd"]),
    ]);
    let chains = chains(&rec);
    let sum = |by: &dyn Fn(&Chain) -> bool| {
        chains.iter().filter(|chain| by(chain)).map(|chain| chain.time.as_millis() as u64).sum()
    };
    (
        sum(&|chain| chain.leaf.name == "kkraytc" && chain.hops[1].detail.to_string().contains("tend_shelf")),
        sum(&|_| true),
    )
}

#[test]
fn a_wait_without_a_stack_was_for_what_the_stacks_say_that_stand_for_it() {
    assert_eq!(told(&seen()), (81 + 82 + 82 + 82, 81 + 82 + 82 + 82));
}

#[test]
fn it_is_nobodys_where_no_stack_stands_for_it_or_they_disagree_or_it_ended_otherwise() {
    let but = |change: &dyn Fn(&mut [Span; 4])| {
        let mut rows = seen();
        change(&mut rows);
        told(&rows)
    };
    assert_eq!(but(&|rows| rows[2].sampled_wait_ns = 92 * MS), (81 + 82 + 82, 327), "its time is not in it");
    assert_eq!(but(&|rows| rows[0].stack = Some(ELSEWHERE)), (82 + 82, 327), "it was elsewhere before");
    assert_eq!(but(&|rows| rows[0].stack = None), (82 + 82, 327), "nothing speaks for it before");
    assert_eq!(but(&|rows| rows[2].syscall = Some(0)), (81 + 82 + 82, 327), "in another call");
    let by_task = |rows: &mut [Span; 4]| rows[1].waker.as_mut().unwrap().context = Context::Task;
    assert_eq!(but(&by_task), (81 + 82 + 82, 327), "somebody woke it");
}

#[test]
fn what_ended_at_the_same_place_unseen_or_has_not_ended_was_for_the_same() {
    let mut rows = seen();
    rows[2].waker.as_mut().unwrap().stack = None;
    (rows[3].open, rows[3].waker, rows[3].woken_ns, rows[3].to_ns) = (true, None, 900 * MS, 900 * MS);
    assert_eq!(told(&rows), (81 + 82 + 82 + 98, 81 + 82 + 82 + 98));
    rows[3].stack = Some(ELSEWHERE);
    assert_eq!(told(&rows), (81 + 82 + 82, 81 + 82 + 82 + 98));
}
