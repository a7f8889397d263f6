//! Shapes of nested limits.

/// The limit of a level, as a multiple of the smallest; `None`: no limit.
pub type Level = Option<u32>;

/// Levels, the outermost first, and the number of groups on the last level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub levels: &'static [Level],
    pub siblings: usize,
}

const fn chain(levels: &'static [Level]) -> Shape {
    Shape { levels, siblings: 1 }
}

const fn siblings(levels: &'static [Level], siblings: usize) -> Shape {
    Shape { levels, siblings }
}

/// One group.
pub const ALONE: Shape = chain(&[Some(1)]);

/// Shapes that every kernel accepts: v1 refuses a child more CPU than its parent has (kernel/sched/core.c, tg_cfs_schedulable_down).
const CHAINS: [Shape; 7] = [
    ALONE,
    chain(&[None, Some(1)]),
    chain(&[Some(1), None]),
    // As Kubernetes sets them: the limit of the pod equals that of its container.
    chain(&[Some(1), Some(1)]),
    chain(&[Some(4), Some(1)]),
    chain(&[None, Some(1), None, Some(1)]),
    chain(&[Some(1), Some(1), None, None]),
];

/// The limit is that of the siblings' parent.
const SHARED: [Shape; 2] = [siblings(&[Some(1), None], 2), siblings(&[None, Some(1), None], 3)];

/// Shapes in which each level has a limit: the tightest outside or inside, the next one near or far.
const BOTH: [Shape; 5] = [
    chain(&[Some(2), Some(1)]),
    chain(&[Some(12), Some(1)]),
    chain(&[Some(1), Some(2)]),
    chain(&[Some(1), Some(12)]),
    chain(&[Some(12), Some(1), Some(2), Some(12)]),
];

pub fn quotas() -> Vec<Shape> {
    [&CHAINS[..], &SHARED, &[siblings(&[Some(1), Some(1)], 2)]].concat()
}

pub fn memory() -> Vec<Shape> {
    [&CHAINS[..], &SHARED, &[siblings(&[Some(1), Some(4)], 2)]].concat()
}

/// `flat`: limits above the victim's own have no effect. Then a twin is below a tight limit, and has none of its own.
pub fn io(flat: bool, twin: bool) -> Vec<Shape> {
    let own = [siblings(&[Some(1), Some(1)], 2), siblings(&[Some(1), Some(12)], 2)];
    let all = [&CHAINS[..], &BOTH, &SHARED, &own].concat();
    let has_own = |shape: &Shape| shape.levels.last().is_some_and(Option::is_some);
    let is_held = |shape: &Shape| has_own(shape) != twin && shape.siblings == 1;
    all.into_iter().filter(|shape| !flat || is_held(shape)).collect()
}
