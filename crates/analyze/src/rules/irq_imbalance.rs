//! One CPU does the interrupt work of the host while the others have little of it.
//!
//! Signal: softirq and hardirq time by CPU, from our tracer if it ran, else from `/proc/stat`. This is a risk: other rules report
//! the tasks that waited for that CPU.

use std::time::Duration;

use whyslow_model::{Culprit, Finding, Missing, RuledOut, Share, Subject, SubjectKind, command};

use super::Rule;
use crate::Evidence;

pub const RULE: Rule = Rule {
    id: "irq-imbalance",
    question: "Does one CPU do nearly all interrupt work?",
    what: "The interrupts of a device (most often a network card with one queue, or with all queues on one CPU) go to one \
           CPU. That CPU spends nearly all its time on them, while the other CPUs have few. Packets are late and dropped there, and \
           tasks on that CPU do not run.",
    how: "Time in interrupt handlers by CPU over the window: measured at entry and exit of each handler, or the softirq \
          and irq columns of /proc/stat. One CPU above 80 % of the window while the median of the others is below 20 %.",
    limits: "Never a cause by itself. Kernels without CONFIG_IRQ_TIME_ACCOUNTING: /proc/stat counts by tick, so short handlers are \
             counted too rarely or too often. A CPU set aside for packets: reported, though it is on purpose.",
    sources: "Documentation/core-api/irq/irq-affinity.rst; Documentation/networking/scaling.rst (RSS, RPS); \
              kernel/sched/cputime.c (irqtime_account_irq).",
    can_be_cause: false,
    check,
    rules_out: Some(rules_out),
    folds: None,
    shows: super::NOTHING,
};

/// A CPU with less interrupt time has room for more packets.
const FULL: Share = Share::percent(80);
/// If the other CPUs have more than this, they are loaded, too: it is load, not imbalance.
const LIGHT: Share = Share::percent(20);

fn check(ev: &Evidence<'_>) -> Result<Vec<Finding>, Missing> {
    let shares = shares(ev)?;
    Ok(imbalance(&shares).map(|(cpu, share, median)| finding(ev, cpu, share, median)).into_iter().collect())
}

/// Interrupt time of each CPU as a share of the window.
fn shares(ev: &Evidence<'_>) -> Result<Vec<(u32, Share)>, Missing> {
    let share = |time: Duration| Share::of(time.as_secs_f64(), ev.window().as_secs_f64());
    if let Ok(cpus) = ev.cpus() {
        let time = |c: &whyslow_model::table::Cpu| {
            let hard = c.hardirqs.iter().map(|(_, _, ns, _)| *ns).fold(0, u64::saturating_add);
            c.softirqs.iter().map(|(_, ns, _)| *ns).fold(hard, u64::saturating_add)
        };
        return Ok(cpus.iter().map(|c| (c.cpu, share(Duration::from_nanos(time(c))))).collect());
    }
    Ok(ev.cpu_time_by_cpu()?.into_iter().map(|(cpu, time)| (cpu, share(time.softirq + time.irq))).collect())
}

/// The busiest CPU, its share and the median of the others, if they are that far apart.
fn imbalance(shares: &[(u32, Share)]) -> Option<(u32, Share, Share)> {
    let (cpu, most) = *shares.iter().max_by(|a, b| a.1.ratio().total_cmp(&b.1.ratio()))?;
    let mut others: Vec<Share> = shares.iter().filter(|(c, _)| *c != cpu).map(|(_, share)| *share).collect();
    others.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let median = *others.get(others.len() / 2)?;
    (most > FULL && median < LIGHT).then_some((cpu, most, median))
}

fn finding(ev: &Evidence<'_>, cpu: u32, share: Share, median: Share) -> Finding {
    let vector = busiest_vector(ev, cpu).map_or_else(String::new, |name| format!(", most of it {name}"));
    let f = Finding::risk(RULE.id, Subject::new(SubjectKind::Cpu, cpu.to_string(), format!("CPU {cpu}")))
        .titled(format!("it spent {share} of the window on interrupts{vector}; the others {median}"))
        .check("soft and irq columns by CPU", "mpstat -P ALL 1 5")
        .check("the line that rises on that CPU", "cat /proc/interrupts; sleep 5; cat /proc/interrupts");
    match busiest_line(ev, cpu) {
        Some((irq, what)) => f
            .by(Culprit::new(SubjectKind::Device, format!("irq {irq}"), what))
            .fix(
                format!(
                    "let other CPUs serve interrupt {irq} (note the old mask first: cat /proc/irq/{irq}/smp_affinity_list; undo: write \
                     it back); irqbalance, if it runs, may change it again"
                ),
                command!("echo 0-{} > /proc/irq/{}/smp_affinity_list", ev.recording().meta.cpus.saturating_sub(1), irq),
            ),
        None => f.advice(
            "spread the device's queues over CPUs (smp_affinity_list of its interrupts), or let other CPUs process the packets of \
             a one-queue card (rps_cpus; costs CPU time there; undo: write 0 to it)",
        ),
    }
}

