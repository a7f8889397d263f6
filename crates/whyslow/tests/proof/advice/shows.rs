//! Whether the output of a check shows what its finding says. No I/O.

use serde_json::Value;
use whyslow_faults::FaultKind;

/// A check that was run twice, a while apart.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The command.
    pub line: String,
    /// Output of the first run.
    pub before: String,
    /// Output of the second run.
    pub after: String,
}

/// Whether the checks of a finding about this fault show the fault.
pub fn shows(kind: FaultKind, finding: &Value, all: &[Shown]) -> Result<(), String> {
    let shown = match (kind, all) {
        (FaultKind::MemoryLimit, [shown, filled]) if is_filled(&filled.after) => shown,
        (FaultKind::MemoryLimit, _) => return Err(format!("what fills it is not shown: {all:?}")),
        (_, [shown]) => shown,
        _ => return Err(format!("{} checks", all.len())),
    };
    match kind {
        FaultKind::CpuQuota => rises(shown, "nr_throttled"),
        FaultKind::MemoryLimit => rises(shown, named(finding)),
        FaultKind::SwapIn => rises(shown, named(finding)).and_then(|()| rises(shown, "pswpin")),
        FaultKind::CpuPinned => is_its_mask(finding, shown),
        FaultKind::BlkioThrottle => is_its_limit(finding, shown),
        FaultKind::ListenOverflow => is_full(finding, shown),
    }
}

/// Page cache, by its name in either version of cgroups.
fn is_filled(text: &str) -> bool {
    ["total_cache ", "file "].iter().any(|name| count(text, name) > Some(0))
}

/// The counter that a check says will rise: the first word of its text.
fn named(finding: &Value) -> &str {
    let text = finding["check"][0]["text"].as_str().unwrap_or("");
    text.split(' ').next().filter(|name| name.contains("fault")).unwrap_or("?")
}

/// The sum of the counters with this prefix.
fn count(text: &str, name: &str) -> Option<u64> {
    let of = |line: &str| line.strip_prefix(name)?.split_whitespace().last()?.parse::<u64>().ok();
    let all: Vec<u64> = text.lines().filter_map(of).collect();
    (!all.is_empty()).then(|| all.iter().sum())
}

fn rises(shown: &Shown, name: &str) -> Result<(), String> {
    match (count(&shown.before, name), count(&shown.after, name)) {
        (Some(before), Some(after)) if after > before => Ok(()),
        (before, after) => Err(format!("{}: {name} does not rise: {before:?}, {after:?}", shown.line)),
    }
}

/// "pid 7's current affinity list: 1".
fn is_its_mask(finding: &Value, shown: &Shown) -> Result<(), String> {
    let reported = finding["culprit"]["id"].as_str().and_then(|id| id.strip_prefix("cpu")).unwrap_or("?");
    let seen = shown.after.trim().rsplit(' ').next().unwrap_or("");
    if reported == seen { Ok(()) } else { Err(format!("the mask is reported as {reported}")) }
}

/// The limit's line is the one in the undo text, and the device is in the list of devices.
fn is_its_limit(finding: &Value, shown: &Shown) -> Result<(), String> {
    let text = finding["fixes"][0]["text"].as_str().unwrap_or("");
    let line =
        text.split_once("echo '").and_then(|(_, rest)| rest.split_once('\'')).map_or("?", |(line, _)| line);
    let device = line.split(' ').next().unwrap_or("?");
    let (limits, devices) = shown.after.split_once("NAME").ok_or("no list of devices")?;
    let is_limited = limits.lines().any(|row| row == line);
    let is_listed = devices.split_whitespace().any(|word| word == device);
    if is_limited && is_listed { Ok(()) } else { Err(format!("{line:?} is not in it")) }
}

