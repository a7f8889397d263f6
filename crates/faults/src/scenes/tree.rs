//! Nested cgroups, some of which have a limit: a CPU quota, or one on memory.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::Draw;
use crate::cgroup::Group;
use crate::scene::{Form, Stage};

/// What a level's limit is, as a multiple of the one that binds; `None`: it has none. The outermost level first.
type Level = Option<u32>;

/// Shapes that every kernel takes: v1 refuses a child more CPU than its parent has (kernel/sched/core.c, tg_cfs_schedulable_down).
const SHAPES: [&[Level]; 7] = [
    &[Some(1)],
    &[None, Some(1)],
    &[Some(1), None],
    // As Kubernetes sets them: the pod's is its container's.
    &[Some(1), Some(1)],
    &[Some(4), Some(1)],
    &[None, Some(1), None, Some(1)],
    &[Some(1), Some(1), None, None],
];

/// Groups, each in the one before, with their limits. The victim is in the last.
#[derive(Clone)]
pub struct Tree {
    levels: Vec<(Group, Level)>,
}

impl Tree {
    /// Draw and make one. A decoy has one level: how much of a burst waits for the next period depends on that alone.
    pub fn draw(stage: &Stage<'_>, form: Form, draw: &mut Draw) -> io::Result<Self> {
        let shape = match form {
            Form::Decoy => SHAPES[0],
            Form::Fault | Form::Twin => draw.pick(&SHAPES),
        };
        let mut label = String::new();
        let mut levels = Vec::new();
        for level in shape {
            label = format!("{label}/{}", draw.word(6));
            levels.push((stage.fence.group(label.trim_start_matches('/'))?, *level));
        }
        Ok(Tree { levels })
    }

    /// The victim's group.
    pub fn leaf(&self) -> &Group {
        &self.levels[self.levels.len() - 1].0
    }

    /// The group around all.
    pub fn outermost(&self) -> &Group {
        &self.levels[0].0
    }

    /// The group whose limit binds; of several that are alike the innermost.
    pub fn binding(&self) -> &Group {
        let binding = self.levels.iter().rev().find(|(_, level)| *level == Some(1));
        binding.map_or(self.leaf(), |(group, _)| group)
    }

    /// Paths of the groups whose limits must change, the binding one first.
    pub fn must_change(&self) -> Vec<String> {
        let tight = self.levels.iter().rev().filter(|(_, level)| *level == Some(1));
        tight.map(|(group, _)| group.path().to_owned()).collect()
    }

    /// Times that memory met a limit that binds, in any of the groups that have it.
    pub fn limit_hits(&self) -> io::Result<u64> {
        let tight = self.levels.iter().filter(|(_, level)| *level == Some(1));
        tight.map(|(group, _)| group.limit_hits()).sum()
    }

    /// Set the memory limit that binds, and with it the others; `None`: lift all.
    pub fn set_memory(&self, limit: Option<u64>) -> io::Result<()> {
        self.levels.iter().try_for_each(|(group, level)| match level {
            Some(times) => group.set_memory_limit(limit.map(|limit| limit * u64::from(*times))),
            None => Ok(()),
        })
    }

    /// Set the quota that binds, each period, and with it the others; `None`: lift all.
    pub fn set_quota(&self, quota: Option<(Duration, Duration)>) -> io::Result<()> {
        match quota {
            // A child may never have more than its parent: the outermost first, and lifted last.
            Some((quota, period)) => self.levels.iter().try_for_each(|(group, level)| match level {
                Some(times) => group.set_quota(Some((quota * *times, period))),
                None => Ok(()),
            }),
            None => self.levels.iter().rev().try_for_each(|(group, _)| group.set_quota(None)),
        }
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = |level: &Level| level.map_or("none".to_owned(), |times| format!("x {times}"));
        let levels: Vec<String> = self.levels.iter().map(|(_, of)| level(of)).collect();
        f.write_str(&levels.join(", "))
    }
}
