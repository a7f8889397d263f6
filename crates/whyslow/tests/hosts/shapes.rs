//! Hosts of other shapes than ours, and what is wrong on them.

use super::scheduler::{Do, Group, Host, Thread, WINDOW};

/// Who loses by the fault.
pub type Picks = fn(&Thread) -> bool;

/// A host with its kernel files, beside those that follow from what its tasks did.
pub struct Shape {
    pub name: &'static str,
    pub kernel: &'static str,
    pub host: Host,
    /// Files below the root, the same at both ends.
    pub files: Vec<(String, String)>,
    /// The host without what is wrong, and who loses by it.
    pub without: Option<(Host, Picks)>,
    /// The cgroup files are those of version 1: ids carry the number of a hierarchy.
    pub v1: bool,
}

const WHOLE: (usize, usize) = (0, WINDOW);

fn thread(comm: &str, pid: u32, tgid: u32, group: usize, script: &[Do]) -> Thread {
    Thread {
        comm: comm.to_owned(),
        pid,
        tgid,
        ppid: 1,
        group,
        mask: vec![],
        policy: 0,
        priority: 0,
        script: script.to_vec(),
        life: WHOLE,
        folded: 0,
        kernel: false,
    }
}

fn group(path: &str, parent: usize) -> Group {
    Group { path: path.to_owned(), parent, ..Group::default() }
}

fn cpus(from: u32, to: u32) -> Vec<u32> {
    (from..=to).collect()
}

/// 60 hexadecimal digits and more, alike each time.
fn hex(seed: u64, digits: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let digit = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from_digit((state >> 40) as u32 % 16, 16).unwrap_or('0')
    };
    (0..digits).map(digit).collect()
}

/// 60 pods of one container, each with half a CPU and 256 MiB, one below the other; four threads of the first pod always busy.
fn kubernetes(v1: bool) -> Host {
    let mut groups = match v1 {
        true => vec![group("/", 0), group("/kubepods", 0), group("/kubepods/burstable", 1)],
        false => {
            let above = "/kubepods.slice/kubepods-burstable.slice";
            vec![group("/", 0), group("/kubepods.slice", 0), group(above, 1)]
        }
    };
    let mut threads = Vec::new();
    for pod in 0..60_u64 {
        let uid = [8, 4, 4, 4, 12].map(|n| hex(pod * 7 + n as u64, n)).join("-");
        let id = hex(pod + 1000, 64);
        let (of_pod, of_container) = match v1 {
            true => (format!("/kubepods/burstable/pod{uid}"), format!("/kubepods/burstable/pod{uid}/{id}")),
            false => {
                let slice = format!("kubepods-burstable-pod{}.slice", uid.replace('-', "_"));
                let slice = format!("/kubepods.slice/kubepods-burstable.slice/{slice}");
                (slice.clone(), format!("{slice}/cri-containerd-{id}.scope"))
            }
        };
        let limited = |path: &str, parent| Group {
            quota_ms: Some(50),
            memory_limit: Some(256 << 20),
            ..group(path, parent)
        };
        groups.push(limited(&of_pod, 2));
        let pod_at = groups.len() - 1;
        groups.push(limited(&of_container, pod_at));
        let at = groups.len() - 1;
        let pid = 10_000 + pod as u32 * 10;
        if pod == 0 {
            threads.extend((0..4).map(|n| thread("checkout", pid + n, pid, at, &[Do::Run(1000)])));
        } else {
            let rest = 40 + (pod as u32 * 7) % 90;
            threads.extend(
                (0..3).map(|n| thread("service", pid + n, pid, at, &[Do::Run(1), Do::Sleep(rest + n)])),
            );
        }
    }
    Host { cpus: 16, groups, threads, ..Host::default() }
}

fn of_kubernetes(name: &'static str, kernel: &'static str, v1: bool) -> Shape {
    let host = kubernetes(v1);
    let mut without = host.clone();
    for group in &mut without.groups {
        group.quota_ms = None;
    }
    let busy: fn(&Thread) -> bool = |thread| thread.comm == "checkout";
    Shape { name, kernel, host, files: vec![], without: Some((without, busy)), v1 }
}