/// "LISTEN 17 16 ...": the listen queue is full in one of the two runs, or the kernel counted drops between them (a dropped client retries
/// a second later, and the queue has room meanwhile); and the limit is the one in the advice.
fn is_full(finding: &Value, shown: &Shown) -> Result<(), String> {
    let rows = [&shown.before, &shown.after];
    let columns = |text: &&String| {
        let row = text.lines().find(|row| row.starts_with("LISTEN"))?.split_whitespace().collect::<Vec<_>>();
        Some((row.get(1)?.parse::<u64>().ok()?, row.get(2)?.parse::<u64>().ok()?))
    };
    let queues: Vec<(u64, u64)> = rows.iter().filter_map(columns).collect();
    let drops = |text: &&String| {
        let after = text.split("skmem:(").nth(1)?.split(')').next()?.rsplit(",d").next()?;
        after.parse::<u64>().ok()
    };
    let [before, after] = rows.each_ref().map(drops);
    let drops = after.ok_or("drops are not shown")?;
    let is_full = queues.iter().any(|(queued, limit)| queued >= limit);
    if !is_full && before.is_none_or(|before| drops <= before) {
        return Err(format!("no queue is full: {queues:?}, and nothing was dropped: {before:?}, {drops}"));
    }
    let limit = queues.first().map_or(0, |(_, limit)| *limit);
    let is_reported = finding["fixes"].to_string().contains(&format!("(now {limit})"));
    match drops {
        1.. if is_reported => Ok(()),
        drops => Err(format!("drops {drops}, limit {limit}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(kind: FaultKind, before: &str, after: &str) -> Vec<Shown> {
        let one = |before: &str, after: &str| Shown {
            line: String::new(),
            before: before.to_owned(),
            after: after.to_owned(),
        };
        let filled = (kind == FaultKind::MemoryLimit).then(|| one("", "anon 1\nfile 4096\n"));
        [one(before, after)].into_iter().chain(filled).collect()
    }

    #[test]
    fn a_limit_of_which_it_is_not_shown_what_fills_it_is_not_shown() {
        let kind = FaultKind::MemoryLimit;
        let mut all = shown(kind, "workingset_refault_file 1", "workingset_refault_file 9");
        assert_eq!(shows(kind, &reported(kind), &all), Ok(()));
        all[1].after = "anon 1\nfile 0\n".to_owned();
        assert!(shows(kind, &reported(kind), &all).is_err());
    }

    fn reported(kind: FaultKind) -> Value {
        match kind {
            FaultKind::CpuPinned => json!({"culprit": {"id": "cpu1"}}),
            FaultKind::BlkioThrottle => json!({"fixes": [{"text": "raise it (undo: echo '254:0 99' > /x)"}]}),
            FaultKind::ListenOverflow => json!({"fixes": [{"text": "raise the backlog (now 16)"}]}),
            FaultKind::MemoryLimit => json!({"check": [{"text": "workingset_refault_file rises"}]}),
            FaultKind::SwapIn => json!({"check": [{"text": "pgmajfault rises, and so does pswpin"}]}),
            FaultKind::CpuQuota => json!({}),
        }
    }

    #[test]
    fn check_output_passes_only_if_it_shows_the_fault() {
        let listen =
            |queued: u64, drops: u64| format!("State\nLISTEN {queued} 16 *:1 *:*\n skmem:(r0,f0,d{drops})\n");
        let cases = [
            (FaultKind::CpuQuota, "nr_throttled 1".to_owned(), "nr_throttled 2".to_owned()),
            (
                FaultKind::MemoryLimit,
                "workingset_refault_file 1".to_owned(),
                "workingset_refault_file 9".to_owned(),
            ),
            (FaultKind::SwapIn, "pgmajfault 1\npswpin 1".to_owned(), "pgmajfault 2\npswpin 2".to_owned()),
            (FaultKind::CpuPinned, String::new(), "pid 7's current affinity list: 1\n".to_owned()),
            (FaultKind::BlkioThrottle, String::new(), "254:0 99\nNAME MAJ:MIN\nvda 254:0\n".to_owned()),
            (FaultKind::ListenOverflow, listen(17, 1), listen(17, 2)),
            (FaultKind::ListenOverflow, listen(3, 1), listen(4, 2)),
        ];
        for (kind, before, after) in cases {
            assert_eq!(shows(kind, &reported(kind), &shown(kind, &before, &after)), Ok(()), "{kind:?}");
            assert!(shows(kind, &reported(kind), &shown(kind, "", "")).is_err(), "{kind:?}");
            assert!(shows(kind, &reported(kind), &[]).is_err(), "{kind:?}");
            assert!(
                shows(kind, &reported(kind), &shown(kind, &after, &before)).is_err()
                    || kind == FaultKind::ListenOverflow
            );
        }
        let other = [
            (FaultKind::CpuPinned, "pid 7's current affinity list: 0,1\n".to_owned()),
            (FaultKind::BlkioThrottle, "254:0 98\nNAME MAJ:MIN\nvda 254:0\n".to_owned()),
            (FaultKind::BlkioThrottle, "254:0 99\nNAME MAJ:MIN\nvda 254:16\n".to_owned()),
            (FaultKind::ListenOverflow, listen(3, 2)),
            (FaultKind::ListenOverflow, listen(17, 0)),
        ];
        for (kind, after) in other {
            assert!(shows(kind, &reported(kind), &shown(kind, &after, &after)).is_err(), "{kind:?}: {after}");
        }
    }
}
