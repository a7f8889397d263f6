//! Made-up words for names.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use whyslow_model::Recording;

use super::kernels::{is_detour, is_kernels, is_kernels_last};

/// Beginnings of the names of kernel threads that may have no row in the task list.
const KERNELS: [&str; 6] = ["kworker/", "ksoftirqd/", "migration/", "swapper/", "jbd2/", "kswapd"];
/// Hierarchies of cgroup v1: their folders below /sys/fs/cgroup.
const CONTROLLERS: [&str; 16] = [
    "cpu",
    "cpuacct",
    "cpu,cpuacct",
    "cpuset",
    "memory",
    "blkio",
    "io",
    "devices",
    "freezer",
    "net_cls",
    "net_prio",
    "net_cls,net_prio",
    "perf_event",
    "pids",
    "hugetlb",
    "unified",
];

/// The word of each name.
pub struct Words {
    given: HashMap<(&'static str, String), String>,
    counts: HashMap<&'static str, usize>,
    /// For names of tasks that differ only in numbers: how many of them have a word.
    members: HashMap<String, usize>,
    /// Names of kernel threads that no user task has.
    kernels: BTreeSet<String>,
    /// The mount points of the cgroup hierarchies, the longest first: "sys/fs/cgroup/cpu".
    mounts: Vec<String>,
    /// Names that stay.
    kept: BTreeSet<String>,
}

impl Words {
    /// The words for a recording, with no name replaced yet; finds out which names are the kernel's own.
    pub fn of(recording: &Recording, kept: BTreeSet<String>) -> Self {
        let tasks = || recording.tables.tasks.iter().flatten();
        let users: BTreeSet<&str> =
            tasks().filter(|task| !task.kthread).map(|task| task.comm.as_str()).collect();
        let of_kernel = tasks().filter(|task| task.kthread && !users.contains(task.comm.as_str()));
        let mut mounts = BTreeSet::from(["sys/fs/cgroup".to_owned()]);
        mounts.extend(CONTROLLERS.iter().map(|name| format!("sys/fs/cgroup/{name}")));
        for group in recording.tables.cgroups.iter().flatten() {
            let files = group.files.as_deref().unwrap_or_default();
            let mount = files.strip_suffix(group.path.trim_end_matches('/')).unwrap_or_default();
            mounts.insert(mount.trim_matches('/').to_owned());
        }
        let mut mounts: Vec<String> = mounts.into_iter().filter(|mount| !mount.is_empty()).collect();
        mounts.sort_by_key(|mount| std::cmp::Reverse(mount.len()));
        Words {
            kernels: of_kernel.map(|task| task.comm.clone()).collect(),
            given: HashMap::new(),
            counts: HashMap::new(),
            members: HashMap::new(),
            mounts,
            kept,
        }
    }

    fn word(&mut self, kind: &'static str, name: &str) -> String {
        if self.kept.contains(name) {
            return name.to_owned();
        }
        let count = self.counts.entry(kind).or_default();
        let new = || {
            *count += 1;
            format!("{kind}{count}")
        };
        self.given.entry((kind, name.to_owned())).or_insert_with(new).clone()
    }

    /// The word for the name of a task.
    pub fn comm(&mut self, comm: &str) -> String {
        let is_kernels = self.kernels.contains(comm) || KERNELS.iter().any(|begin| comm.starts_with(begin));
        if comm.is_empty() || is_kernels || self.kept.contains(comm) {
            comm.to_owned()
        } else {
            self.task(comm)
        }
    }

    /// Reports fold threads whose names differ only in numbers (`graph::names::folded`). The words of such threads also differ only in
    /// numbers, and the words of other threads do not: "task-c", "task-d-1", "task-d-2".
    fn task(&mut self, comm: &str) -> String {
        if let Some(known) = self.given.get(&("task", comm.to_owned())) {
            return known.clone();
        }
        let is_digit = |c: char| c.is_ascii_digit();
        let parts: Vec<&str> = comm.split(is_digit).collect();
        let mut family = parts.join("*");
        while family.contains("**") {
            family = family.replace("**", "*");
        }
        let mut word = format!("task-{}", letters(&self.word("family", &family)));
        if comm.contains(is_digit) {
            let number = self.members.entry(family).or_default();
            *number += 1;
            word = format!("{word}-{number}");
        }
        self.given.insert(("task", comm.to_owned()), word.clone());
        word
    }

    /// The word for a function of user code.
    pub fn function(&mut self, frame: &str) -> String {
        if frame.is_empty() { String::new() } else { self.word("fn", frame) }
    }

    /// The word for a name that an owner gives: to a pod, a container, an image, a user.
    pub fn owner(&mut self, kind: &'static str, name: &str) -> String {
        if name.is_empty() { String::new() } else { self.word(kind, name) }
    }

