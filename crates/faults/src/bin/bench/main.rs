//! What does an exam cost the host that is examined?
//!
//! Each load runs in pairs, alone and under a running exam, in alternating order; its CPU time (user and system, all its
//! processes, as `wait4` tells) is compared, so that other people on the machine disturb less than they would disturb a
//! clock. The median of the pairs' ratios is printed, with the range: a wide range says that the machine was not quiet.
//!
//! `bench WHYSLOW [PAIRS [PERCENT]]`: 5 pairs and full loads, if not said otherwise.

mod exam;
mod loads;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use exam::Exam;
use loads::{LOADS, Load};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |at: usize, default: u64| words.get(at).map_or(Some(default), |text| text.parse().ok());
    let done = match words.as_slice() {
        ["--load", name, size] => loads::be(name, size.parse().unwrap_or(1)),
        [binary, ..] if !binary.starts_with('-') => match (number(1, 5), number(2, 100)) {
            (Some(pairs @ 1..), Some(percent @ 1..)) => bench(&PathBuf::from(binary), pairs, percent),
            _ => usage(),
        },
        _ => usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            let _ = writeln!(io::stderr(), "bench: {err}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, "usage: bench WHYSLOW [PAIRS [PERCENT]]"))
}

fn bench(whyslow: &PathBuf, pairs: u64, percent: u64) -> io::Result<()> {
    let mut out = io::stdout();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    writeln!(out, "load average before: {}", load.trim())?;
    writeln!(out, "{:<34}{:>10}{:>10}{:>8}{:>16}", "load", "alone", "examined", "ratio", "range")?;
    for load in &LOADS {
        writeln!(out, "{}", compare(whyslow, load, pairs, percent)?)?;
    }
    writeln!(out, "(CPU seconds of the load; ratio: median of {pairs} interleaved pairs)\n")?;
    cost(whyslow, pairs, &mut out)
}

/// One row of the table.
fn compare(whyslow: &PathBuf, load: &Load, pairs: u64, percent: u64) -> io::Result<String> {
    let size = (load.size * percent / 100).max(1);
    let (mut alone, mut examined, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        let under_exam = || -> io::Result<f64> {
            let exam = Exam::start(whyslow, "600s")?;
            let cpu = cpu_of(load, size);
            exam.stop()?;
            cpu
        };
        let (a, e) = if pair % 2 == 0 {
            let a = cpu_of(load, size)?;
            (a, under_exam()?)
        } else {
            let e = under_exam()?;
            (cpu_of(load, size)?, e)
        };
        alone.push(a);
        examined.push(e);
        ratios.push(e / a);
    }
    let (a, e, ratio) = (median(&mut alone), median(&mut examined), median(&mut ratios));
    let range = format!("{:.3} .. {:.3}", ratios[0], ratios[ratios.len() - 1]);
    Ok(format!("{:<34}{a:>10.2}{e:>10.2}{ratio:>8.3}{range:>16}", load.words))
}

fn cpu_of(load: &Load, size: u64) -> io::Result<f64> {
    let mut command = match load.program {
        Some(program) => program(size),
        None => {
            let mut own = Command::new(std::env::current_exe()?);
            own.args(["--load", load.name, &size.to_string()]);
            own
        }
    };
    let end = exam::finish(exam::tied(&mut command).spawn()?)?;
    if !end.well {
        return Err(io::Error::other(format!("the load {} failed", load.name)));
    }
    Ok(end.cpu)
}

/// What the exam itself takes, and how soon it looks and answers.
fn cost(whyslow: &PathBuf, rounds: u64, out: &mut impl io::Write) -> io::Result<()> {
    const WINDOW: f64 = 3.0;
    let (mut start, mut answer, mut cpu, mut rss) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let exam = Exam::start(whyslow, &format!("{WINDOW}s"))?;
        start.push(exam.until_looking);
        let end = exam.wait()?;
        answer.push(end.wall - WINDOW - start.last().copied().unwrap_or(0.0));
        cpu.push(end.cpu);
        rss.push(end.rss_mib);
    }
    writeln!(out, "{:<34}{:>10}{:>26}", "exam of 3 s", "median", "range")?;
    for (words, unit, values) in [
        ("start-up to first look", "ms", start.iter().map(|s| s * 1e3).collect::<Vec<_>>()),
        ("end of window to answer", "ms", answer.iter().map(|s| s * 1e3).collect()),
        ("CPU time, all in all", "ms", cpu.iter().map(|s| s * 1e3).collect()),
        ("peak memory", "MiB", rss),
    ] {
        let mut values = values;
        let middle = median(&mut values);
        let range = format!("{:.0} .. {:.0} {unit}", values[0], values[values.len() - 1]);
        writeln!(out, "{words:<34}{middle:>10.0}{range:>26}")?;
    }
    Ok(())
}

/// Sorts `values`; the one in the middle.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [1.0]), 1.0);
    }

    #[test]
    fn every_load_runs_to_its_end_and_uses_cpu() {
        for load in &LOADS {
            match load.program {
                Some(program) => assert!(exam::finish(program(10).spawn().unwrap()).unwrap().well),
                None => loads::be(load.name, 3).unwrap(),
            }
        }
    }
}
