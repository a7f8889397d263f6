//! Which process has the other end of a connection that a task waits at, or has asked through. The kernel half is `other_ends.bpf.h`.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore as _, MapFlags};
use whyslow_model::Missing;

use super::super::constants::other_ends_h;
use super::super::{value, walk_within};
use super::{ENDS, Sched, other_end, other_key, sched_ends};

/// A million open files take 0.2 s.
const WALK_DEADLINE: Duration = Duration::from_millis(500);
/// Two walks find the processes that an asked process has asked itself, through TCP; each unix socket on the way takes two more.
const MOST_WALKS: u32 = 16;

impl Sched<'_> {
    /// Walk all open files, if a task waits at a connection whose other end we want to know, or may have asked through one of many. Each
    /// walk finds the processes to which the walks before have led.
    pub(super) fn find_ends(&mut self) -> Result<(), Missing> {
        let wanted = |sched: &Self| sched.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.wanted);
        if wanted(self) == 0 && !self.follows {
            return Ok(());
        }
        let until = Instant::now() + WALK_DEADLINE;
        let mut asked = HashSet::new();
        let (mut walked, mut whole) = (Ok(()), 0);
        for walk in 1..=MOST_WALKS {
            let before = wanted(self);
            walked = self.walk_files(walk, until);
            whole += u32::from(walked.is_ok());
            if walked.is_err() || !self.note_asked(&mut asked) && wanted(self) == before {
                break;
            }
        }
        // The processes that an incomplete walk did not reach are not known.
        let all: Vec<_> = self.all_ends().into_iter().filter(|(_, end)| end.walk <= whole).collect();
        self.seen.other_ends = ends_by_row(&all);
        self.seen.requests = requests(&all);
        walked?;
        let unwanted = self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.unwanted);
        let too_many = || {
            Missing::skipped(
                ENDS,
                format!(
                    "too many connections, pipes and file locks are waited for: {unwanted} of their ends were not looked up"
                ),
            )
        };
        let epolls = self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.epolls_left_out);
        let too_many_epolls = || {
            let reason = format!(
                "too many tasks wait for events: for {epolls} epolls it is not known whether they watch a client"
            );
            Missing::skipped(ENDS, reason)
        };
        match (unwanted, epolls) {
            (0, 0) => Ok(()),
            (0, _) => Err(too_many_epolls()),
            _ => Err(too_many()),
        }
    }

    fn walk_files(&mut self, walk: u32, until: Instant) -> Result<(), Missing> {
        if let Some(bss) = self.skel.maps.bss_data.as_mut() {
            bss.walks = walk;
        }
        let link = self.ends.as_ref().ok_or_else(|| Missing::broken(ENDS, "files cannot be walked"))?;
        walk_within(ENDS, link, until.saturating_duration_since(Instant::now())).map(drop)
    }

    fn all_ends(&self) -> Vec<(other_key, other_end)> {
        let map = &self.skel.maps.other_ends;
        let of = |key: &Vec<u8>| map.lookup(key, MapFlags::ANY).ok()?;
        map.keys().filter_map(|key| Some((value(&key), value(&of(&key)?)))).collect()
    }

    /// Note the processes whose requests the next walk records, too: processes that have been asked, if tasks are followed. False: none.
    fn note_asked(&self, known: &mut HashSet<u32>) -> bool {
        let holders = |end: other_end| end.holders.into_iter().take(end.count as usize);
        let is_asked = |key: &other_key| self.follows && key.kind != other_ends_h::OTHER_FILE;
        let all = self.all_ends().into_iter().filter(|(key, _)| is_asked(key));
        let new = all.flat_map(|(_, end)| holders(end)).filter(|process| known.insert(*process));
        let map = &self.skel.maps.asked_processes;
        let note = |process: &u32| map.update(&process.to_ne_bytes(), &[0; 4], MapFlags::ANY).is_ok();
        new.filter(note).count() > 0
    }
}

/// By the number in the rows that want them. For a connection that was not accepted yet it is the process with the listening socket.
pub(super) fn ends_by_row(all: &[(other_key, other_end)]) -> HashMap<u32, other_end> {
    let listeners = all.iter().filter(|(key, end)| key.kind == other_ends_h::OTHER_LISTENER && end.count > 0);
    let listeners: HashMap<_, _> = listeners.map(|(key, end)| (queue(key), end)).collect();
    let ends = all.iter().filter(|(_, end)| end.index != 0);
    ends.map(|(key, end)| (end.index, or_in_queue(key, end, &listeners))).collect()
}

/// Requests of one process each.
fn requests(all: &[(other_key, other_end)]) -> Vec<(sched_ends, other_end)> {
    let by_row = ends_by_row(all);
    let is_one = |end: &other_end| end.asker != 0 && end.asker != other_ends_h::SHARED;
    let end = |end: &other_end| by_row.get(&end.index).copied();
    let requests = all.iter().filter(|(_, end)| is_one(end));
    requests.filter_map(|(key, found)| Some((address(key), end(found)?))).collect()
}

/// The address that a connection was made to.
fn address(key: &other_key) -> sched_ends {
    let family = if key.kind == other_ends_h::OTHER_INET { libc::AF_INET6 as u32 } else { 0 };
    sched_ends { family, peer: key.local, peer_port: key.local_port, ..Default::default() }
}

type Queue = (u32, u16, [u8; 16], u64);

fn queue(key: &other_key) -> Queue {
    (key.netns, key.local_port, key.local, key.object)
}

fn or_in_queue(key: &other_key, end: &other_end, listeners: &HashMap<Queue, &other_end>) -> other_end {
    let at = other_key { object: end.listener, ..*key };
    let any = other_key { local: [0; 16], ..at };
    let queued = end.may_be_queued != 0 && end.count == 0;
    let is_udp = end.listener == libc::IPPROTO_UDP as u64;
    let listener = listeners.get(&queue(&at)).or_else(|| listeners.get(&queue(&any))).filter(|_| queued);
    listener.map_or(*end, |listener| other_end {
        count: listener.count,
        holders: listener.holders,
        asked: if is_udp { listener.asked } else { other_ends_h::ASKED_QUEUED },
        ..*end
    })
}
