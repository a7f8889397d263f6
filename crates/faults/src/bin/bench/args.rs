//! What to measure.

use std::path::PathBuf;

use crate::loads::{LOADS, Load};
use crate::tools::{TOOLS, Tool};

pub const USAGE: &str = "\
usage: bench WHYSLOW [PAIRS [PERCENT]] [--pairs N] [--percent N] [--load NAME]... [--tool NAME]...";

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Args {
    pub whyslow: PathBuf,
    /// Pairs of runs for each of our tools: one with the tool, one without.
    pub pairs: usize,
    /// Size of the loads, in percent.
    pub percent: u64,
    /// Names of loads; an empty list means all.
    pub loads: Vec<String>,
    /// Names of tools; an empty list means all.
    pub tools: Vec<String>,
}

impl Args {
    pub fn parse(words: &[String]) -> Result<Args, String> {
        let mut args =
            Args { whyslow: PathBuf::new(), pairs: 30, percent: 100, loads: Vec::new(), tools: Vec::new() };
        let mut bare = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(option) = word.strip_prefix("--") else {
                bare.push(word);
                continue;
            };
            let value = words.next().ok_or_else(|| format!("--{option} needs a value"))?;
            match option {
                "pairs" => args.pairs = number(value)? as usize,
                "percent" => args.percent = number(value)?,
                "load" => args.loads.push(one_of(value, LOADS.iter().map(|load| load.name))?),
                "tool" => args.tools.push(one_of(value, TOOLS.iter().map(|tool| tool.name))?),
                _ => return Err(format!("there is no option --{option}\n{USAGE}")),
            }
        }
        let mut bare = bare.into_iter();
        args.whyslow = bare.next().ok_or(USAGE)?.into();
        if let Some(pairs) = bare.next() {
            args.pairs = number(pairs)? as usize;
        }
        if let Some(percent) = bare.next() {
            args.percent = number(percent)?;
        }
        if bare.next().is_some() {
            return Err(USAGE.to_owned());
        }
        Ok(args)
    }

    pub fn loads(&self) -> impl Iterator<Item = &'static Load> {
        LOADS.iter().filter(|load| self.loads.is_empty() || self.loads.iter().any(|name| name == load.name))
    }

    pub fn tools(&self) -> impl Iterator<Item = &'static Tool> {
        TOOLS.iter().filter(|tool| self.wants(tool.name))
    }

    pub fn wants(&self, tool: &str) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|name| name == tool)
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("{text} is not a positive number\n{USAGE}"))
}

fn one_of<'a>(text: &str, known: impl Iterator<Item = &'a str> + Clone) -> Result<String, String> {
    if known.clone().any(|name| name == text) {
        return Ok(text.to_owned());
    }
    Err(format!("{text} is not one of: {}", known.collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Args::parse(&words)
    }

    #[test]
    fn numbers_may_be_given_by_place_or_by_name() {
        let args = parse("target/whyslow").unwrap();
        assert_eq!((args.pairs, args.percent, args.tools().count()), (30, 100, TOOLS.len()));
        let args = parse("w 7 20").unwrap();
        assert_eq!((args.pairs, args.percent), (7, 20));
        assert_eq!(parse("w 7 20").unwrap(), parse("w --percent 20 --pairs 7").unwrap());
    }

    #[test]
    fn loads_and_tools_are_chosen_by_name() {
        let args = parse("w --pairs 30 --load pingpong --tool chains --tool run").unwrap();
        assert_eq!(args.loads().map(|load| load.name).collect::<Vec<_>>(), ["pingpong"]);
        assert_eq!(args.tools().map(|tool| tool.name).collect::<Vec<_>>(), ["chains", "run"]);
        assert!(!args.wants("exam"));
    }

    #[test]
    fn invalid_command_line_is_refused() {
        for line in ["", "w x", "w 0", "w 5 50 1", "w --load x", "w --tool", "w --what 1", "w --pairs -1"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
