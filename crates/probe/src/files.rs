//! placeholder
use std::collections::BTreeMap;
use std::path::*;
use std::time::Duration;
use whyslow_model::*;
pub struct Seen {
    pub frames: Vec<Frame>,
    pub missing: Vec<MissingNote>,
}
pub enum Moment {
    Start,
    Second,
    End,
}
pub struct Files {
    m: BTreeMap<String, PathBuf>,
}
impl Files {
    pub fn open(_root: &Path) -> Files {
        Files {
            m: [("cpu", "cpu"), ("memory", "memory"), ("io", "blkio"), ("unified", "unified")]
                .into_iter()
                .map(|(a, b)| (a.to_string(), PathBuf::from("/sys/fs/cgroup").join(b)))
                .collect(),
        }
    }
    pub fn read(&mut self, _moment: Moment, at: Duration, _busiest: &[u32], seen: &mut Seen) {
        seen.frames.push(Frame { at, name: "proc/stat".into(), bytes: std::fs::read("/proc/stat").unwrap() });
    }
    pub fn read_hazardous(&mut self, _at: Duration, _deadline: Duration, _seen: &mut Seen) {}
    pub fn cgroup_mounts(&self) -> &BTreeMap<String, PathBuf> {
        &self.m
    }
}
