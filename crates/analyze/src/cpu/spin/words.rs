//! Words for threads and places that users can look up.

use std::collections::BTreeMap;

use super::process::Thread;

/// The place, in words that users can look up.
#[must_use]
pub fn place(name: &str, module: &str) -> String {
    match (name, module) {
        ("", "") => "code whose name is not known".to_owned(),
        ("", module) => module.to_owned(),
        (name, module) if module.is_empty() || name.starts_with(module) => name.to_owned(),
        (name, module) => format!("{name} ({module})"),
    }
}

/// Threads by name, with numbers folded: "4 threads *_scheduler and thread poll". Threads with the name of their `process`
/// are counted only.
#[must_use]
pub fn folded(threads: &[&Thread], process: &str) -> String {
    let mut kinds: BTreeMap<String, (u64, u64, &str)> = BTreeMap::new();
    for thread in threads {
        let kind = kinds.entry(without_digits(&thread.comm)).or_insert((0, 0, &thread.comm));
        *kind = (kind.0.saturating_add(thread.sum.spun), kind.1.saturating_add(1), kind.2);
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by(|a, b| b.1.0.cmp(&a.1.0).then_with(|| a.0.cmp(&b.0)));
    let own = without_digits(process);
    let reported = kinds.iter().take(2).map(|(folded, (_, count, name))| match count {
        1 if *name == process => "one thread".to_owned(),
        1 => format!("thread {name}"),
        count if *folded == own => format!("{count} threads"),
        count => format!("{count} threads {folded}"),
    });
    let reported: Vec<String> = reported.collect();
    match kinds.len() {
        0..=2 => reported.join(" and "),
        _ => {
            let others = kinds.iter().skip(2).map(|(_, (_, count, _))| *count).fold(0, u64::saturating_add);
            let noun = if others == 1 { "other" } else { "others" };
            format!("{} and {others} {noun}", reported.join(", "))
        }
    }
}

fn without_digits(name: &str) -> String {
    let mut folded = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '0'..='9' if folded.ends_with('*') => {}
            '0'..='9' => folded.push('*'),
            c => folded.push(c),
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::spin::Sum;

    #[test]
    fn names_are_folded() {
        let thread =
            |pid, comm: &str| Thread { pid, comm: comm.into(), sum: Sum { all: 1, spun: 1, unsure: 0 } };
        let one = [thread(1, "a-1"), thread(2, "a-23"), thread(3, "b")];
        let folded = |threads: &[Thread]| folded(&threads.iter().collect::<Vec<_>>(), "p");
        assert_eq!(folded(&one), "2 threads a-* and thread b");
        let many = [thread(1, "a"), thread(2, "b"), thread(3, "c"), thread(4, "d")];
        assert_eq!(folded(&many), "thread a, thread b and 2 others");
        assert_eq!(folded(&many[..3]), "thread a, thread b and 1 other");
    }

    #[test]
    fn the_name_of_the_process_is_not_said_again() {
        let thread = |pid| Thread { pid, comm: "poll".into(), sum: Sum { all: 1, spun: 1, unsure: 0 } };
        let (one, two) = (thread(1), thread(2));
        assert_eq!(folded(&[&one, &two], "poll"), "2 threads");
        assert_eq!(folded(&[&one], "poll"), "one thread");
    }
}
