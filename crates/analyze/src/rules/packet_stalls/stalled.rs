//! The stalls of one CPU by one mechanism, by thread.

use std::time::Duration;

use whyslow_model::stall::{StallAccount, StallCulprit, StallKind};

/// The stalls of one CPU by one mechanism: a function that several threads call is one. An account for each thread, with its culprit.
pub(super) struct Stalled(pub Vec<(StallAccount, StallCulprit)>);

impl Stalled {
    pub fn total(&self) -> Duration {
        self.0.iter().fold(Duration::ZERO, |sum, (one, _)| sum.saturating_add(one.total))
    }

    pub fn worst(&self) -> Duration {
        self.0.iter().map(|(one, _)| one.worst).max().unwrap_or_default()
    }

    /// Stalls of one thread are one account. It names the function, call and file that all of them share, as far as they are known.
    pub fn add(&mut self, one: &StallAccount, culprit: &StallCulprit) {
        let Some((sum, known)) = self.0.iter_mut().find(|(_, known)| known.pid == culprit.pid) else {
            self.0.push((one.clone(), culprit.clone()));
            return;
        };
        sum.count = sum.count.saturating_add(one.count);
        sum.total = sum.total.saturating_add(one.total);
        sum.worst = sum.worst.max(one.worst);
        // With interrupts off, the softirq may begin in a later call.
        let (call, file) = match (&known.call, &culprit.call) {
            (None, _) if one.kind == StallKind::IrqsOff => (culprit.call.clone(), culprit.file.clone()),
            (_, None) if one.kind == StallKind::IrqsOff => (known.call.clone(), known.file.clone()),
            (known_call, call) if known_call == call => {
                (call.clone(), shared(known.file.take(), &culprit.file))
            }
            _ => (None, None),
        };
        if known.function != culprit.function {
            // Ticks meet a long read in different functions. Without a file, calls share no more than the entry of the kernel.
            let at = known.stack.iter().position(|function| culprit.stack.contains(function));
            known.stack.drain(..at.unwrap_or(known.stack.len()));
            known.function = known.stack.first().filter(|_| file.is_some()).cloned();
        }
        (known.call, known.file) = (call, file);
    }
}

/// Files of one name in several folders are known by their name.
fn shared(one: Option<String>, other: &Option<String>) -> Option<String> {
    let name = |file: &str| file.rsplit('/').next().map(str::to_owned);
    let (one, other) = (one?, other.as_ref()?);
    if one == *other { Some(one) } else { name(&one).filter(|one| name(other).as_ref() == Some(one)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS_20: Duration = Duration::from_millis(20);

    /// What the account of these stalls of one thread says.
    fn work(all: &[(&str, Option<&str>, &[&str])]) -> String {
        let mut stalled = Stalled(Vec::new());
        for (call, file, stack) in all {
            let culprit = StallCulprit {
                pid: 9,
                who: "agent".to_owned(),
                call: Some((*call).to_owned()),
                file: file.map(str::to_owned),
                function: stack.first().map(|name| (*name).to_owned()),
                stack: stack.iter().map(|name| (*name).to_owned()).collect(),
                ..StallCulprit::default()
            };
            let one = StallAccount {
                cpu: 1,
                kind: StallKind::Deferred,
                count: 1,
                total: MS_20,
                worst: MS_20,
                at: Duration::ZERO,
                thread: None,
                culprit: None,
                unknown: None,
            };
            stalled.add(&one, &culprit);
        }
        assert_eq!(stalled.0.len(), 1);
        assert_eq!(stalled.total(), MS_20 * u32::try_from(all.len()).unwrap());
        stalled.0[0].1.work()
    }

    const SHOW: [&str; 3] = ["dev_mc_seq_show", "seq_read_iter", "vfs_read"];
    const PRINT: [&str; 5] = ["vsnprintf", "seq_printf", "dev_mc_seq_show", "seq_read_iter", "vfs_read"];
    const FORMAT: [&str; 3] = ["format_decode", "vsnprintf", "seq_printf"];

    #[test]
    fn ticks_in_several_functions_of_one_read_name_what_called_them() {
        let file = Some("net/dev_mcast");
        let shown = ": dev_mc_seq_show in read(net/dev_mcast)";
        assert_eq!(work(&[("read", file, &SHOW), ("read", file, &PRINT)]), shown);
        assert_eq!(work(&[("read", file, &PRINT), ("read", file, &SHOW), ("read", file, &PRINT)]), shown);
        let [print, format] = [("read", file, &PRINT[..]), ("read", file, &FORMAT[..])];
        assert_eq!(work(&[print, format]), ": vsnprintf in read(net/dev_mcast)");
        assert_eq!(work(&[print, format, ("read", file, &SHOW)]), shown, "whatever comes first");
    }

    #[test]
    fn different_calls_and_files_share_no_function() {
        assert_eq!(work(&[("read", Some("a"), &SHOW), ("read", Some("b"), &PRINT)]), ": read()");
        assert_eq!(work(&[("read", None, &SHOW), ("write", None, &["write_it", "vfs_read"])]), "");
        let file = Some("net/dev_mcast");
        assert_eq!(work(&[("read", file, &SHOW), ("read", file, &["other"])]), ": read(net/dev_mcast)");
    }
}
