//! CPUs that are slow alike: how slow, why, and which setting makes them slow.

use std::collections::BTreeMap;

use whyslow_model::{Culprit, SubjectKind};

use super::{Against, Measured, Reasons, Verdict};
use crate::cpu::numbers;

/// Slow CPUs of one kind: compared with the same reference, slow for the same reasons.
pub(crate) struct Group {
    pub cpus: Vec<(Measured, Verdict)>,
    pub why: Reasons,
}

impl Group {
    /// The median of their ratios.
    pub fn ratio(&self) -> f64 {
        let mut all: Vec<f64> = self.cpus.iter().map(|(_, verdict)| verdict.ratio).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(1.0)
    }

    /// What they are compared with.
    pub fn against(&self) -> Against {
        self.cpus.first().map_or(Against::Median, |(_, verdict)| verdict.against)
    }

    /// The numbers of the CPUs.
    pub fn numbers(&self) -> Vec<u32> {
        self.cpus.iter().map(|(seen, _)| seen.cpu).collect()
    }

    /// A ratio for each CPU.
    pub fn ratios(&self, pick: fn(&Verdict) -> f64) -> BTreeMap<u32, f64> {
        self.cpus.iter().map(|(seen, verdict)| (seen.cpu, pick(verdict))).collect()
    }

    /// "CPU 3 is 1.5 times slower than the median CPU: governor powersave keeps it at ...".
    pub fn slower(&self) -> String {
        let is = if self.cpus.len() == 1 { "is" } else { "are" };
        format!("{} {is} {}{}", numbers::named(&self.numbers()), self.compared(), self.because())
    }

    /// The same as a place: "CPU 3, which is 1.5 times slower than ...".
    pub fn place(&self) -> String {
        let is = if self.cpus.len() == 1 { "is" } else { "are" };
        format!("{}, which {is} {}", numbers::named(&self.numbers()), self.compared())
    }

    fn compared(&self) -> String {
        let one = self.cpus.len() == 1;
        let than = match self.against() {
            Against::Median => "the median CPU".to_owned(),
            Against::Nominal => {
                let nominal = self.cpus.iter().find_map(|(seen, _)| seen.nominal_mhz).unwrap_or(0.0);
                format!("{} nominal {nominal:.0} MHz", if one { "its" } else { "their" })
            }
            Against::Baseline => "in the baseline".to_owned(),
            Against::Itself => format!("when nothing interrupts {}", if one { "it" } else { "them" }),
        };
        format!("{:.1} times slower than {than}", self.ratio())
    }

    fn because(&self) -> String {
        let words = self.why.words();
        if self.why.hold.is_empty() {
            format!(", for a reason that is {words}")
        } else {
            format!(": {words}")
        }
    }

    /// The setting that makes them slow, else the CPUs themselves.
    pub fn culprit(&self) -> Culprit {
        let cpus = self.numbers();
        let set = self.why.hold.iter().find_map(|reason| Some((reason, reason.file.clone()?)));
        match set {
            Some((reason, file)) => Culprit::new(
                SubjectKind::Kernel,
                reason.kind,
                format!("{} of {}", reason.kind, numbers::named(&cpus)),
            )
            .at_file(file),
            None => {
                let id = cpus.first().map_or_else(String::new, |cpu| format!("cpu{cpu}"));
                Culprit::new(SubjectKind::Cpu, id, numbers::named(&cpus))
            }
        }
    }
}
