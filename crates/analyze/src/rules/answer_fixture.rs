//! The answer of a service on the same host, which ends a client's wait. For the tests of rules.

use whyslow_model::timeline::{Context, Delivery, Ends, Waker};

/// The thread `pid` answers `after_ns` after the client's request. `accepted`: over a connection that the service has accepted, not over
/// one end of a socket pair.
pub fn answer_of(pid: u32, comm: &str, after_ns: u64, accepted: bool) -> Waker {
    let ends = |local: &str, peer: &str, serves| {
        Some(Ends { local: local.to_owned(), peer: peer.to_owned(), serves, ..Ends::default() })
    };
    let (service, client) = ("127.0.0.1:80", "127.0.0.1:40000");
    let delivery = Delivery {
        ready: ends(client, service, false),
        sends: ends(service, client, accepted),
        syscall: Some(44),
        sent_before_ns: Some(after_ns),
        ..Delivery::default()
    };
    Waker {
        pid,
        tgid: pid,
        comm: comm.into(),
        context: Context::Softirq,
        delivery: Some(Box::new(delivery)),
        ..Waker::default()
    }
}
