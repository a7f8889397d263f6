//! A wait, prepared for the tables: its functions without those that every sleep passes through.

use whyslow_model::timeline::{Context, Span, State};

use super::Stacks;
use crate::stacks::symbol;
use crate::stacks::syscalls::syscall_name;

/// Functions that every sleep passes through: they explain nothing. kernel/sched/core.c, kernel/time/sleep_timeout.c,
/// kernel/sched/wait.c, kernel/sched/wait_bit.c.
const GENERIC: &[&str] = &[
    "__schedule",
    "schedule",
    "schedule_idle",
    "schedule_user",
    "schedule_preempt_disabled",
    "preempt_schedule",
    "preempt_schedule_common",
    "preempt_schedule_irq",
    "preempt_schedule_notrace",
    "preempt_schedule_thunk",
    "__cond_resched",
    "_cond_resched",
    "schedule_timeout",
    "schedule_hrtimeout",
    "schedule_hrtimeout_range",
    "schedule_hrtimeout_range_clock",
    "io_schedule",
    "io_schedule_timeout",
    "blk_io_schedule",
    "rt_mutex_schedule",
    "wait_woken",
    "bit_wait",
    "bit_wait_io",
    "bit_wait_timeout",
    "bit_wait_io_timeout",
    "__wait_on_bit",
    "__wait_on_bit_lock",
    "out_of_line_wait_on_bit",
    "out_of_line_wait_on_bit_lock",
    "out_of_line_wait_on_bit_timeout",
    "wait_on_bit",
    "wait_on_bit_io",
    "do_wait_intr",
    "do_wait_intr_irq",
    "__raw_callee_save___pv_queued_spin_unlock",
    "perf_trace_sched_switch",
    "ret_from_fork",
    "ret_from_fork_asm",
];

/// One wait.
#[derive(Debug)]
pub(crate) struct WaitContext<'a> {
    pub span: &'a Span,
    pub stacks: &'a Stacks<'a>,
    /// Functions, innermost first, without generic and unknown ones.
    pub frames: &'a [&'a str],
    /// The system call, unless the task came into the kernel by a fault: then the register that holds the call's number
    /// is the fault's error code.
    pub call: Option<u32>,
}

impl<'a> WaitContext<'a> {
    pub fn of(span: &'a Span, stacks: &'a Stacks<'a>) -> Self {
        let frames = stacks.functions(span.stack);
        let call = span.syscall.filter(|_| came_by_call(frames));
        WaitContext { span, stacks, frames, call }
    }

    /// The innermost function that is not generic.
    pub fn first(&self) -> Option<&'a str> {
        self.frames.first().copied()
    }

    /// One of these functions is on the stack.
    pub fn passes(&self, functions: &[&str]) -> bool {
        self.frames.iter().any(|frame| functions.contains(frame))
    }

    /// The caller of the innermost of these functions, skipping all of them.
    pub fn beyond(&self, functions: &[&str]) -> Option<&'a str> {
        self.frames.iter().copied().find(|frame| !functions.contains(frame))
    }

    /// "read", "futex"; `None`: no system call.
    pub fn call_name(&self) -> Option<String> {
        self.call.map(|nr| syscall_name(nr).into_owned())
    }

    /// An argument of the system call.
    pub fn arg(&self, at: usize) -> u64 {
        self.span.args.get(at).copied().unwrap_or_default()
    }

    /// The usual name of the block device for which the task last queued I/O.
    pub fn device(&self) -> String {
        let dev = self.span.device.as_deref().or_else(|| self.device_file());
        dev.map_or_else(|| "a block device".to_owned(), |dev| self.stacks.device(dev))
    }

    /// The device of the task's file: right for reads of plain file systems.
    fn device_file(&self) -> Option<&'a str> {
        let target = self.span.target.as_ref()?;
        // Major 0: no device of its own (tmpfs, network, btrfs).
        (target.kind == "file" && !target.dev.is_empty() && !target.dev.starts_with("0:"))
            .then_some(target.dev.as_str())
    }

    /// The scheduler, or the stack, shows that the wait is for I/O.
    pub fn is_io(&self) -> bool {
        self.span.state == State::Io
    }

    /// The task is a kernel thread.
    pub fn is_kthread(&self) -> bool {
        self.frames.last().is_some_and(|last| KTHREADS.contains(last))
    }

    /// A timer ended the wait. Timers fire in interrupts; their functions are on the waker's stack, if that was taken.
    /// kernel/time/hrtimer.c, kernel/time/sleep_timeout.c.
    pub fn ended_by_timer(&self) -> bool {
        let Some(waker) = &self.span.waker else { return false };
        if self.stacks.kernel(waker.stack).is_empty() {
            // Block devices end I/O in hard interrupts, too: so this counts only if the wait is not for I/O.
            return waker.context == Context::Hardirq && !self.is_io();
        }
        self.woken_by_timer()
    }

    /// The same, only where the waker's stack shows it.
    pub fn woken_by_timer(&self) -> bool {
        let Some(waker) = &self.span.waker else { return false };
        if !matches!(waker.context, Context::Hardirq | Context::Softirq) {
            return false;
        }
        let stack = self.stacks.kernel(waker.stack);
        const TIMERS: &[&str] =
            &["hrtimer_wakeup", "process_timeout", "hrtimer_run_queues", "__hrtimer_run_queues"];
        stack.iter().any(|frame| TIMERS.contains(&symbol(frame)))
    }
}

/// The outermost functions of kernel threads. kernel/kthread.c; io_uring's and vhost's are threads of a user's process.
const KTHREADS: &[&str] = &["kthread", "kthreadd", "io_wq_worker", "io_sq_thread", "vhost_task_fn"];

/// The stack does not refute that the task is in a system call: an interrupt or fault, or a kernel thread, refutes it.
fn came_by_call(frames: &[&str]) -> bool {
    frames.last().is_none_or(|last| !last.starts_with("asm_") && !KTHREADS.contains(last))
}

/// The functions of a stack without generic and unknown ones.
pub(crate) fn meaningful(stack: &[String]) -> Vec<&str> {
    let symbols = stack.iter().map(|frame| symbol(frame));
    symbols.filter(|f| !f.is_empty() && !f.starts_with("0x") && !GENERIC.contains(f)).collect()
}
