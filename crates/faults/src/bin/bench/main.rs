//! How much does whyslow cost the host that it observes, compared with other tools?
//!
//! Each load runs in pairs, alone and with a tool, in alternating order. The bench compares CPU time (user and system, of all processes of
//! the load, by the load's own account), because other users of the machine disturb it less than they disturb wall time. It prints the
//! median of the pairs' ratios with a 95 % interval. A bar holds if the whole interval is below it and fails if the whole interval is above
//! it; otherwise it is not resolved, which is not a pass.
//!
//! Exit status: 0 no bar failed, 1 a bar failed, 2 could not measure.

mod answer;
mod args;
mod compare;
mod loads;
mod run;
mod statistics;
mod tools;

use std::io::{self, Write as _};
use std::process::ExitCode;

use args::Args;
use compare::compare;
use loads::Load;
use statistics::Verdict;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--be", name, size] => loads::be(name, size.parse().unwrap_or(1)).map(|()| 0),
        _ => Args::parse(&words)
            .map_err(|err| io::Error::new(io::ErrorKind::InvalidInput, err))
            .and_then(|args| bench(&args, &mut io::stdout())),
    };
    match done {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(err) => {
            let _ = writeln!(io::stderr(), "bench: {err}");
            ExitCode::from(2)
        }
    }
}

/// Returns how many bars failed.
fn bench(args: &Args, out: &mut impl io::Write) -> io::Result<usize> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    writeln!(out, "load average before: {}", load.trim())?;
    let mut verdicts = Vec::new();
    for load in args.loads() {
        on_load(args, load, out, &mut verdicts)?;
    }
    writeln!(out, "\nalone, with: CPU seconds of the load; ratio: median of the pairs' ratios")?;
    if args.wants("exam") && tools::TOOLS.iter().any(|t| t.name == "exam" && t.find(&args.whyslow).is_ok()) {
        answer::time(&args.whyslow, (args.pairs / 5).max(1), out)?;
    }
    let count = |wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    let (holds, fails, open) = (count(Verdict::Holds), count(Verdict::Fails), count(Verdict::NotResolved));
    writeln!(out, "bars: {holds} hold, {fails} fail, {open} not resolved (which is not a pass)")?;
    Ok(fails)
}

fn on_load(
    args: &Args,
    load: &Load,
    out: &mut impl io::Write,
    verdicts: &mut Vec<Verdict>,
) -> io::Result<()> {
    writeln!(out, "\n{}\n{}", load.words, compare::HEAD)?;
    for tool in args.tools() {
        let found = tool.find(&args.whyslow);
        let row = match &found {
            Ok(program) => compare(tool, program, load, args.pairs, args.percent),
            Err(why) => Err(io::Error::other(*why)),
        };
        match row {
            Ok(row) => {
                writeln!(out, "{row}")?;
                verdicts.extend(row.verdict());
            }
            // A failure of our own tool is an error; if another tool cannot be measured here, only a line says so.
            Err(why) if tool.program.is_some() || found.is_err() => {
                writeln!(out, "  {:<18}{why}", tool.words)?
            }
            Err(why) => return Err(io::Error::other(format!("{} on {}: {why}", tool.words, load.name))),
        }
    }
    Ok(())
}
