//! The host is close to its limit on open files.
//!
//! Signal: `/proc/sys/fs/file-nr`: open files, (unused), limit. This is a risk: an open that fails costs an error, not time.

use whyslow_model::{Culprit, Finding, Missing, RuledOut, Share, Subject, SubjectKind, command};

use super::Rule;
use crate::Evidence;

pub const RULE: Rule = Rule {
    id: "file-handles",
    question: "Is the host about to run out of open files?",
    what: "The number of open files of the host is near fs.file-max. At the limit, each open, socket or accept of a process without \
           CAP_SYS_ADMIN fails with \"Too many open files in system\".",
    how: "The open files and the limit, the first and the third number of /proc/sys/fs/file-nr: reported at 90 % of the limit or more.",
    limits: "Never a cause. The limit of a single process (RLIMIT_NOFILE), which is reached far more often: not examined. \
             Linux 5.10 and newer: the default has no practical limit. The count lags by some files per CPU.",
    sources: "fs/file_table.c (alloc_empty_file, proc_nr_files); Documentation/admin-guide/sysctl/fs.rst.",
    can_be_cause: false,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// Servers open files in bursts of thousands: with less than a tenth left, one burst may fail.
const NEAR: Share = Share::percent(90);

fn numbers(ev: &Evidence<'_>) -> Result<(u64, u64), Missing> {
    match ev.sysctls("fs/file-nr")?[..] {
        [open, _, limit] if limit > 0 => Ok((open, limit)),
        _ => Err(Missing::broken("proc/sys/fs/file-nr", "expected three numbers")),
    }
}

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    const FILE: &str = "/proc/sys/fs/file-max";
    let (open, limit) = numbers(ev)?;
    if Share::of(open as f64, limit as f64) < NEAR {
        return Ok(Vec::new());
    }
    Ok(vec![
        Finding::risk(RULE.id, Subject::host())
            .titled(format!("{open} files are open on this host, its limit is {limit}"))
            .by(Culprit::new(SubjectKind::Limit, FILE, "fs.file-max").at_file(FILE))
            .check("open files, and the limit", "cat /proc/sys/fs/file-nr")
            .check("open files by process, most first", "for p in /proc/[0-9]*; do echo \"$(ls $p/fd | wc -l) $(cat $p/comm)\"; done 2>/dev/null | sort -rn | head")
            .fix(
                format!(
                    "double the limit (costs kernel memory), and find the process that leaves files open (undo: echo {limit} > {FILE})"
                ),
                command!("echo {} > {}", limit.saturating_mul(2), FILE),
            ),
    ])
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let (open, limit) = numbers(ev)?;
    let share = Share::of(open as f64, limit as f64);
    let evidence = format!("{open} are open, {share} of the host's limit");
    Ok((share < NEAR).then_some(RuledOut { what: "the limit on open files".into(), evidence }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::fixture::Fixture;

    fn host(text: &str) -> Fixture {
        Fixture::second().end("proc/sys/fs/file-nr", text)
    }

    #[test]
    fn fires_when_nearly_all_are_taken() {
        let found = check(&host("95000\t0\t100000\n").ev()).unwrap();
        assert_eq!(found[0].title, "95000 files are open on this host, its limit is 100000");
        assert_eq!(found[0].fixes[0].command.as_deref(), Some("echo 200000 > /proc/sys/fs/file-max"));
    }

    #[test]
    fn is_quiet_when_there_is_room() {
        let host = host("1248\t0\t9223372036854775807\n");
        assert_eq!(check(&host.ev()), Ok(vec![]));
        assert!(rules_out(&host.ev()).unwrap().is_some());
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        assert_eq!(
            check(&Fixture::second().ev()).unwrap_err().to_string(),
            "proc/sys/fs/file-nr was not recorded"
        );
        assert!(check(&host("12\n").ev()).is_err());
        assert!(check(&host("1 0 0\n").ev()).is_err());
    }
}
