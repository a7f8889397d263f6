//! A recording of a long command, drawn from a seed.

use whyslow_model::Recording;
use whyslow_model::timeline::{
    Call, Command, Context, LockKind, LockWait, SlowCall, Span, Stack, State, StateTimes, Target, Waker,
    Watched,
};

use super::sample::Draw;

/// A followed command with `rows` rows of timelines.
pub fn recording(rows: u64, seed: u64) -> Recording {
    let mut draw = Draw::new(seed);
    let command =
        Command { argv: vec!["make".into(), "-j4".into()], pid: 1000, status: Some(2), ..Command::default() };
    let watched = Watched {
        subject: "make -j4".into(),
        pids: (1000..1300).collect(),
        command: Some(command),
        slow_ns: Some(100_000_000),
    };
    let mut rec = Recording::default();
    rec.meta.window_ns = 60_000_000_000;
    rec.meta.watched = Some(watched);
    rec.tables.spans = Some((0..rows).map(|i| span(i, &mut draw)).collect());
    rec.tables.stacks = Some((0..rows / 100).map(|id| stack(id as u32, &mut draw)).collect());
    rec.tables.calls = Some((0..rows / 100).map(|_| call(&mut draw)).collect());
    let slow = SlowCall { pid: 1001, ns: 200_000_000, syscall: 1, ..SlowCall::default() };
    rec.tables.slow_calls = Some(vec![slow]);
    rec
}

fn span(i: u64, draw: &mut Draw) -> Span {
    let from_ns = i * 300_000 + draw.below(300_000);
    let at_ns = from_ns + draw.below(2_000_000);
    let woken_ns = at_ns + draw.below(9_000_000);
    let pid = 1000 + draw.below(300) as u32;
    let state = [State::None, State::Runnable, State::Io, State::Blocked, State::Sleep, State::Sleep];
    let state = state[draw.below(6) as usize];
    let slept = state > State::Runnable;
    let waker = Waker { pid, tgid: pid, comm: "cc1".into(), context: Context::Task, ..Waker::default() };
    let target = Target { fd: 3, kind: "pipe".into(), ino: draw.below(1 << 20), ..Target::default() };
    let lock = LockWait {
        address: 0xffff_8880_0000_0000 | draw.below(1 << 30),
        kind: LockKind::Rwsem,
        ..LockWait::default()
    };
    Span {
        pid,
        tgid: pid / 4 * 4,
        comm: format!("worker/{}", pid % 40),
        from_ns,
        at_ns,
        woken_ns,
        to_ns: woken_ns + draw.below(100_000),
        mixed: StateTimes {
            running_ns: draw.below(1_000_000),
            sleep_ns: draw.below(2) * 77,
            ..StateTimes::default()
        },
        state,
        cpu: draw.below(16) as u32,
        waker: slept.then_some(waker),
        stack: slept.then(|| draw.below(2000) as u32),
        sampled_wait_ns: if slept { woken_ns - at_ns } else { 0 },
        syscall: slept.then(|| draw.below(300) as u32),
        args: if slept { [3, draw.below(1 << 47), 4096, 0] } else { [0; 4] },
        target: (slept && draw.below(2) == 0).then_some(target),
        lock: (state == State::Blocked).then_some(lock),
        ..Span::default()
    }
}

fn stack(id: u32, draw: &mut Draw) -> Stack {
    let kernel =
        (0..4 + draw.below(12)).map(|_| format!("function_{}+0x{:x}", draw.below(300), draw.below(64) * 4));
    Stack { id, kernel: kernel.collect(), user: Vec::new() }
}

fn call(draw: &mut Draw) -> Call {
    let split = StateTimes { running_ns: draw.below(1 << 30), ..StateTimes::default() };
    let path = Some(format!("/usr/include/file-{}.h", draw.below(5000)));
    Call {
        tgid: 1000,
        comm: "cc1".into(),
        syscall: 257,
        path,
        count: 9,
        total_ns: 1 << 20,
        split,
        ..Call::default()
    }
}
