//! Nested cgroups, some of which have a limit: a CPU quota, or one on memory or on block I/O.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::Draw;
use crate::cgroup::{Group, IoLimit};
use crate::scenario::{Form, TestBed};
use crate::spec::{Spec, Work};

mod shapes;
use shapes::{ALONE, Level, Shape};

/// Largest share of the demand that a limit grants, where no scenario gives a more exact share.
const AT_MOST: f64 = 0.25;
/// A limit this close to the demand may or may not have to change: the test does not decide.
const UNCLEAR: f64 = 0.3;

/// Nested groups with their limits. The groups of the last level are alike, and contain the victims.
#[derive(Clone)]
pub struct Tree {
    levels: Vec<(Vec<Group>, Level)>,
    /// Limits above the victim's own have no effect.
    flat: bool,
    /// The share of the demand that the binding limit grants.
    bite: f64,
}

impl Tree {
    /// For CPU quotas.
    pub fn of_quotas(testbed: &TestBed<'_>, form: Form, draw: &mut Draw) -> io::Result<Self> {
        Tree::one_of(&shapes::quotas(), testbed, form, draw)
    }

    /// For limits on memory.
    pub fn draw(testbed: &TestBed<'_>, form: Form, draw: &mut Draw) -> io::Result<Self> {
        Tree::one_of(&shapes::memory(), testbed, form, draw)
    }

    /// For limits on block I/O.
    pub fn of_io(testbed: &TestBed<'_>, form: Form, draw: &mut Draw) -> io::Result<Self> {
        let flat = testbed.fence.top().io_is_flat()?;
        let mut tree = Tree::one_of(&shapes::io(flat, form == Form::Twin), testbed, form, draw)?;
        tree.flat = flat;
        Ok(tree)
    }

    /// Draw and make a tree. A false-positive control has one level: how much of a burst waits for its limit depends on that level alone.
    fn one_of(shapes: &[Shape], testbed: &TestBed<'_>, form: Form, draw: &mut Draw) -> io::Result<Self> {
        let shape = match form {
            Form::Control => ALONE,
            Form::Fault | Form::Twin => draw.pick(shapes),
        };
        let (mut above, mut levels) = (String::new(), Vec::new());
        for (depth, level) in shape.levels.iter().enumerate() {
            let siblings = if depth + 1 == shape.levels.len() { shape.siblings } else { 1 };
            let labels: Vec<String> = (0..siblings).map(|_| format!("{above}{}", draw.word(6))).collect();
            let groups = labels.iter().map(|label| testbed.fence.group(label));
            levels.push((groups.collect::<io::Result<Vec<_>>>()?, *level));
            above = labels.into_iter().next().unwrap_or_default() + "/";
        }
        Ok(Tree { levels, flat: false, bite: AT_MOST })
    }

    /// Draw the share of the demand that the binding limit grants, so that it is clear for each other limit whether it must change.
    pub fn bite(&mut self, draw: &mut Draw, [least, most]: [f64; 2]) -> f64 {
        const DRAWS: usize = 100;
        for _ in 0..DRAWS {
            self.bite = draw.real(least, most);
            if self.limits().iter().all(|limit| (self.gives(limit) - 1.0).abs() > UNCLEAR) {
                break;
            }
        }
        self.bite
    }

    /// The victim's spec: its workers are distributed over the siblings, as processes of their own.
    pub fn spec(&self, testbed: &TestBed<'_>, comm: &str, threads: u64, work: Work) -> Spec {
        let homes = &self.levels[self.levels.len() - 1].0;
        let mut spec =
            testbed.fence.spec(self.leaf(), comm, threads.next_multiple_of(homes.len() as u64), work);
        if homes.len() > 1 {
            spec.apart = true;
            spec.among = homes.iter().map(Group::procs_files).collect();
        }
        spec
    }

    /// Number of groups that contain the victim.
    pub fn siblings(&self) -> usize {
        self.levels[self.levels.len() - 1].0.len()
    }

    /// The victim's group; the first one of several siblings.
    pub fn leaf(&self) -> &Group {
        &self.levels[self.levels.len() - 1].0[0]
    }

    /// The outermost group.
    pub fn outermost(&self) -> &Group {
        &self.levels[0].0[0]
    }

    /// The group whose limit binds; the innermost one of several equal limits.
    pub fn binding(&self) -> &Group {
        self.binding_limit().map_or(self.leaf(), |limit| &limit.groups[0])
    }

    /// Paths of the groups whose limits must change, the binding one first.
    pub fn must_change(&self) -> Vec<String> {
        let mut tight: Vec<Limit<'_>> = self.limits();
        tight.retain(|limit| self.gives(limit) < 1.0);
        tight.reverse();
        tight.sort_by(|a, b| b.load().total_cmp(&a.load()));
        tight.iter().flat_map(|limit| limit.groups).map(|group| group.path().to_owned()).collect()
    }

