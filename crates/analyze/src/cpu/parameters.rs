//! Kernel parameters for idling, frequencies and isolation: which of them have an effect on this machine?
//!
//! The kernel reads and keeps (/sys/module) the parameter of a driver that is not in charge, but the parameter does nothing.

use whyslow_model::Missing;

use crate::Evidence;
use crate::parse::cmdline::Parameter;

/// The effect of a parameter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The intended effect, or nothing shows the contrary.
    Has,
    /// No effect, and why.
    None(String),
    /// Something else runs, and what.
    Other(String),
    /// The intended effect, at a price.
    Price(&'static str),
}

/// The machine that the parameters apply to.
struct Machine<'a, 'r> {
    ev: &'a Evidence<'r>,
    /// The idle driver in charge.
    driver: &'a str,
    /// "GenuineIntel", where known.
    vendor: Option<String>,
    /// The frequency driver in charge; `None`: there is none, or it is not known.
    frequency: Option<String>,
}

/// Every parameter for these policies, as it was given, with its effect. `driver`: the idle driver in charge.
pub fn judged(ev: &Evidence<'_>, driver: &str) -> Result<Vec<(String, Effect)>, Missing> {
    let all = ev.kernel_parameters()?;
    let drivers = ev.files_like("sys/devices/system/cpu/cpufreq/policy", "/scaling_driver");
    let frequency = drivers.first().map(|frame| crate::parse::text(&frame.bytes).trim().to_owned());
    let vendor = ev.cpu_info().ok().and_then(|info| info.vendor);
    let machine = Machine { ev, driver, vendor, frequency };
    let is_last = |at: usize, name: &str| all.iter().skip(at + 1).all(|(later, _)| later != name);
    let effects =
        all.iter().enumerate().filter(|(at, (name, _))| is_last(*at, name)).map(|(_, parameter)| {
            let (name, value) = parameter;
            let text = value.as_ref().map_or_else(|| name.clone(), |value| format!("{name}={value}"));
            (text, machine.effect(parameter))
        });
    Ok(effects.collect())
}

impl Machine<'_, '_> {
    fn effect(&self, (name, value): &Parameter) -> Effect {
        let value = value.as_deref().unwrap_or_default();
        match name.as_str() {
            "intel_idle.max_cstate" => self.intel_max_cstate(value),
            "processor.max_cstate" => self.acpi_max_cstate(value),
            "idle" if value == "poll" => Effect::Price(
                "CPUs that have nothing to do spin: they wake up at once, use full power, and take from the other thread of \
                 their core",
            ),
            "cpuidle.off" if value == "1" => {
                Effect::Price("idle CPUs only halt: no driver and no governor picks their state")
            }
            "intel_pstate" => {
                self.frequency_driver(value, "Intel", &["GenuineIntel"], &["intel_pstate", "intel_cpufreq"])
            }
            "amd_pstate" => self.frequency_driver(
                value,
                "AMD",
                &["AuthenticAMD", "HygonGenuine"],
                &["amd-pstate", "amd-pstate-epp"],
            ),
            "nohz_full" if starts_with_cpu(value) => self.list("nohz_full", "CONFIG_NO_HZ_FULL"),
            "isolcpus" if starts_with_cpu(value) || value.starts_with("domain") => {
                self.list("isolated", "CONFIG_CPU_ISOLATION")
            }
            _ => Effect::Has,
        }
    }

    /// For intel_idle 0 switches that driver off, which has an effect wherever the driver could have been in charge.
    fn intel_max_cstate(&self, value: &str) -> Effect {
        let foreign = self.vendor.as_deref().filter(|vendor| *vendor != "GenuineIntel");
        match (self.driver, foreign) {
            ("intel_idle", _) => self.as_asked("intel_idle", value, |asked| asked),
            (driver, Some(vendor)) => Effect::None(format!(
                "intel_idle does not drive a CPU of {vendor}; {driver} is in charge{}",
                self.knob()
            )),
            (driver, None) if value != "0" => Effect::None(format!("{driver} is in charge{}", self.knob())),
            _ => Effect::Has,
        }
    }

    fn acpi_max_cstate(&self, value: &str) -> Effect {
        match self.driver {
            // acpi_processor_power_init() takes 0 for 1.
            "acpi_idle" => self.as_asked("processor", value, |asked| asked.max(1)),
            driver => Effect::None(format!("{driver} is in charge, not acpi_idle{}", self.knob())),
        }
    }

    /// Names the parameter that limits the driver in charge.
    fn knob(&self) -> &'static str {
        match self.driver {
            "acpi_idle" => "; processor.max_cstate limits that driver",
            "intel_idle" => "; intel_idle.max_cstate limits that driver",
            _ => "",
        }
    }

    /// Compares the module's parameter with the value on the command line.
    fn as_asked(&self, module: &str, value: &str, runs_as: fn(i64) -> i64) -> Effect {
        let file = format!("sys/module/{module}/parameters/max_cstate");
        match (self.ev.file(&file, crate::parse::single::integer), value.parse::<i64>()) {
            (Ok(runs), Ok(asked)) if runs_as(runs) != runs_as(asked) => {
                Effect::Other(format!("/{file} is {runs}"))
            }
            _ => Effect::Has,
        }
    }

    /// A mode of a vendor's own frequency driver.
    fn frequency_driver(&self, value: &str, maker: &str, vendors: &[&str], drivers: &[&str]) -> Effect {
        if let Some(vendor) = self.vendor.as_deref().filter(|vendor| !vendors.contains(vendor)) {
            return Effect::None(format!("that driver is for CPUs of {maker}, and this one is of {vendor}"));
        }
        match &self.frequency {
            Some(driver) if is_mode(value) && !drivers.contains(&driver.as_str()) => {
                Effect::Other(format!("the frequency driver in charge is {driver}"))
            }
            _ => Effect::Has,
        }
    }

    /// A list of CPUs that the kernel would show if it had taken it.
    fn list(&self, file: &str, option: &str) -> Effect {
        let none = || {
            Effect::None(format!(
                "no CPU is in /sys/devices/system/cpu/{file}: this kernel may lack {option}"
            ))
        };
        let shown =
            self.ev.file(&format!("sys/devices/system/cpu/{file}"), |text| Ok(text.trim().to_owned()));
        match shown {
            // "(null)": the kernel never made the list.
            Ok(shown) if shown.is_empty() || shown.contains("null") => none(),
            Err(Missing::NotInKernel { .. }) => none(),
            _ => Effect::Has,
        }
    }
}

/// The value requests one of the driver's modes, that is, that the driver be in charge.
fn is_mode(value: &str) -> bool {
    value.split(',').any(|word| ["active", "passive", "guided", "force"].contains(&word))
}

fn starts_with_cpu(value: &str) -> bool {
    value.starts_with(|c: char| c.is_ascii_digit())
}
