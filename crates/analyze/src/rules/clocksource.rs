//! Each read of the clock accesses a device, because the kernel does not use the CPU's own counter.
//!
//! Signal: the clocksource in use and those available; the kernel's log. The cost is not measured for each victim, so this rule makes
//! risks only; the CPU time seen in the clock's read function is reported with them.

use std::time::Duration;

use whyslow_model::{Culprit, Finding, Missing, RuledOut, Subject, SubjectKind, command, seconds};

use super::Rule;
use crate::shell::quoted;
use crate::{Clocksource, Evidence};

pub const RULE: Rule = Rule {
    id: "clocksource",
    question: "Does each read of the clock cost a system call and a device access?",
    what: "The kernel does not read the time from the CPU's counter (tsc) but from a timer outside the CPU (hpet, \
           acpi_pm). Each clock_gettime is then a real system call and takes 0.5 to several us instead of 30 ns, and \
           CPUs queue for the one timer. The kernel falls back to such a timer when it finds the counter unstable.",
    how: "current_clocksource is compared with a list of slow clocksources. available_clocksource shows whether the tsc can be \
          used, and the \"clocksource\" and TSC lines of the kernel's log show why not. CPU time comes from on-CPU samples inside the \
          clock's read function; there is no time lost and no counterfactual.",
    limits: "Never a cause: how much faster each task would have been is not measured. An unknown clocksource: counts as \
             fast. The reason: unknown if its line is no longer in the kernel's log.",
    sources: "kernel/time/clocksource.c (clocksource_watchdog, \"Marking clocksource\"); arch/x86/kernel/{hpet,tsc}.c; \
              drivers/clocksource/acpi_pm.c; Documentation/admin-guide/kernel-parameters.txt (clocksource=, tsc=).",
    can_be_cause: false,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// Clocks that are read from a device (x86), have no fast path in user space, or are as coarse as the tick.
const SLOW: &[&str] = &["hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies", "hyperv_clocksource_msr"];
/// The read functions of these clocks.
const READS: &[&str] = &[
    "read_hpet",
    "acpi_pm_read",
    "acpi_pm_read_slow",
    "acpi_pm_read_verified",
    "i8253_read",
    "read_hv_clock_msr",
];
/// What the kernel logs when it stops trusting a counter.
const DISTRUST: &[&str] = &["Marking clocksource", "TSC found unstable", "Marking TSC unstable"];

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let clock = ev.clocksource()?;
    let why = ev.kernel_log().ok().and_then(|log| {
        log.into_iter().map(|r| r.text).rfind(|text| DISTRUST.iter().any(|words| text.contains(words)))
    });
    if !SLOW.contains(&clock.current.as_str()) {
        return Ok(Vec::new());
    }
    Ok(vec![finding(&clock, why, time_in_reads(ev))])
}

fn time_in_reads(ev: &Evidence<'_>) -> Option<Duration> {
    // Frames may end in an offset: "read_hpet+0x1f".
    let is_read = |frame: &String| READS.iter().any(|read| frame.split(['.', '+', ' ']).next() == Some(read));
    let reads = |frames: &[String]| frames.iter().any(is_read);
    let samples = ev.samples().ok()?.iter().filter(|sample| reads(&sample.kernel));
    Some(Duration::from_nanos(samples.map(|sample| sample.ns).fold(0, u64::saturating_add)))
}

fn finding(clock: &Clocksource, why: Option<String>, cpu: Option<Duration>) -> Finding {
    const FILE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let current = &clock.current;
    let measured = match cpu {
        Some(time) if !time.is_zero() => format!("; reading it took {} of CPU time", seconds(time)),
        _ => String::new(),
    };
    let mut f = Finding::risk(RULE.id, Subject::host())
        .titled(format!("the clock is {current}: each read of it accesses a device{measured}"))
        .by(Culprit::new(SubjectKind::Kernel, current, format!("clocksource {current}")).at_file(FILE))
        .check(
            "the clock in use, and the clocks available",
            "cd /sys/devices/system/clocksource/clocksource0 && grep . current_clocksource available_clocksource",
        )
        .check("why the kernel left the tsc, if its log still goes back that far", "dmesg | grep -i -e clocksource -e tsc");
    f.cpu = cpu.filter(|time| !time.is_zero());
    if let Some(why) = why {
        f = f.advice(format!("the kernel says why: {why}"));
    }
    if clock.available.iter().any(|name| name == "tsc") {
        return f.fix(
            format!(
                "go back to the tsc; the time may be wrong if it is unstable (undo: echo {} > {FILE})",
                quoted(current)
            ),
            command!("echo tsc > {}", FILE),
        );
    }
    f.advice(
        "the tsc is not available: the kernel found it unstable or the firmware hides it; update the firmware (on a guest, the \
         hypervisor's); only if the counter is known to be good, boot with tsc=reliable (undo: remove it and boot again)",
    )
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let evidence =
        format!("the clocksource is {}, which is read without a device access", ev.clocksource()?.current);
    Ok((check(ev)?.is_empty()).then_some(RuledOut { what: "a slow clock".into(), evidence }))
}

#[cfg(test)]
mod tests {
    use whyslow_model::Kind;
    use whyslow_model::table::Sample;

    use super::*;
    use crate::evidence::fixture::Fixture;

    const DIR: &str = "sys/devices/system/clocksource/clocksource0";

    fn host(current: &str, available: &str) -> Fixture {
        Fixture::second()
            .end(&format!("{DIR}/current_clocksource"), current)
            .end(&format!("{DIR}/available_clocksource"), available)
    }

    #[test]
    fn fires_on_hpet_and_offers_the_tsc_back() {
        let found = check(&host("hpet\n", "tsc hpet acpi_pm \n").ev()).unwrap();
        assert_eq!((found[0].kind, found[0].lost), (Kind::Risk, None));
        assert_eq!(found[0].title, "the clock is hpet: each read of it accesses a device");
        assert!(found[0].fixes[0].command.as_deref().unwrap().starts_with("echo tsc > /sys"));
        assert!(found[0].fixes[0].text.contains("undo: echo hpet >"));
    }

    #[test]
    fn tells_the_time_spent_in_reads_and_what_the_kernel_said() {
        let log = "4,9,5000,-;clocksource: timekeeping watchdog on CPU1: Marking clocksource 'tsc' as unstable because the skew is too large\n";
        let sample = Sample {
            ns: 120_000_000,
            kernel: vec!["read_hpet+0x1f".into(), "ktime_get".into()],
            ..Sample::default()
        };
        let host =
            host("hpet\n", "hpet acpi_pm \n").end("dev/kmsg", log).with(|t| t.samples = Some(vec![sample]));
        let found = check(&host.ev()).unwrap();
        assert_eq!(found[0].cpu, Some(Duration::from_millis(120)));
        assert!(found[0].title.ends_with("reading it took 120 ms of CPU time"));
        assert!(found[0].fixes[0].text.contains("skew is too large"));
        assert!(found[0].fixes.iter().all(|fix| fix.command.is_none()), "there is no tsc to go back to");
    }

    #[test]
    fn is_quiet_on_fast_clocks() {
        for fast in
            ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "timebase", "tomorrow"]
        {
            assert_eq!(check(&host(fast, "tsc hpet\n").ev()), Ok(vec![]), "{fast}");
        }
        assert!(rules_out(&host("tsc", "tsc").ev()).unwrap().is_some());
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        let unknown = check(&Fixture::second().ev()).unwrap_err().to_string();
        assert_eq!(unknown, format!("{DIR}/current_clocksource was not recorded"));
    }
}
