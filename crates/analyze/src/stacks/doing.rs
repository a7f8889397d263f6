//! What tasks did on a CPU, from samples.

use std::collections::BTreeMap;

use whyslow_model::table::Sample;
use whyslow_model::wait::{Detail, Spin, WaitTarget};

use crate::hashing::Table;
use crate::stacks::{named_or_file, symbol};

mod kernel;
mod spinning;
mod traced;

/// What a task did on a CPU: code of its program, of the kernel, or kernel code that burns CPU to wait.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Doing(pub Detail);

impl Doing {
    /// The function at work, where known.
    #[must_use]
    pub fn function(&self) -> Option<&str> {
        match &self.0 {
            Detail::UserCode { function } => function.as_deref(),
            Detail::KernelCode { function, .. } | Detail::Spinning { function, .. } => Some(function),
            _ => None,
        }
    }

    /// The name for several that are too small to be reported alone: the system call that the task was in, or the program.
    pub(crate) fn family(&self) -> Option<Detail> {
        match &self.0 {
            Detail::KernelCode { function, inside } => {
                let inside = inside.as_deref().unwrap_or_else(|| kernel::plain(function)).to_owned();
                Some(Detail::KernelCodeIn { inside })
            }
            Detail::UserCode { function: Some(_) } => Some(WaitTarget::OtherUserCode.into()),
            _ => None,
        }
    }

    /// Whether it burned CPU to wait.
    pub(crate) fn is_spinning(&self) -> bool {
        matches!(self.0, Detail::Spinning { .. })
    }

    /// ... until other CPUs had answered.
    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.0, Detail::Spinning { whom: Spin::Cpus, .. })
    }
}

/// What was seen on CPU, by thread.
#[derive(Debug, Default)]
pub struct OnCpu<'r> {
    by_pid: Table<u32, Vec<&'r Sample>>,
}

impl<'r> OnCpu<'r> {
    /// From these samples.
    #[must_use]
    pub fn of(samples: &'r [Sample]) -> Self {
        let mut by_pid: Table<u32, Vec<&Sample>> = Table::default();
        for sample in samples {
            by_pid.entry(sample.pid).or_default().push(sample);
        }
        OnCpu { by_pid }
    }

    /// What thread `pid` did on CPU: (what, parts of 1.0 that add up to 1), the largest first. Empty: no samples.
    #[must_use]
    pub fn did(&self, pid: u32) -> Vec<(Doing, f64)> {
        self.did_where(pid, |_| true)
    }

    /// ... in kernel code of `pid` that runs in a system call or work function of this name.
    #[must_use]
    pub fn did_below(&self, pid: u32, function: &str) -> Vec<(Doing, f64)> {
        self.did_where(pid, |sample| sample.kernel.iter().any(|frame| symbol(frame) == function))
    }

    fn did_where(&self, pid: u32, wanted: impl Fn(&Sample) -> bool) -> Vec<(Doing, f64)> {
        let rows = self.by_pid.get(&pid).map_or(&[][..], Vec::as_slice);
        did(rows.iter().copied().filter(|sample| wanted(sample)))
    }

    /// The number of samples of thread `pid`.
    pub(crate) fn count(&self, pid: u32) -> u64 {
        let rows = self.by_pid.get(&pid).into_iter().flatten();
        rows.fold(0, |sum, sample| sum.saturating_add(sample.count))
    }

    /// The samples, by thread.
    pub(crate) fn by_pid(&self) -> impl Iterator<Item = (u32, &[&'r Sample])> {
        self.by_pid.iter().map(|(pid, samples)| (*pid, &**samples))
    }
}

/// What these samples show: (what, parts of 1.0 that add up to 1), the largest first.
pub(crate) fn did<'s>(samples: impl Iterator<Item = &'s Sample>) -> Vec<(Doing, f64)> {
    let mut seen: BTreeMap<Doing, u64> = BTreeMap::new();
    for sample in samples.filter(|sample| sample.count > 0) {
        let count = seen.entry(doing(sample)).or_default();
        *count = count.saturating_add(sample.count);
    }
    let all: f64 = seen.values().map(|count| *count as f64).sum();
    let mut parts: Vec<_> = seen.into_iter().map(|(doing, count)| (doing, count as f64 / all)).collect();
    // Equal parts by name, so that the same recording gives the same order.
    parts.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    parts
}

/// What one sample shows.
#[must_use]
pub fn doing(sample: &Sample) -> Doing {
    let frames: Vec<&str> = sample.kernel.iter().map(|f| symbol(f)).filter(|f| !f.is_empty()).collect();
    if sample.kernel.is_empty() {
        return in_user_mode(sample);
    }
    if traced::is_own(&frames) {
        return Doing(WaitTarget::OwnTracing.into());
    }
    if let Some((function, whom)) = spinning::of(&frames) {
        return Doing(Detail::Spinning { whom, function: function.to_owned() });
    }
    Doing(match kernel::at_work(&frames) {
        Some((function, inside)) => {
            Detail::KernelCode { function: function.to_owned(), inside: inside.map(str::to_owned) }
        }
        None => WaitTarget::KernelCode.into(),
    })
}

/// The kernel function at work, if a frame is more than entry code and generic code.
#[must_use]
pub(crate) fn function_at_work<'f>(frames: &[&'f str]) -> Option<&'f str> {
    kernel::at_work(frames).map(|(function, _)| function).filter(|function| !kernel::is_anybodys(function))
}

/// The system call that a thread was in at a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InCall<'s> {
    /// In this call.
    Of(&'s str),
    /// In its program, or on the way into a call or out of one: the kernel's frames do not show which call.
    Untold,
    /// In an interrupt, a fault, or in a thread of the kernel.
    Other,
}

pub(crate) fn in_call(sample: &Sample) -> InCall<'_> {
    let mut frames = sample.kernel.iter().map(|frame| symbol(frame)).filter(|frame| !frame.is_empty());
    if let Some(call) = frames.clone().find_map(kernel::call) {
        return InCall::Of(call);
    }
    match frames.all(kernel::is_entry_of_calls) {
        true => InCall::Untold,
        false => InCall::Other,
    }
}

/// Whether the code spins until other CPUs have answered.
#[must_use]
pub(crate) fn asks_cpus(sample: &Sample) -> bool {
    let frames: Vec<&str> = sample.kernel.iter().map(|f| symbol(f)).filter(|f| !f.is_empty()).collect();
    spinning::of(&frames).is_some_and(|(_, whom)| whom == Spin::Cpus)
}

/// Whether the innermost of these frames burns CPU to wait.
#[must_use]
pub(crate) fn spins(frames: &[&str]) -> bool {
    spinning::of(frames).is_some()
}

/// The innermost function, if it has a name: its caller is another function. Without a name, its file: otherwise each instruction of a
/// stripped program would be a row of its own.
fn in_user_mode(sample: &Sample) -> Doing {
    let named = |frame: &&String| !frame.is_empty() && !frame.starts_with('[');
    Doing(Detail::UserCode {
        function: sample.user.first().filter(named).map(|frame| named_or_file(frame).into_owned()),
    })
}

#[cfg(test)]
mod tests;
