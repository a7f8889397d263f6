//! Small writes that TCP holds back: a task writes little to a connection, and the kernel does not send it before the peer has
//! acknowledged the small segment sent before.

use whyslow_model::timeline::{Ends, Span};
use whyslow_model::wait::WaitTarget;

use super::{Class, WaitKind, is_request};

/// How long the data that the task had written was held back, and at which connection. After that it waited for an answer, or the next request.
pub(crate) fn held_back(span: &Span) -> Option<(u64, &Ends)> {
    let delivery = span.waker.as_ref()?.delivery.as_ref().filter(|_| span.held_back)?;
    let waited = span.woken_ns.saturating_sub(span.at_ns);
    let ns = waited.saturating_sub(delivery.sent_before_ns?);
    Some((ns, delivery.ready.as_ref()?)).filter(|(ns, _)| *ns > 0)
}

/// A wait for an answer counts as a wait for the acknowledgement if that was most of it: the question was held back. A service that waits for
/// the next request waits for that, whatever happens to its last answer.
pub(super) fn ask(span: &Span, kind: WaitKind) -> WaitKind {
    let is_for_data = matches!(kind.class, Class::Idle | Class::Peer);
    let waited = span.woken_ns.saturating_sub(span.at_ns);
    let is_most = held_back(span).is_some_and(|(ns, _)| ns.saturating_mul(2) > waited);
    let serves = || span.waker.as_ref().is_some_and(|waker| is_request(span, waker));
    match is_for_data && is_most && !serves() {
        true => WaitKind::target(WaitTarget::Acknowledgement, Class::Limit),
        false => kind,
    }
}

#[cfg(test)]
mod tests {
    use whyslow_model::timeline::{Context, Delivery, State, Target, Waker};
    use whyslow_model::wait::Detail;

    use super::*;
    use crate::wait_reasons::{Stacks, of};

    const MS: u64 = 1_000_000;

    /// A read from a socket (recvfrom) for 100 ms; the connection last sent this long before data came.
    fn wait(sent_before_ns: Option<u64>, serves: bool) -> Span {
        let ends = Ends { local: "10.0.0.5:9".into(), peer: "10.0.0.7:80".into(), serves, ..Ends::default() };
        let delivery = Some(Box::new(Delivery { sent_before_ns, ready: Some(ends), ..Delivery::default() }));
        let waker = Waker { pid: 9, context: Context::Softirq, delivery, ..Waker::default() };
        let target = Target { kind: "socket".into(), peer: Some("10.0.0.7:80".into()), ..Target::default() };
        Span {
            pid: 7,
            woken_ns: 100 * MS,
            to_ns: 100 * MS,
            state: State::Sleep,
            syscall: Some(45),
            target: Some(target),
            held_back: true,
            waker: Some(waker),
            ..Span::default()
        }
    }

    #[test]
    fn is_a_limit_where_most_of_a_clients_wait_was_before_the_connection_sent() {
        let is_held = |span: &Span| {
            let kind = of(span, &Stacks::of(&[]));
            assert_eq!(
                kind.class == Class::Limit,
                kind.detail == Detail::Target(WaitTarget::Acknowledgement)
            );
            kind.class == Class::Limit
        };
        assert!(is_held(&wait(Some(5 * MS), false)));
        assert_eq!(held_back(&wait(Some(5 * MS), false)).map(|(ns, _)| ns), Some(95 * MS));
        assert!(!is_held(&wait(Some(5 * MS), true)), "a service has nothing to do");
        assert!(!is_held(&wait(Some(60 * MS), false)), "the peer took longer");
        assert!(!is_held(&wait(None, false)), "when it was sent is not known");
        assert!(!is_held(&Span { held_back: false, ..wait(Some(5 * MS), false) }));
        let nap = Span { syscall: Some(35), ..wait(Some(5 * MS), false) };
        assert!(!is_held(&nap), "a sleep of its own");
        let mut other = wait(Some(5 * MS), false);
        other.waker.as_mut().unwrap().delivery.as_mut().unwrap().ready = None;
        assert!(!is_held(&other), "no connection's data woke it");
    }
}