/// 96 busy threads of a batch job bound to the 64 CPUs of node 0, the other three nodes nearly idle.
fn four_nodes() -> Shape {
    let groups = vec![
        group("/", 0),
        group("/system.slice", 0),
        group("/system.slice/solver.service", 1),
        group("/system.slice/web.service", 1),
    ];
    let node_0: Vec<u32> = cpus(0, 31).into_iter().chain(cpus(128, 159)).collect();
    let bound =
        |n: u32| Thread { mask: node_0.clone(), ..thread("solver", 5000 + n, 5000, 2, &[Do::Run(1000)]) };
    let mut threads: Vec<Thread> = (0..96).map(bound).collect();
    threads.extend((0..40).map(|n| Thread {
        mask: cpus(32, 127),
        ..thread("web", 7000 + n, 7000, 3, &[Do::Run(2), Do::Sleep(20 + n % 9)])
    }));
    let host = Host { cpus: 256, groups, threads, ..Host::default() };
    let mut without = host.clone();
    for thread in &mut without.threads {
        thread.mask.clear();
    }
    let lists = include_str!("captures/node-cpulists").lines().enumerate();
    let file =
        |(n, list): (usize, &str)| (format!("sys/devices/system/node/node{n}/cpulist"), format!("{list}\n"));
    Shape {
        name: "four-nodes-one-full",
        kernel: "6.8.0-48-generic",
        host,
        files: lists.map(file).collect(),
        without: Some((without, |thread| thread.comm == "solver")),
        v1: false,
    }
}

/// Isolated CPUs, some of which poll a network card on purpose and some of which have nothing to do; the others are full, and there
/// is somebody who waits for them.
fn isolated() -> Shape {
    let isolated: Vec<u32> = cpus(1, 10).into_iter().chain(cpus(29, 38)).collect();
    let groups = vec![
        group("/", 0),
        group("/system.slice", 0),
        group("/system.slice/vpp.service", 1),
        group("/system.slice/collectd.service", 1),
    ];
    let worker = |n: u32| Thread {
        mask: vec![1 + n],
        ..thread(&format!("vpp_wk_{n}"), 3001 + n, 3000, 2, &[Do::Run(1000)])
    };
    let mut threads: Vec<Thread> = (0..8).map(worker).collect();
    threads.push(Thread { mask: vec![0], ..thread("vpp_main", 3000, 3000, 2, &[Do::Run(1), Do::Sleep(99)]) });
    threads
        .extend((0..48).map(|n| thread("collectd", 4000 + n, 4000, 3, &[Do::Run(4), Do::Sleep(3 + n % 3)])));
    let list = "1-10,29-38\n".to_owned();
    let files = vec![
        ("proc/cmdline".to_owned(), include_str!("captures/cmdline-isolcpus").to_owned()),
        ("sys/devices/system/cpu/isolated".to_owned(), list.clone()),
        ("sys/devices/system/cpu/nohz_full".to_owned(), list),
    ];
    let host = Host { cpus: 40, isolated, groups, threads, stolen: vec![] };
    Shape {
        name: "isolated-cpus-that-poll",
        kernel: "5.15.0-46-generic",
        host,
        files,
        without: None,
        v1: false,
    }
}

/// A control loop and threaded interrupts of real-time priority; ordinary tasks elsewhere have room.
fn real_time() -> Shape {
    let groups = vec![
        group("/", 0),
        group("/system.slice", 0),
        group("/system.slice/control.service", 1),
        group("/system.slice/logger.service", 1),
    ];
    let fifo = |comm: &str, pid, tgid, cpu: u32, priority, script: &[Do]| Thread {
        mask: vec![cpu],
        policy: 1,
        priority,
        ..thread(comm, pid, tgid, 2, script)
    };
    let of_kernel = |thread: Thread| Thread { kernel: true, group: 0, ppid: 2, ..thread };
    let mut threads = vec![
        fifo("control", 900, 900, 3, 80, &[Do::Run(1), Do::Sleep(3)]),
        of_kernel(fifo("irq/129-eth0", 131, 131, 3, 50, &[Do::Run(1), Do::Sleep(4)])),
        of_kernel(fifo("irq/130-nvme0", 132, 132, 2, 50, &[Do::Run(1), Do::Sleep(12)])),
    ];
    threads.extend((0..4).map(|n| thread("logger", 950 + n, 950, 3, &[Do::Run(3), Do::Sleep(9 + n)])));
    let files = vec![("sys/kernel/realtime".to_owned(), "1\n".to_owned())];
    let host = Host { cpus: 4, groups, threads, ..Host::default() };
    Shape {
        name: "control-loop-on-preempt-rt",
        kernel: "6.6.13+bpo-rt-amd64",
        host,
        files,
        without: None,
        v1: false,
    }
}

