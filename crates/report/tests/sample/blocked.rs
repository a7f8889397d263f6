//! Tasks in D state: a convoy behind a mutex whose holder waits for an rwsem, and a grace period.

use whyslow_model::Share;
use whyslow_model::blocked::{BlockedAccount, BlockedChain, BlockedHolder, BlockedRoot, BlockedWait};
use whyslow_model::wait::{Reason, TaskState, Who};

fn holder(comm: &str, work: Option<&str>, pid: u32, did: TaskState, what: &str) -> BlockedHolder {
    let who = Who::Task { comm: comm.into(), work: work.map(str::to_owned) };
    BlockedHolder { who, pid, reader: false, did, what: what.into() }
}

fn wait(what: &str, reason: Reason, samples: u64, chains: Vec<BlockedChain>) -> BlockedWait {
    BlockedWait {
        what: what.into(),
        reason,
        samples,
        share: Some(Share::of(samples as f64, 371.0)),
        waits: samples / 7 + 1,
        threads: 12,
        examples: vec!["runguard (812)".into(), "runguard (813)".into()],
        site: "cgroup_kn_lock_live < cgroup_mkdir < kernfs_iop_mkdir < vfs_mkdir".into(),
        chains,
    }
}

pub fn blocked() -> BlockedAccount {
    let d = TaskState::Uninterruptible;
    let killed = Some("css_killed_work_fn");
    let worker = holder("kworker/1:2", killed, 77, d, "rwsem shrinker_rwsem");
    let reader = BlockedHolder { reader: true, ..holder("kswapd0", None, 55, TaskState::Running, "") };
    let chain = |samples, holders, cycle| BlockedChain { samples, holders, cycle };
    let chains = vec![
        chain(180, vec![worker, reader], false),
        chain(40, vec![holder("runguard", None, 0, d, "mutex cgroup_mutex")], true),
        chain(17, vec![], false),
    ];
    let root = |what: &str, who: Who, did, samples, behind| BlockedRoot {
        what: what.into(),
        who,
        pid: if what.is_empty() { 55 } else { 0 },
        did,
        uncertain: what.is_empty(),
        samples,
        share: Some(Share::of(samples as f64, 371.0)),
        behind,
    };
    BlockedAccount {
        passes: 100,
        samples: 375,
        idle: 4,
        tasks: 3.71,
        waits: vec![
            wait("mutex cgroup_mutex", Reason::Lock, 237, chains),
            wait("an RCU grace period for kern_unmount", Reason::Rcu, 134, Vec::new()),
        ],
        roots: vec![
            root("", Who::task("kswapd0"), TaskState::Running, 180, 180),
            root("an RCU grace period for kern_unmount", Who::Nobody, d, 134, 0),
            root("mutex cgroup_mutex", Who::Nobody, d, 57, 40),
        ],
    }
}
