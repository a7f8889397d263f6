//! Facts of the network: counters by network namespace, connects, listeners, BPF programs.

use std::collections::BTreeMap;

use whyslow_model::{FileSnapshot, Missing, Probe, table};

use super::Evidence;
use crate::parse::netstat::{self, Netstat};
use crate::parse::softnet::{self, Softnet};

/// Protocol counters of one network namespace, before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Netns {
    /// Its inode, as text.
    pub inode: String,
    first: Netstat,
    last: Netstat,
}

impl Netns {
    /// How much a counter rose in the window; 0 if it was reset, `None` if this kernel does not have it.
    #[must_use]
    pub fn rise(&self, protocol: &str, name: &str) -> Option<u64> {
        Some(self.last.get(protocol, name)?.saturating_sub(self.first.get(protocol, name)?))
    }
}

impl<'r> Evidence<'r> {
    /// Processes that opened TCP connections.
    pub fn connects(&self) -> Result<&'r [table::Connect], Missing> {
        self.recording()
            .tables
            .connects
            .as_deref()
            .ok_or_else(|| self.recording().why_untold(Probe::TcpConnects))
    }

    /// Listening sockets that rejected connections.
    pub fn listeners(&self) -> Result<&'r [table::Listener], Missing> {
        let tables = &self.recording().tables;
        tables.listeners.as_deref().ok_or_else(|| self.recording().why_untold(Probe::ListeningSockets))
    }

    /// BPF programs of other software.
    pub fn programs(&self) -> Result<&'r [table::Program], Missing> {
        self.recording()
            .tables
            .programs
            .as_deref()
            .ok_or_else(|| self.recording().why_untold(Probe::BpfPrograms))
    }

    /// Protocol counters of every network namespace that was recorded twice.
    pub fn netns(&self) -> Result<Vec<Netns>, Missing> {
        let mut found: BTreeMap<String, Netns> = BTreeMap::new();
        for file in ["net/netstat", "net/snmp"] {
            for (inode, first, last) in self.in_netns(file) {
                let (first, last) = (netstat_of(first)?, netstat_of(last)?);
                let known = found.remove(&inode).unwrap_or_else(|| Netns {
                    inode: inode.clone(),
                    first: Netstat::default(),
                    last: Netstat::default(),
                });
                let both = Netns { first: known.first.with(first), last: known.last.with(last), ..known };
                found.insert(inode, both);
            }
        }
        if found.is_empty() {
            return Err(self.why_not_in_netns("net/netstat"));
        }
        Ok(found.into_values().collect())
    }

    /// What each CPU did with received packets in the window. The kernel's counters wrap at 2^32.
    pub fn softnet(&self) -> Result<Vec<Softnet>, Missing> {
        let Some((_, first, last)) = self.in_netns("net/softnet_stat").into_iter().next() else {
            return Err(self.why_not_in_netns("net/softnet_stat"));
        };
        let parsed =
            |f: &FileSnapshot| softnet::parse(&text(f)).map_err(|bad| Missing::broken(f.name.clone(), bad));
        let before: BTreeMap<u32, Softnet> = parsed(first)?.into_iter().map(|s| (s.cpu, s)).collect();
        let rise = |now: Softnet| {
            let then = before.get(&now.cpu)?;
            Some(Softnet {
                cpu: now.cpu,
                processed: now.processed.wrapping_sub(then.processed),
                dropped: now.dropped.wrapping_sub(then.dropped),
                squeezed: now.squeezed.wrapping_sub(then.squeezed),
            })
        };
        Ok(parsed(last)?.into_iter().filter_map(rise).collect())
    }

    /// Why a file of network namespaces was found in none of them.
    pub(crate) fn why_not_in_netns(&self, file: &str) -> Missing {
        let names = [format!("netns/0/{file}"), format!("proc/{file}")];
        let said = self.recording().said_of(&names.each_ref().map(String::as_str));
        said.cloned().unwrap_or_else(|| self.recording().why_missing(file))
    }

    /// A file of every network namespace that has two snapshots of it, each once: (inode, first, last).
    pub(crate) fn in_netns(&self, file: &str) -> Vec<(String, &'r FileSnapshot, &'r FileSnapshot)> {
        let mut found: BTreeMap<String, (&FileSnapshot, &FileSnapshot)> = BTreeMap::new();
        for snapshot in &self.recording().snapshots {
            let parts = snapshot.name.strip_prefix("netns/").and_then(|rest| rest.split_once('/'));
            let host = (snapshot.name.strip_prefix("proc/") == Some(file)).then_some("host");
            let inode = parts.and_then(|(inode, name)| (name == file).then_some(inode)).or(host);
            if let Some(inode) = inode {
                found.entry(inode.to_owned()).or_insert((snapshot, snapshot)).1 = snapshot;
            }
        }
        found.retain(|_, (first, last)| first.at < last.at);
        // The host's own namespace is there twice, under its inode and as "host".
        if found.len() > 1 {
            found.remove("host");
        }
        found.into_iter().map(|(inode, (first, last))| (inode, first, last)).collect()
    }

    /// The last text of a file, without white space around it.
    pub(crate) fn line(&self, name: &str) -> Result<String, Missing> {
        Ok(text(self.last(name)?).trim().to_owned())
    }
}