/// 5,000 commands a second that live for 4 ms, all alike, on 32 CPUs of which 20 are busy with them.
fn farm() -> Shape {
    let groups = vec![group("/", 0), group("/system.slice", 0), group("/system.slice/judge.service", 1)];
    let mut threads: Vec<Thread> =
        (0..20).map(|n| thread("judged", 2000 + n, 2000 + n, 2, &[Do::Run(1), Do::Sleep(19)])).collect();
    // One of each hundred as it was; each stands for the others of its parent.
    let one = |n: u32| Thread {
        ppid: 2000 + n % 20,
        life: (n as usize * 19 % (WINDOW - 10), n as usize * 19 % (WINDOW - 10) + 4),
        folded: 99,
        ..thread("sh", 20_000 + n, 20_000 + n, 2, &[Do::Run(1000)])
    };
    threads.extend((0..500).map(one));
    let host = Host { cpus: 32, groups, threads, ..Host::default() };
    Shape {
        name: "five-thousand-births-a-second",
        kernel: "6.12.9-amd64",
        host,
        files: vec![],
        without: None,
        v1: false,
    }
}

/// Four virtual CPUs, all of them wanted; the hypervisor takes each for 80 ms of 250.
fn stolen() -> Shape {
    let groups = vec![group("/", 0), group("/system.slice", 0), group("/system.slice/encoder.service", 1)];
    let threads = (0..4)
        .map(|n| Thread { mask: vec![n], ..thread("encoder", 600 + n, 600, 2, &[Do::Run(1000)]) })
        .collect();
    let bursts = |cpu: u32| {
        (0..WINDOW / 250).map(move |n| (cpu, n * 250 + cpu as usize * 40, n * 250 + cpu as usize * 40 + 80))
    };
    let host =
        Host { cpus: 4, groups, threads, stolen: (0..4).flat_map(bursts).collect(), ..Host::default() };
    let without = Host { stolen: vec![], ..host.clone() };
    Shape {
        name: "bursts-of-steal",
        kernel: "6.1.0-42-cloud-amd64",
        host,
        files: vec![],
        without: Some((without, |_| true)),
        v1: false,
    }
}

/// 100,000 sessions of one process, each at work for a millisecond every four seconds, on 128 CPUs with room; beside them twelve
/// threads that have work for twelve CPUs and a quota of two.
fn sessions() -> Shape {
    let groups = vec![
        group("/", 0),
        group("/system.slice", 0),
        group("/system.slice/sessions.service", 1),
        Group { quota_ms: Some(200), ..group("/system.slice/reindex.service", 1) },
    ];
    let session = |n: u32| Thread {
        // Not all at once.
        script: vec![Do::Sleep(1 + n % 4000), Do::Run(1), Do::Sleep(3999)],
        ..thread("session", 20_001 + n, 20_000, 2, &[])
    };
    let mut threads = vec![thread("accept", 20_000, 20_000, 2, &[Do::Run(1), Do::Sleep(9)])];
    threads.extend((0..100_000).map(session));
    threads.extend((0..12).map(|n| thread("reindex", 700 + n, 700, 3, &[Do::Run(1000)])));
    let host = Host { cpus: 128, groups, threads, ..Host::default() };
    let mut without = host.clone();
    without.groups[3].quota_ms = None;
    Shape {
        name: "hundred-thousand-threads",
        kernel: "6.1.0-42-amd64",
        host,
        files: vec![],
        without: Some((without, |thread| thread.comm == "reindex")),
        v1: false,
    }
}

/// Eight fast threads of four cores and eight slow cores, each at work, none of them held back.
fn hybrid() -> Shape {
    let groups = vec![group("/", 0), group("/user.slice", 0)];
    let script = |n: u32| [Do::Run(6), Do::Sleep(3 + n % 4)];
    let threads = (0..18).map(|n| thread("game", 1500 + n, 1500, 1, &script(n))).collect();
    let files = vec![
        ("sys/devices/cpu_core/cpus".to_owned(), "0-15\n".to_owned()),
        ("sys/devices/cpu_atom/cpus".to_owned(), "16-23\n".to_owned()),
    ];
    let host = Host { cpus: 24, groups, threads, ..Host::default() };
    Shape { name: "fast-and-slow-cores", kernel: "6.11.0-9-generic", host, files, without: None, v1: false }
}

/// All that are kept as folders.
pub fn all() -> Vec<Shape> {
    vec![
        of_kubernetes("kubernetes-v2", "6.1.0-42-amd64", false),
        of_kubernetes("kubernetes-v1", "5.10.0-30-amd64", true),
        four_nodes(),
        isolated(),
        real_time(),
        farm(),
        stolen(),
        hybrid(),
        sessions(),
    ]
}
