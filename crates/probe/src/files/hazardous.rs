//! The rows with a hazard: which of them may be read here at all, and the answers of the disposable child.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use whyslow_model::{FileSnapshot, Missing};

use super::devices::Place;
use super::ipis::{self, Ipis};
use super::row_result::{RowResult, note};
use super::{Files, Hazard, ROWS, Rate, RawFiles, Row, child, child_protocol, non_rx_cpus};

impl Files {
    /// Reads the rows with a hazard, once, in a disposable child that is left behind at the deadline. The processes
    /// are those of the last `read`.
    pub fn read_hazardous(&mut self, at: Duration, deadline: Duration, seen: &mut RawFiles) {
        self.strays.retain(|&pid| !child::reaped_before(pid, Instant::now()));
        let mut wanted = self.hazardous_places(seen);
        let buffer_len = wanted.iter().map(|(row, _)| row.cap).max().unwrap_or(0) + 1;
        let (answers, why) = if self.strays.is_empty() {
            self.ask_child(deadline, &wanted, buffer_len)
        } else {
            (Vec::new(), "an earlier reader is stuck in the kernel".to_owned())
        };
        let mut answers = answers.into_iter().peekable();
        let mut index = 0_u32;
        while let Some(&(row, _)) = wanted.first() {
            let len = wanted.iter().take_while(|(other, _)| other.id == row.id).count();
            let mut result = RowResult::of(row);
            for (_, place) in wanted.drain(..len) {
                match answers.next_if(|(header, _)| header.index == index) {
                    None => result.skip(place.name, &why),
                    Some((header, bytes)) if header.errno == 0 => {
                        let snapshot = FileSnapshot { at, name: place.name, bytes };
                        result.took(snapshot, header.cut == 0, &mut self.noted, seen);
                    }
                    Some((header, _)) => {
                        result.failed(place.name, io::Error::from_raw_os_error(header.errno));
                    }
                }
                index = index.saturating_add(1);
            }
            result.settle(self.root.live, true, &mut self.noted, seen);
        }
    }

    /// Answers of the child, and why the files without an answer have none.
    pub(super) fn ask_child(
        &mut self,
        deadline: Duration,
        wanted: &[(&'static Row, Place)],
        buffer_len: usize,
    ) -> (Vec<(child::Header, Vec<u8>)>, String) {
        let files: Vec<(&CStr, usize)> =
            wanted.iter().map(|(row, place)| (place.path.as_c_str(), row.cap)).collect();
        let Ok(root) = CString::new(self.root.path.as_os_str().as_bytes()) else {
            return (Vec::new(), "the root's name holds a NUL".to_owned());
        };
        let cpus = self.quiet_cpus();
        let mut buffer = vec![0; buffer_len];
        let only_one = self.only_one.as_deref();
        let live = self.root.live;
        let ran = child::run(deadline, cpus.as_deref(), |pipe| {
            child_protocol::read_all(pipe, &root, live, only_one, &files, &mut buffer);
        });
        let mut answers = match ran {
            Ok(answers) => answers,
            Err(err) => return (Vec::new(), format!("cannot start its reader: {err}")),
        };
        self.strays.extend(answers.stray);
        let name = |at: usize| wanted.get(at).map_or("it", |(_, place)| place.name.as_str());
        let last = answers.all.pop_if(|(header, _)| header.index >= child::OTHER).map(|(header, _)| header);
        let done = answers.all.len();
        let why = match last {
            Some(header) if header.index == child::OTHER => "another whyslow is reading, or stuck".to_owned(),
            Some(header) => {
                let took = header.took_ns / 1_000_000;
                format!("{}, read before it, took {took} ms", name(done.saturating_sub(1)))
            }
            None if answers.late => format!("{} did not answer in time", name(done)),
            None => "its reader ended early".to_owned(),
        };
        (answers.all, why)
    }

    /// Files with a hazard that may be read here, in the order of the table.
    fn hazardous_places(&mut self, seen: &mut RawFiles) -> Vec<(&'static Row, Place)> {
        let mut wanted = Vec::new();
        let mut ipis = None;
        for row in ROWS.iter().filter(|row| row.hazardous()) {
            let places = self.places(row);
            if places.is_empty() {
                RowResult::of(row).settle(self.root.live, false, &mut self.noted, seen);
                continue;
            }
            if let Some(reason) = self.forbidden(row, &mut ipis) {
                if places.iter().any(|place| self.root.exists(&place.path)) {
                    note(Missing::skipped(row.pattern, reason), &mut self.noted, seen);
                }
                continue;
            }
            wanted.extend(places.into_iter().map(|place| (row, place)));
        }
        wanted
    }

    /// Why a row must not be read on this kernel at all.
    fn forbidden(&self, row: &Row, ipis: &mut Option<Ipis>) -> Option<&'static str> {
        if !self.root.live {
            return None;
        }
        if row.read == Rate::Never {
            return Some("reading it interrupts another CPU and waits for it");
        }
        if !row.hazards.contains(&Hazard::SendsIpisBefore518) {
            return None;
        }
        match ipis.get_or_insert_with(|| ipis::on_reading_frequency(&self.root)) {
            Ipis::None => None,
            Ipis::Sent => Some("on this kernel reading it interrupts every CPU and waits for them"),
            Ipis::Unknown => Some("reading it may interrupt every CPU: neither BTF nor kallsyms can be read"),
        }
    }

    fn quiet_cpus(&self) -> Option<Vec<u64>> {
        let cpus = non_rx_cpus::cpus(&self.root, &self.devices, &non_rx_cpus::allowed());
        let mut set = vec![0_u64; 128];
        for &cpu in &cpus {
            if let Some(word) = set.get_mut(cpu as usize / 64) {
                *word |= 1 << (cpu % 64);
            }
        }
        (!cpus.is_empty()).then_some(set)
    }
}