/// The softirq that took the most time on that CPU.
fn busiest_vector(ev: &Evidence<'_>, cpu: u32) -> Option<String> {
    let found = ev.cpus().ok()?.iter().find(|c| c.cpu == cpu)?;
    found.softirqs.iter().max_by_key(|(_, ns, _)| *ns).map(|(name, ..)| name.clone())
}

/// The device interrupt that came most often on that CPU: its number and its device.
fn busiest_line(ev: &Evidence<'_>, cpu: u32) -> Option<(u32, String)> {
    let all = ev.interrupts().ok()?;
    let column = all.cpus.iter().position(|c| *c == cpu)?;
    let count = |line: &crate::parse::interrupts::Interrupt| line.counts.get(column).copied().unwrap_or(0);
    let devices = all.lines.iter().filter_map(|line| Some((line.id.parse::<u32>().ok()?, line)));
    let (irq, line) = devices.max_by_key(|(_, line)| count(line)).filter(|(_, line)| count(line) > 0)?;
    Some((irq, line.what.split_ascii_whitespace().last().unwrap_or("a device").to_owned()))
}

fn rules_out(ev: &Evidence<'_>) -> Result<Option<RuledOut>, Missing> {
    let most = shares(ev)?.into_iter().max_by(|a, b| a.1.ratio().total_cmp(&b.1.ratio()));
    Ok(most.filter(|(_, share)| *share < LIGHT).map(|(cpu, share)| RuledOut {
        what: "interrupts".into(),
        evidence: format!("the CPU with the most, CPU {cpu}, spent {share} of the window on them"),
    }))
}

#[cfg(test)]
mod tests {
    use whyslow_model::table::Cpu;

    use super::*;
    use crate::evidence::fixture::Fixture;

    const ZERO: &str = "cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n";

    /// One second, softirq ticks of two CPUs.
    fn host(first: u32, second: u32) -> Fixture {
        let end = format!("cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 9 0 0 {first} 0\ncpu1 0 0 0 9 0 0 {second} 0\n");
        Fixture::second().start("proc/stat", ZERO).end("proc/stat", &end)
    }

    #[test]
    fn fires_when_one_cpu_has_it_all() {
        let host = host(92, 3)
            .start("proc/interrupts", " CPU0 CPU1\n 36: 0 0 PCI-MSI 1-edge eth0-rx-0\nLOC: 0 0 Local timer\n")
            .end(
                "proc/interrupts",
                " CPU0 CPU1\n 36: 9000 0 PCI-MSI 1-edge eth0-rx-0\nLOC: 90000 5 Local timer\n",
            );
        let found = check(&host.ev()).unwrap();
        assert_eq!(found[0].title, "it spent 92 % of the window on interrupts; the others 3 %");
        assert_eq!(found[0].culprit.as_ref().unwrap().name, "eth0-rx-0");
        assert_eq!(found[0].fixes[0].command.as_deref(), Some("echo 0-1 > /proc/irq/36/smp_affinity_list"));
        assert_eq!(found[0].lost, None);
    }

    #[test]
    fn the_tracer_is_asked_first() {
        let cpu = |cpu, ns| Cpu {
            cpu,
            softirqs: vec![("NET_RX".into(), ns, 5), ("RCU".into(), 0, 1)],
            ..Cpu::default()
        };
        let host = host(0, 0).with(|t| t.cpus = Some(vec![cpu(0, 0), cpu(1, 900_000_000)]));
        let found = check(&host.ev()).unwrap();
        assert_eq!(
            found[0].title,
            "it spent 90 % of the window on interrupts, most of it NET_RX; the others 0 %"
        );
    }

    #[test]
    fn is_quiet_when_all_are_busy_or_none_or_there_is_one_cpu() {
        for (first, second) in [(90, 60), (50, 0), (0, 0)] {
            assert_eq!(check(&host(first, second).ev()), Ok(vec![]));
        }
        assert_eq!(imbalance(&[(0, Share::percent(99))]), None);
        assert!(rules_out(&host(1, 0).ev()).unwrap().is_some());
    }

    #[test]
    fn says_so_when_it_cannot_tell() {
        assert_eq!(check(&Fixture::second().ev()).unwrap_err().to_string(), "proc/stat was not recorded");
    }
}