    /// Limits that can delay the victim, the outermost first.
    fn limits(&self) -> Vec<Limit<'_>> {
        let own = self.levels.len() - 1;
        let levels = self.levels.iter().enumerate().filter(|(depth, _)| !self.flat || *depth == own);
        levels.filter_map(|(_, (groups, level))| level.map(|times| Limit { groups, times })).collect()
    }

    fn binding_limit(&self) -> Option<Limit<'_>> {
        self.limits().into_iter().max_by(|a, b| a.load().total_cmp(&b.load()))
    }

    /// The multiple of the limit that binds.
    fn unit(&self) -> u32 {
        self.binding_limit().map_or(1, |limit| limit.times)
    }

    /// The share of its demand that a limit grants its group.
    fn gives(&self, limit: &Limit<'_>) -> f64 {
        self.bite * f64::from(limit.times) / f64::from(self.unit()) * limit.groups.len() as f64
    }

    /// Number of times that memory reached a binding limit, in any of the groups that have it.
    pub fn limit_hits(&self) -> io::Result<u64> {
        let tight = self.levels.iter().filter(|(_, level)| *level == Some(1));
        tight.flat_map(|(groups, _)| groups).map(Group::limit_hits).sum()
    }

    /// Set the binding memory limit, and the others with it; `None`: lift all.
    pub fn set_memory(&self, limit: Option<u64>) -> io::Result<()> {
        self.each(|group, times| group.set_memory_limit(limit.map(|limit| limit * u64::from(times))))
    }

    /// Set the binding limit on block I/O, and the others with it; `None`: lift all.
    pub fn set_io(&self, disk: &str, write: bool, limit: Option<IoLimit>) -> io::Result<()> {
        let times = |number: u64, times: u32| (number * u64::from(times) / u64::from(self.unit())).max(1);
        self.each(|group, multiple| {
            let limit = limit.map(|limit| match limit {
                IoLimit::Bytes(number) => IoLimit::Bytes(times(number, multiple)),
                IoLimit::Requests(number) => IoLimit::Requests(times(number, multiple)),
            });
            group.set_io_limit(disk, write, limit)
        })
    }

    /// Set the binding quota for each period, and the others with it; `None`: lift all.
    pub fn set_quota(&self, quota: Option<(Duration, Duration)>) -> io::Result<()> {
        match quota {
            // A child's quota must never exceed its parent's: set the outermost first, lift it last.
            Some((quota, period)) => self.each(|group, times| group.set_quota(Some((quota * times, period)))),
            None => {
                let mut groups = self.levels.iter().rev().flat_map(|(groups, _)| groups);
                groups.try_for_each(|group| group.set_quota(None))
            }
        }
    }

    /// Let each group with a quota save up this much.
    pub fn set_burst(&self, burst: Duration) -> io::Result<()> {
        self.each(|group, _| group.set_burst(burst))
    }

    /// For each group that has a limit, the outermost first.
    fn each(&self, act: impl Fn(&Group, u32) -> io::Result<()>) -> io::Result<()> {
        let limited = self.levels.iter().filter_map(|(groups, level)| Some((groups, (*level)?)));
        limited
            .flat_map(|(groups, times)| groups.iter().map(move |group| (group, times)))
            .try_for_each(|(group, times)| act(group, times))
    }
}

/// The limit of one level.
struct Limit<'t> {
    groups: &'t [Group],
    times: u32,
}

impl Limit<'_> {
    /// How soon the limit binds: its group's share of all work, divided by the limit.
    fn load(&self) -> f64 {
        1.0 / (self.groups.len() as f64 * f64::from(self.times))
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = |(groups, level): &(Vec<Group>, Level)| {
            let limit = level.map_or("none".to_owned(), |times| format!("x {times}"));
            if groups.len() > 1 { format!("{} siblings {limit}", groups.len()) } else { limit }
        };
        let levels: Vec<String> = self.levels.iter().map(level).collect();
        f.write_str(&levels.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(shape: &Shape, flat: bool, bite: f64) -> Tree {
        let place = |depth: usize, at: usize| Group::nowhere(&format!("/{depth}.{at}"));
        let last = shape.levels.len() - 1;
        let groups =
            |depth| (0..if depth == last { shape.siblings } else { 1 }).map(move |at| place(depth, at));
        let levels = shape.levels.iter().enumerate();
        let levels = levels.map(|(depth, level)| (groups(depth).collect(), *level)).collect();
        Tree { levels, flat, bite }
    }

    fn asked(levels: &'static [Level], siblings: usize, flat: bool, bite: f64) -> (String, Vec<String>) {
        let tree = tree(&Shape { levels, siblings }, flat, bite);
        (tree.binding().path().to_owned(), tree.must_change())
    }

    #[test]
    fn of_those_alike_the_innermost_binds_and_all_must_change() {
        let (binding, all) = asked(&[Some(1), Some(1), None], 1, false, 0.4);
        assert_eq!((binding.as_str(), all), ("/1.0", vec!["/1.0".to_owned(), "/0.0".to_owned()]));
    }

    #[test]
    fn a_wider_one_must_change_if_it_gives_less_than_is_wanted() {
        assert_eq!(asked(&[Some(2), Some(1)], 1, false, 0.2).1, ["/1.0", "/0.0"]);
        assert_eq!(asked(&[Some(12), Some(1)], 1, false, 0.2).1, ["/1.0"]);
        assert_eq!(asked(&[Some(1), Some(2)], 1, false, 0.2).1, ["/0.0", "/1.0"]);
    }

    #[test]
    fn siblings_share_what_is_above_them() {
        assert_eq!(asked(&[Some(1), None], 2, false, 0.6).1, ["/0.0"]);
        // Each group's demand is half of the whole: 0.3 of the whole is less than that, 0.6 is not.
        assert_eq!(asked(&[Some(1), Some(1)], 2, false, 0.3).1, ["/0.0", "/1.0", "/1.1"]);
        assert_eq!(asked(&[Some(1), Some(1)], 2, false, 0.6).1, ["/0.0"]);
    }

    #[test]
    fn where_all_are_flat_the_victims_own_is_the_one() {
        assert_eq!(asked(&[Some(1), Some(12)], 1, true, 0.3), ("/1.0".to_owned(), vec!["/1.0".to_owned()]));
        assert_eq!(asked(&[Some(1), None], 1, true, 0.3), ("/1.0".to_owned(), vec![]));
    }
}
