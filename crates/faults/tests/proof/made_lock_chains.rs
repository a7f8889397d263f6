//! Each lock chain waits as intended, by its threads' own clock alone. Drawn at random.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use whyslow_faults::lock_chain::{self, Ask, Leaf, LinkKind, Told};
use whyslow_faults::victim::Launch;
use whyslow_faults::{Draw, Fence, LockChain, host, rounds, thresholds};

/// Leaves drawn for each kind in one run.
const DRAWN: usize = 2;
const LASTS_MS: u64 = 1_200;
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// Other processes on the host may keep a thread from its turn: so many of the rounds must be whole.
const MOST: f64 = 0.8;
/// The kernel determines how long the lock of all cgroups is held: on one CPU the holder may be done before the waiter has run.
const MANY: f64 = 0.4;
/// Time in which all threads wait, as a share of the leaf's own time.
const AT_LEAST: f64 = 0.5;

fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn climb(ask: Ask, round: u64) -> io::Result<(String, LockChain, Told)> {
    let mut draw = Draw::of_run(&format!("{} {:?}", ask.kind, ask.leaf), round);
    let fence = Fence::enter()?;
    let lock_chain = LockChain::set(&fence, ask, &mut draw)?;
    let program = match ask.kind {
        LinkKind::Go => Some(lock_chain::build_go(Path::new(env!("CARGO_TARGET_TMPDIR")))?),
        _ => None,
    };
    let mut victim = lock_chain.start(Launch { program, ..Launch::default() })?;
    victim.go();
    let status = victim.ended(ENDS_WITHIN)?;
    let reported = lock_chain.reported(&victim);
    let said = format!("{draw} {}: {lock_chain}\n{reported}", ask.kind);
    if status.success() {
        Ok((said, lock_chain, reported))
    } else {
        Err(io::Error::other(format!("{status}: {said}")))
    }
}

/// Checks that the waits came about, in order, and lasted as long as the leaf acted.
fn is_a_lock_chain(lock_chain: &LockChain, reported: &Told) -> Result<(), String> {
    let rounds = reported.rounds.len();
    if rounds != lock_chain.plan().rounds.len() {
        return Err(format!("{rounds} rounds of {} were done", lock_chain.plan().rounds.len()));
    }
    let whole = reported.rounds.iter().zip(&lock_chain.plan().rounds).filter(|(round, us)| {
        // A grace period takes any time; a wait counts if it is longer than any hiccup of the scheduler.
        let least = match (lock_chain.plan().leaf, lock_chain.plan().links.last()) {
            (Leaf::GracePeriod, _) | (Leaf::Link, Some(lock_chain::Link::Cgroups)) => 0.0,
            _ => **us as f64 * 1e-6 * AT_LEAST,
        };
        round.is_in_order() && round.together().length().as_secs_f64() > least
    });
    let whole = whole.count();
    let of_cgroups = matches!(lock_chain.plan().links.last(), Some(lock_chain::Link::Cgroups));
    let most = if of_cgroups && lock_chain.is_on_one_cpu() { MANY } else { MOST };
    if (whole as f64) < most * rounds as f64 {
        return Err(format!("only {whole} rounds of {rounds} were whole"));
    }
    let on_cpu = reported.leaf_on_cpu();
    let holds = match lock_chain.plan().leaf {
        Leaf::Sleep | Leaf::Stopped | Leaf::GracePeriod => on_cpu < 0.1,
        Leaf::Disk => on_cpu < 0.3,
        Leaf::Quota => on_cpu < 0.75,
        // Other tasks may use its CPU, too.
        Leaf::Burn => on_cpu > 0.1,
        Leaf::Link => true,
    };
    if holds { Ok(()) } else { Err(format!("the leaf did something else: {:.0} % on a CPU", on_cpu * 100.0)) }
}

fn holds(kind: LinkKind) {
    if !host::is_root() {
        return say(&format!("not run: a lock_chain of {kind} needs root"));
    }
    let here = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if let (LinkKind::Go, Err(why)) = (kind, lock_chain::build_go(here)) {
        assert!(!rounds::is_set("WHYSLOW_NEEDS_GO"), "{why}");
        return say(&format!("not run: a lock_chain of {kind}: {why}"));
    }
    let feet = kind.feet();
    let drawn = Draw::of_run(kind.word(), 0)
        .some(if rounds::is_set("WHYSLOW_ALL") { feet.len() } else { DRAWN }, feet);
    for leaf in drawn {
        let mut all = String::new();
        let ask = Ask { kind, leaf: Some(leaf), healthy: false, in_a_crowd: false, lasts_ms: LASTS_MS };
        let held = (0..u64::from(thresholds::TRIES)).any(|round| {
            let outcome =
                climb(ask, round).map_err(|err| err.to_string()).and_then(|(said, lock_chain, reported)| {
                    say(&said);
                    is_a_lock_chain(&lock_chain, &reported).map_err(|why| format!("{why}: {said}"))
                });
            outcome.map_err(|why| all += &format!("\n{why}")).is_ok()
        });
        assert!(held, "not what it says:{all}");
    }
}

macro_rules! lock_chains {
    ($($name:ident => $kind:ident;)*) => {$(
        #[test]
        fn $name() {
            holds(LinkKind::$kind);
        }
    )*};
}

lock_chains! {
    root_a_lock_chain_of_futexes => Futex;
    root_a_lock_chain_of_pi_futexes => Pi;
    root_a_lock_chain_of_pthread_mutexes => Pthread;
    root_a_lock_chain_of_std_mutexes => Std;
    root_a_lock_chain_of_go_mutexes => Go;
    root_a_lock_chain_of_pipes => Pipe;
    root_a_lock_chain_of_unix_sockets => Unix;
    root_a_lock_chain_of_tcp_connections => Tcp;
    root_a_lock_chain_of_udp_sockets => Udp;
    root_a_lock_chain_of_connections_of_all_sorts => Peers;
    root_a_lock_chain_of_files => File;
    root_a_lock_chain_of_directories => Directory;
    root_a_lock_chain_of_pipe_locks => PipeLock;
    root_a_lock_chain_on_the_lock_of_the_address_space => AddressSpace;
    root_a_lock_chain_on_the_lock_of_all_cgroups => Cgroups;
    root_a_lock_chain_of_all_kinds => Mixed;
}

/// No thread waits for long on a healthy lock chain: its threads keep making progress.
#[test]
fn root_a_healthy_lock_chain_goes_on() {
    if !host::is_root() {
        return say("not run: a healthy lock_chain needs root");
    }
    for kind in LinkKind::ALL.into_iter().filter(|kind| *kind != LinkKind::Go) {
        let mut draw = Draw::of_run(&format!("healthy {kind}"), 0);
        let fence = Fence::enter().unwrap();
        let ask = Ask { kind, leaf: None, healthy: true, in_a_crowd: false, lasts_ms: LASTS_MS };
        let lock_chain = LockChain::set(&fence, ask, &mut draw).unwrap();
        let mut victim = lock_chain.start(Launch::default()).unwrap();
        victim.go();
        std::thread::sleep(Duration::from_millis(200));
        lock_chain.stop(&victim);
        let status = victim.ended(ENDS_WITHIN).unwrap();
        assert!(status.success(), "{draw} {kind}: {lock_chain}: {status}");
    }
}