    /// The words for the path of a cgroup, which keeps its depth.
    pub fn group(&mut self, path: &str) -> String {
        path.split('/').map(|part| self.part(part)).collect::<Vec<_>>().join("/")
    }

    /// The word for one folder of that path.
    pub fn part(&mut self, part: &str) -> String {
        if part.is_empty() { String::new() } else { self.word("g", part) }
    }

    /// The word for a file, a folder or another object that a descriptor refers to: "socket 10.0.0.7:80", "pipe", "[eventpoll]".
    pub fn path(&mut self, path: &str) -> String {
        if path.starts_with("/sys/fs/cgroup/") && !is_detour(path) {
            return format!("/{}", self.file(path.trim_start_matches('/')));
        }
        match path.rsplit_once(' ') {
            _ if path.is_empty() || path == "/" || is_kernels(path) => path.to_owned(),
            Some((kind @ ("socket" | "listening socket"), peer)) => format!("{kind} {}", self.peer(peer)),
            _ => self.word("path", path),
        }
    }

    /// The word for the last part of a path that a descriptor refers to. The folder is not known, so that only names that no user can
    /// have chosen stay.
    pub fn target(&mut self, kind: &str, name: &str) -> String {
        if is_kernels_last(kind, name) { name.to_owned() } else { self.word("path", name) }
    }

    /// The words for the name of a kernel file in a recording, or of a family of them: folders of cgroups get words, the file keeps its
    /// name.
    pub fn file(&mut self, name: &str) -> String {
        if self.mounts.iter().any(|mount| mount == name) {
            return name.to_owned();
        }
        let below = |mount: &String| name.strip_prefix(mount.as_str()).filter(|rest| rest.starts_with('/'));
        let Some((mount, rest)) = self.mounts.iter().find_map(|mount| Some((mount.clone(), below(mount)?)))
        else {
            return name.to_owned();
        };
        let (folders, file) = rest.rsplit_once('/').unwrap_or(("", rest));
        let is_group = self.given.contains_key(&("g", file.to_owned()));
        // The files of cgroups have known beginnings, or are `tasks` of v1. A name that is the folder itself has no file part.
        format!(
            "{mount}{}/{}",
            self.group(folders),
            if is_file(file) && !is_group { file.to_owned() } else { self.part(file) }
        )
    }

    /// The word for the peer of a connection: another address, the same port. Addresses that every host has (loopback, unspecified) stay.
    pub fn peer(&mut self, peer: &str) -> String {
        if peer.is_empty() {
            return String::new();
        }
        match peer.parse::<SocketAddr>() {
            Ok(at) if at.ip().is_loopback() || at.ip().is_unspecified() => peer.to_owned(),
            Ok(at) => SocketAddr::new(self.address(at.ip()), at.port()).to_string(),
            Err(_) => self.word("peer", peer),
        }
    }

    /// A host by its address or name.
    pub fn host(&mut self, host: &str) -> String {
        match host.parse::<IpAddr>() {
            Ok(ip) if ip.is_loopback() => host.to_owned(),
            Ok(ip) => self.address(ip).to_string(),
            Err(_) => self.word("peer", host),
        }
    }

    /// An address of 198.18.0.0/15 or 2001:db8::/32, which no host has (RFC 2544, RFC 3849).
    fn address(&mut self, ip: IpAddr) -> IpAddr {
        let word = self.word("address", &ip.to_string());
        let number: u32 = word.trim_start_matches("address").parse().unwrap_or(0);
        match ip {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(0xc612_0000 | (number & 0x1_ffff))),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | u128::from(number))),
        }
    }

    /// The word for an argument of a command, or for a whole command line.
    pub fn argument(&mut self, argument: &str) -> String {
        if argument.is_empty() { String::new() } else { self.word("arg", argument) }
    }

    /// The word for the subject that a recording follows: a pid, a cgroup, a unit, a command.
    pub fn subject(&mut self, subject: &str) -> String {
        match subject {
            pid if pid.bytes().all(|byte| byte.is_ascii_digit()) => pid.to_owned(),
            path if path.starts_with("/sys/fs/cgroup") => self.path(path),
            other => self.argument(other),
        }
    }

    /// A sentence of whyslow that may contain names: replaces each known name, and each word that looks like a path.
    pub fn sentence(&mut self, text: &str) -> String {
        let mut out = Vec::new();
        for word in text.split(' ') {
            let bare = word.trim_matches(['"', '\'', ',', '.', ':', ';', '(', ')']);
            let kinds = ["task", "g", "fn", "path", "arg", "peer"];
            let known = kinds.iter().find_map(|kind| self.given.get(&(*kind, bare.to_owned())).cloned());
            let new = match known {
                Some(known) if bare.len() > 2 => known,
                _ if bare.starts_with('/') => self.path(bare),
                _ if bare.parse::<IpAddr>().is_ok() => self.host(bare),
                _ => bare.to_owned(),
            };
            out.push(if bare.is_empty() { word.to_owned() } else { word.replacen(bare, &new, 1) });
        }
        out.join(" ")
    }
}

