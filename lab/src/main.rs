//! `lab`: the driver's command line. The same binary is PID 1 of the guest and the guest kernel's module loader.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use lab::doctor::{self, Verdict};
use lab::machine::{Ended, Hardware};
use lab::{
    Trouble, guest_modules, init, interrupt, kernels, live, machine, module, place, proof, proven, rounds,
    smoke, testbed, truth,
};
use whyslow_faults::proven::{Ended as Kept, Row};

whyslow_faults::may_become_victim!();

/// The request could not be run: neither passed nor failed.
const NOT_RUN: u8 = 2;

/// The result was not as required.
const FAILED: u8 = 1;

/// Real kernels in guests, for the tests of whyslow.
#[derive(Debug, Parser)]
#[command(name = "lab")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Fetch kernels into the cache; all of them, unless some are named.
    Fetch { kernels: Vec<String> },
    /// Boot a kernel and run one command in it.
    Boot(Boot),
    /// Run scenarios, and compare whyslow's document with the victims' clocks.
    Run(rounds::Asked),
    /// Run the ground-truth programs of the wait chains in guests.
    Truth(truth::Asked),
    /// Run tests that need a live host or judge a clock, each in a process of its own; a test that fails runs again.
    Live(live::Asked),
    /// Run a few cells of the live suites, with seeds that are known to pass.
    Smoke(smoke::Asked),
    /// Run the statistical tests, and publish how often whyslow was right.
    Proof(proof::Asked),
    /// What all tests of a run have proven, and how many had to run again.
    Proven(proven::Asked),
    /// Run a plan here: what the driver makes the guest do.
    #[command(hide = true)]
    TestBed {
        /// The plan, in the folder that receives the results.
        plan: PathBuf,
    },
    /// Read files in turn, so many rounds: a program of a case, under a drawn name.
    #[command(hide = true)]
    Ask { rounds: usize, files: Vec<PathBuf> },
    /// Build the fault module for a kernel, and print its path.
    Module {
        /// 5.10, 6.1, 6.12, 6.18; with the suffix -rt (not 6.18): real-time preemption.
        kernel: String,
        /// The module's name.
        #[arg(long, default_value = module::NAME)]
        name: String,
    },
    /// Run whyslow's doctor on the host and in guests; fails if a capability of docs/doctor is lost.
    Doctor {
        /// host, 5.10, 5.10-rt, 6.1, 6.1-rt, 6.12, 6.12-rt, 6.18; all, unless some are named.
        kernels: Vec<String>,
        /// Write the pages to docs/doctor instead of comparing with them.
        #[arg(long)]
        write: bool,
        /// Number of tries until nothing is lost: an emulator may break a guest.
        #[arg(long, default_value_t = 1, value_name = "N")]
        tries: u64,
    },
}

#[derive(Debug, Args)]
struct Boot {
    /// 5.10, 6.1, 6.12, 6.18; with the suffix -rt (not 6.18): real-time preemption.
    kernel: String,
    #[arg(long, default_value_t = 2)]
    vcpus: u32,
    /// MiB.
    #[arg(long, default_value_t = 2048)]
    memory: u32,
    /// MiB of an ext4 disk in the place of /var/tmp.
    #[arg(long)]
    disk: Option<u64>,
    /// The old cgroup hierarchies.
    #[arg(long)]
    cgroup_v1: bool,
    /// A model of CPU that QEMU knows.
    #[arg(long)]
    cpu: Option<String>,
    /// Time is the count of instructions, each 2^N ns (one CPU only).
    #[arg(long, value_name = "N")]
    icount: Option<u8>,
    /// Two nodes of one CPU each.
    #[arg(long)]
    numa: bool,
    /// A table to add to the machine's: a file, or the name of a source in lab/acpi.
    #[arg(long, value_name = "TABLE")]
    acpi: Vec<PathBuf>,
    /// More words for the kernel's command line.
    #[arg(long, default_value = "")]
    append: String,
    /// Seconds until the guest is killed.
    #[arg(long, default_value_t = 300)]
    limit: u64,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    if init::is_first() {
        init::main();
    }
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some(name) = init::asked_for_module(&args) {
        return reported(guest_modules::load(&name).map(|()| ExitCode::SUCCESS));
    }
    testbed::cases::become_if_asked();
    interrupt::listen();
    reported(match Cli::parse().verb {
        Verb::Fetch { kernels } => Ok(fetch(&kernels)),
        Verb::Boot(asked) => boot(asked),
        Verb::Run(asked) => rounds::run(&asked),
        Verb::Truth(asked) => truth::run(&asked),
        Verb::Live(asked) => live::run(&asked),
        Verb::Smoke(asked) => smoke::run(&asked),
        Verb::Proof(asked) => proof::run(&asked),
        Verb::Proven(asked) => proven::run(&asked),
        Verb::TestBed { plan } => testbed::run(&plan)
            .map(|()| ExitCode::SUCCESS)
            .map_err(|err| Trouble::new(format!("run {}", plan.display()), err)),
        Verb::Ask { rounds, files } => testbed::cases::ask(rounds, &files)
            .map(|()| ExitCode::SUCCESS)
            .map_err(|err| Trouble::new("read the files of a case", err)),
        Verb::Module { kernel, name } => build_module(&kernel, &name),
        Verb::Doctor { kernels, write, tries } => Ok(ask_doctor(&kernels, write, tries)),
    })
}

