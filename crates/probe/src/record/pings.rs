//! A window in which another host is asked.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use whyslow_model::ping::{Ping, Pinged};
use whyslow_model::{Meta, Missing, MissingNote, Recording};

use super::{Observer, Plan, wait_out};
use crate::cost;
use crate::host;
use crate::ping::{Aim, Live, Pinger};

/// The name of the prober among what is missing.
const PINGS: &str = "pings";

/// A host that is asked in the window.
#[derive(Debug, Clone)]
pub struct Asking {
    /// As the user named it.
    pub target: String,
    /// What is sent, where and how often.
    pub aim: Aim,
    /// The answers so far.
    pub live: Arc<Live>,
}

impl Asking {
    /// As the recording shows it.
    fn pinged(&self) -> Pinged {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Pinged {
            target: self.target.clone(),
            address: self.aim.address.to_string(),
            how: self.aim.how.word().to_owned(),
            port: self.aim.port,
            with_icmp: self.aim.with_icmp,
            interval_ns: ns(self.aim.interval),
            timeout_ns: ns(self.aim.timeout),
        }
    }
}

/// What was asked in a window.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) pinged: Option<Pinged>,
    pub(super) rows: Option<Vec<Ping>>,
    /// The user ended the window.
    pub(super) interrupted: bool,
}

/// The window itself: `beat` is called until it is over. A host is asked meanwhile, and the window lasts until its answers are there.
pub(super) fn ask(
    plan: &Plan,
    (began, start_ns): (Instant, u64),
    stop: &AtomicBool,
    observer: &mut dyn Observer,
    missing: &mut Vec<MissingNote>,
    beat: &mut dyn FnMut(Duration, bool) -> bool,
) -> Asked {
    let open = |asking: &Asking| Pinger::open(&asking.aim).map_err(|why| why.to_string());
    let opened = plan.asking.as_ref().map(|asking| (asking, open(asking)));
    std::thread::scope(|scope| {
        let (asking, pinger) = match opened {
            Some((asking, Ok(pinger))) => (asking, pinger),
            failed => {
                let why = failed.and_then(|(_, opened)| opened.err());
                missing.extend(why.map(|why| Missing::broken(PINGS, why).into()));
                let interrupted = wait_out(plan, began, stop, None, observer, beat);
                return Asked { interrupted, ..Asked::default() };
            }
        };
        let asked = scope.spawn(|| pinger.run(start_ns, plan.window, stop, &asking.live));
        let is_over = || asked.is_finished();
        let interrupted = wait_out(plan, began, stop, Some(&is_over), observer, beat);
        let rows = asked.join().ok();
        if rows.is_none() {
            missing.push(Missing::broken(PINGS, "the thread that asks has failed").into());
        }
        Asked { pinged: rows.is_some().then(|| asking.pinged()), rows, interrupted }
    })
}

/// Asks a host, and records nothing else: it needs neither BPF nor the kernel's files.
pub fn record_pings(plan: &Plan, stop: &AtomicBool, observer: &mut dyn Observer) -> Recording {
    let before = cost::so_far();
    let mut missing = Vec::new();
    let (started_at, began, start_ns) = (host::now_rfc3339(), Instant::now(), host::monotonic_ns());
    observer.begun(began);
    let asked = ask(plan, (began, start_ns), stop, observer, &mut missing, &mut |_, _| false);
    let window = began.elapsed();
    let spent = cost::so_far();
    let mut recording = Recording { missing, ..Recording::default() };
    recording.tables.pings = asked.rows;
    recording.meta = Meta {
        format: whyslow_model::FORMAT,
        whyslow: plan.version.clone(),
        started_at,
        window_ns: window.as_nanos() as u64,
        own_pids: vec![std::process::id()],
        own_cpu_ns: spent.cpu.saturating_sub(before.cpu).as_nanos() as u64,
        own_rss_bytes: spent.rss_bytes,
        own_bpf_ns: Some(0),
        interrupted: asked.interrupted,
        pinged: asked.pinged,
        ..host::facts(&plan.root)
    };
    recording
}