/// The number at the end of a word, in letters: 1 is "a", 27 is "aa".
fn letters(word: &str) -> String {
    let mut number: usize = word.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0);
    let mut out = String::new();
    while number > 0 {
        let letter = u8::try_from((number - 1) % 26).unwrap_or(0).saturating_add(b'a');
        out.insert(0, char::from(letter));
        number = (number - 1) / 26;
    }
    out
}

fn is_file(name: &str) -> bool {
    const BEGIN: [&str; 12] = [
        "cgroup.", "cpu.", "cpuset.", "cpuacct.", "memory.", "io.", "blkio.", "pids.", "hugetlb.", "irq.",
        "rdma.", "misc.",
    ];
    BEGIN.iter().any(|begin| name.starts_with(begin))
        || name == "tasks"
        || name.starts_with('{')
        || name.contains('*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        Words::of(&Recording::default(), BTreeSet::new())
    }

    #[test]
    fn one_name_has_one_word() {
        let mut words = words();
        let all = ["nginx", "bash", "nginx", "kworker/0:1", ""].map(|comm| words.comm(comm));
        assert_eq!(all, ["task-a", "task-b", "task-a", "kworker/0:1", ""]);
        let pool = ["w-17", "w-2", "w-17", "w-"].map(|comm| words.comm(comm));
        assert_eq!(pool, ["task-c-1", "task-c-2", "task-c-1", "task-d"], "as they are folded");
        assert_eq!(["x26", "x27", "x703"].map(letters), ["z", "aa", "aaa"]);
        assert_eq!(words.function("nginx"), "fn1", "of another kind");
    }

    #[test]
    fn groups_keep_their_depth() {
        let mut words = words();
        assert_eq!(words.group("/a.slice/b.service"), "/g1/g2");
        assert_eq!((words.group("/"), words.group("/b.service")), ("/".to_owned(), "/g2".to_owned()));
        assert_eq!(words.file("sys/fs/cgroup/cpu/a.slice/cpu.stat"), "sys/fs/cgroup/cpu/g1/cpu.stat");
        assert_eq!(words.file("sys/fs/cgroup/cpu.stat"), "sys/fs/cgroup/cpu.stat");
        assert_eq!(words.file("proc/7/stat"), "proc/7/stat");
    }

    #[test]
    fn kernel_names_stay_and_user_paths_get_words() {
        let mut words = words();
        for path in ["pipe", "[eventpoll]", "/proc/7/stat", "/dev/null", "/", ""] {
            assert_eq!(words.path(path), path);
        }
        assert_eq!(words.path("/dev/shm/secret"), "path1");
        assert_eq!(words.path("/srv/x"), "path2");
        assert_eq!(words.path("/process"), "path3");
        assert_eq!(words.path("socket 10.0.0.7:5432"), "socket 198.18.0.1:5432");
    }

    #[test]
    fn names_that_are_to_stay_do() {
        let kept = ["web", "/a.slice", "b.service", "/srv/x"].map(str::to_owned).into();
        let mut words = Words::of(&Recording::default(), kept);
        assert_eq!((words.comm("web"), words.comm("web2")), ("web".to_owned(), "task-a-1".to_owned()));
        assert_eq!(words.group("/a.slice/b.service"), "/g1/b.service");
        assert_eq!((words.path("/srv/x"), words.path("/srv/y")), ("/srv/x".to_owned(), "path1".to_owned()));
    }

    #[test]
    fn peers_keep_their_ports() {
        let mut words = words();
        let peers = ["10.0.0.7:80", "127.0.0.1:80", "10.0.0.7:81", "[fe80::1]:9", "@bus", ""]
            .map(|peer| words.peer(peer));
        assert_eq!(peers, ["198.18.0.1:80", "127.0.0.1:80", "198.18.0.1:81", "[2001:db8::2]:9", "peer1", ""]);
    }

    #[test]
    fn hosts_have_one_word_by_address_and_by_name() {
        let mut words = words();
        let hosts = ["10.0.0.7", "db-7", "::1", "10.0.0.7"].map(|host| words.host(host));
        assert_eq!(hosts, ["198.18.0.1", "peer1", "::1", "198.18.0.1"]);
        let said = words.sentence("cannot reach 10.0.0.7: no route to db-7, or fd00::1");
        assert_eq!(said, "cannot reach 198.18.0.1: no route to peer1, or 2001:db8::2");
    }

    #[test]
    fn sentences_lose_the_names_that_are_known() {
        let mut words = words();
        words.group("/shop.service");
        assert_eq!(words.sentence("the limit of shop.service (/srv/x), 5 s"), "the limit of g1 (path1), 5 s");
    }
}