fn reported(done: Result<ExitCode, Trouble>) -> ExitCode {
    done.unwrap_or_else(|trouble| {
        eprintln!("lab: {trouble}");
        ExitCode::from(NOT_RUN)
    })
}

/// The worse of the two results; a kernel that was left out counts only if it is not optional.
fn left_out(label: &str, reason: &dyn std::fmt::Display, worst: u8) -> u8 {
    let optional = if kernels::is_optional(label) { " (optional)" } else { "" };
    println!("{label}: not run{optional}: {reason}");
    if optional.is_empty() { NOT_RUN } else { worst }
}

fn fetch(asked: &[String]) -> ExitCode {
    let all: Vec<String> = kernels::LABELS.map(str::to_owned).to_vec();
    let mut worst = 0;
    for label in if asked.is_empty() { &all } else { asked } {
        match kernels::fetch(label) {
            Ok(kernel) => println!("{label}: Linux {}", kernel.release),
            Err(reason) => worst = left_out(label, &reason, worst),
        }
    }
    ExitCode::from(worst)
}

fn build_module(label: &str, name: &str) -> Result<ExitCode, Trouble> {
    let kernel = kernels::fetch(label)
        .map_err(|reason| Trouble::new(format!("build the module for {label}"), reason))?;
    println!("{}", module::build(&kernel, name)?.display());
    Ok(ExitCode::SUCCESS)
}

fn ask_doctor(asked: &[String], write: bool, tries: u64) -> ExitCode {
    let all: Vec<String> =
        [doctor::HOST].iter().chain(&kernels::LABELS).map(|label| (*label).to_owned()).collect();
    let mut worst = 0;
    for label in if asked.is_empty() { &all } else { asked } {
        if kernels::is_optional(label)
            && let Err(reason) = kernels::fetch(label)
        {
            worst = left_out(label, &reason, worst);
            continue;
        }
        let (mut status, mut retried) = (examined(label, write), 0);
        while status != 0 && retried + 1 < tries && !interrupt::asked() {
            println!("{label}: once more");
            (status, retried) = (examined(label, write), retried + 1);
        }
        let ended = if status == 0 { Kept::Passed } else { Kept::Failed };
        Row { retried, ..Row::of("doctor", label, ended) }.write();
        worst = worst.max(status);
    }
    ExitCode::from(worst)
}

/// Run the doctor on one kernel, and print the result: 0 if nothing is lost.
fn examined(label: &str, write: bool) -> u8 {
    match doctor::examine(label, write) {
        Ok((version, Verdict::Same(there))) => println!("{version}: {there} links, none lost"),
        Ok((version, Verdict::New(there))) => println!("{version}: {there} links"),
        Ok((version, Verdict::Lost(lost))) => {
            println!("{version}: lost: {}", lost.join(", "));
            return FAILED;
        }
        Err(trouble) => {
            println!("{label}: {trouble}");
            return NOT_RUN;
        }
    }
    0
}

fn boot(asked: Boot) -> Result<ExitCode, Trouble> {
    let what = format!("boot Linux {}", asked.kernel);
    let kernel = kernels::fetch(&asked.kernel).map_err(|reason| Trouble::new(&what, reason))?;
    let hardware = Hardware {
        vcpus: asked.vcpus,
        memory_mib: asked.memory,
        cpu_model: asked.cpu,
        icount_shift: asked.icount,
        numa: asked.numa,
        disk_mib: asked.disk,
        cgroup_v1: asked.cgroup_v1,
        append: asked.append,
        acpi_tables: asked.acpi,
    };
    let mut run = place::Run::new()?;
    let ran =
        machine::run(&kernel, &hardware, run.share(), &asked.command, Duration::from_secs(asked.limit))?;
    print!("{}", ran.console);
    let ratio = ran.clock_ratio.map_or("not judged".to_owned(), |ratio| format!("{ratio:.2} of the host's"));
    println!("lab: {:.1} s here, {:.1} s there, its clock {ratio}", ran.seconds, ran.guest_seconds);
    for complaint in &ran.complaints {
        println!("lab: complaint: {complaint}");
    }
    let failed = |why: &str, run: &mut place::Run| {
        Trouble::new(&what, format!("{why} (kept: {})", run.keep().display()))
    };
    match ran.status {
        Ended::Exited(status) => Ok(ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))),
        Ended::TimedOut => Err(failed("it did not end within its limit", &mut run)),
        Ended::Died(_) if ran.emulator_broke() => Err(failed("the emulator broke it: try again", &mut run)),
        Ended::Died(_) => Err(failed("the guest died", &mut run)),
    }
}
