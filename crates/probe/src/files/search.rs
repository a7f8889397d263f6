//! Finds the files for the patterns of the table, and notes what was left out.

use std::time::Duration;

use whyslow_model::Missing;

use super::budget::Budget;
use super::cgroups::{self, Mounts};
use super::devices::{self, Device, Place};
use super::namespaces::Namespaces;
use super::row_result::note;
use super::{Files, ROWS, RawFiles};

/// CPU time for finding cgroups, and the same for finding network namespaces. A process costs 10 us: /proc makes
/// three inodes to show its namespace.
const SEARCH: Duration = Duration::from_millis(100);
/// Limit by the clock: it is enough on a host with a load of 20 per CPU.
const SEARCH_CLOCK: Duration = Duration::from_secs(1);

impl Files {
    pub(super) fn find_things(&mut self, seen: &mut RawFiles) {
        let noted = &mut self.noted;
        self.devices = devices::discover(&self.root, &self.limits.devices, |kind, all, taken| {
            let reason = format!("{taken} of {all} are read");
            note(Missing::skipped(format!("some of {{{kind}}}"), reason), noted, seen);
        });
        let mut mounts = Mounts::find(&self.root);
        if mounts.is_empty() && self.root.live {
            mounts = self.mounts_by_child();
        }
        if mounts.is_empty() {
            let what = "sys/fs/cgroup".to_owned();
            let missing = if self.root.live {
                Missing::NotInKernel { what, needs: "a mounted cgroup hierarchy".to_owned() }
            } else {
                Missing::NotRecorded { what }
            };
            note(missing, &mut self.noted, seen);
        }
        self.mounts = mounts.by_controller(&self.root);
        let (budget, noted) = (Budget::new(SEARCH, SEARCH_CLOCK), &mut self.noted);
        cgroups::discover(
            &self.root,
            &mounts,
            self.limits.cgroups,
            budget,
            &mut self.devices,
            |base, taken, left| {
                let reason = format!("{taken} are read, at least {left} more are there");
                note(Missing::cut_short(base, reason), noted, seen);
            },
        );
    }

    /// mountinfo waits for mounts in progress, so the child reads it here, too.
    fn mounts_by_child(&mut self) -> Mounts {
        let path = c"proc/self/mountinfo".to_owned();
        let row = ROWS.iter().find(|row| row.id == "mountinfo").expect("the table has mountinfo");
        let wanted = [(row, Place { name: "proc/self/mountinfo".to_owned(), path })];
        let (answers, _) = self.ask_child(Duration::from_millis(200), &wanted, row.cap + 1);
        answers.first().map(|(_, text)| Mounts::parse(text)).unwrap_or_default()
    }

    pub(super) fn find_namespaces(&mut self, seen: &mut RawFiles) {
        if !self.root.live {
            let mut found = Vec::new();
            let most = self.limits.namespaces;
            let _ = self.root.list(c"netns", |name, is_dir| {
                if is_dir && name.iter().all(u8::is_ascii_digit) {
                    found.push(Device::new(name, false));
                }
                found.len() < most
            });
            self.devices.insert("netns".to_owned(), found);
            return;
        }
        let budget = Budget::new(SEARCH, SEARCH_CLOCK);
        let found = Namespaces::find(&self.root, self.limits.namespaces, budget);
        let devices = found.devices();
        let reason = match (found.left, found.unfinished, found.hidden) {
            (0, false, 0) => None,
            (0, false, hidden) => Some(format!("the namespaces of {hidden} processes may not be read")),
            (left, false, _) => Some(format!("{} are read, {left} more are there", devices.len())),
            (..) => Some("this host has too many processes to check all of them".to_owned()),
        };
        if let Some(reason) = reason {
            note(Missing::skipped("some network namespaces", reason), &mut self.noted, seen);
        }
        self.devices.insert("netns".to_owned(), devices);
        self.namespaces = found;
    }
}