fn netstat_of(snapshot: &FileSnapshot) -> Result<Netstat, Missing> {
    netstat::parse(&text(snapshot)).map_err(|bad| Missing::broken(snapshot.name.clone(), bad))
}

pub(crate) fn text(snapshot: &FileSnapshot) -> String {
    String::from_utf8_lossy(&snapshot.bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use whyslow_model::Recording;

    use super::*;

    fn snapshot(at: u64, name: &str, text: &str) -> FileSnapshot {
        FileSnapshot { at: Duration::from_secs(at), name: name.into(), bytes: text.into() }
    }

    #[test]
    fn counters_are_differences_of_one_namespace_and_resets_are_zero() {
        let snapshots = vec![
            snapshot(0, "netns/7/net/netstat", "TcpExt: A B\nTcpExt: 5 9\n"),
            snapshot(0, "netns/8/net/netstat", "TcpExt: A B\nTcpExt: 1 1\n"),
            snapshot(1, "netns/7/net/netstat", "TcpExt: A B\nTcpExt: 8 2\n"),
        ];
        let rec = Recording { snapshots, ..Default::default() };
        let found = Evidence::of(&rec).netns().unwrap();
        assert_eq!(found.len(), 1, "one snapshot makes no difference");
        assert_eq!((found[0].rise("TcpExt", "A"), found[0].rise("TcpExt", "B")), (Some(3), Some(0)));
        assert_eq!(found[0].rise("TcpExt", "C"), None);
    }

    #[test]
    fn softnet_counters_may_wrap() {
        let snapshots = vec![
            snapshot(0, "netns/7/net/softnet_stat", "ffffffff 0 0\n"),
            snapshot(1, "netns/7/net/softnet_stat", "00000001 0 3\n"),
        ];
        let rec = Recording { snapshots, ..Default::default() };
        let want = Softnet { cpu: 0, processed: 2, dropped: 0, squeezed: 3 };
        assert_eq!(Evidence::of(&rec).softnet().unwrap(), [want]);
    }

    #[test]
    fn unrecorded_counters_and_connects_are_missing() {
        let rec = Recording::default();
        assert_eq!(Evidence::of(&rec).netns(), Err(Missing::not_recorded("net/netstat")));
        assert!(Evidence::of(&rec).connects().is_err());
    }

    /// If a set of files could not be read, the reason is one entry for the whole set.
    #[test]
    fn why_a_file_is_of_no_namespace_is_what_was_said_of_its_row() {
        let (what, way_out) =
            ("netns/{netns}/net/{snmp,netstat,sockstat,dev}".to_owned(), "be root".to_owned());
        let refused = Missing::NotAllowed { what, way_out };
        let rec = Recording { missing: vec![refused.clone().into()], ..Default::default() };
        assert_eq!(Evidence::of(&rec).netns(), Err(refused));
    }
}
