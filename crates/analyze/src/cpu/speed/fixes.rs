//! Fixes that would make slow CPUs faster.

use whyslow_model::{Finding, command};

use super::{Group, Reason};

impl Group {
    /// `f`, with all fixes that would help.
    pub fn fixes(&self, mut f: Finding) -> Finding {
        for reason in &self.why.hold {
            f = match (&reason.file, &reason.values) {
                (Some(file), Some((is, better))) => reason.lifted(f, file, is, better),
                _ => advice(f, reason.kind),
            };
        }
        if self.why.hold.is_empty() {
            f = f.advice(
                "compare with the firmware's settings (power profile, speed limits) and with a host of the same model; on a \
                 virtual machine ask the operator of the hypervisor for the speed that was promised",
            );
        }
        f
    }
}

impl Reason {
    /// A file of each policy or CPU: the fix sets all of them alike.
    pub fn lifted(&self, f: Finding, file: &str, is: &str, better: &str) -> Finding {
        let to = |value: &str| match file
            .split_once("/policy")
            .and_then(|(above, below)| Some((above, below.split_once('/')?.1)))
        {
            Some((above, name)) => command!("echo {} | tee {}/policy*/{}", value, above, name),
            None => command!("echo {} | tee {}", value, file),
        };
        let undo = to(is);
        let f = f.fix(format!("let it run faster; it takes more power (undo: {})", &*undo), to(better));
        match self.kind {
            "governor" | "epp" => f.advice(
                "to make it last: the profile of tuned or power-profiles-daemon, cpupower.service, or cpufreq.default_governor=performance \
                 on the kernel's command line (undo: the old profile; remove it and boot)",
            ),
            _ => f,
        }
    }
}

fn advice(f: Finding, kind: &str) -> Finding {
    match kind {
        "bios" => f.advice("raise the limit in the firmware's power settings, or look for a failed power supply or fan"),
        "thermal" => f.advice("look at fans, filters, heat sinks and the temperature of the room"),
        "power" => f.advice("raise the power limit (RAPL, BMC), if supply and cooling allow it (undo: the old limit)"),
        "steal" => f.advice("ask the operator of the hypervisor for CPUs of your own, or for a less crowded machine"),
        "interrupts" | "exits" => f.advice("spread its interrupts over more CPUs (undo: the old affinity)"),
        "taken" => f.advice(
            "look for timers and firmware interrupts on it: perf stat -a -A -e msr/smi/, the hwlat tracer, irq_vectors \
             tracepoints",
        ),
        _ => f.advice("leave its sibling idle, or switch SMT off, if single threads matter more than throughput"),
    }
}
