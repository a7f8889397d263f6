//! Pairs of runs, alone and with a tool, and their ratios.

use std::fmt;
use std::io;
use std::path::Path;

use crate::loads::Load;
use crate::run::{self, Took};
use crate::statistics::{FEWEST, Median, Verdict};
use crate::tools::{FEWER_FOR_OTHERS, Tool};

/// A tool on a load.
pub struct Row {
    words: &'static str,
    ratio: Median,
    /// Medians of CPU seconds: the load alone, with the tool.
    alone: f64,
    with: f64,
    /// Medians of the CPU and BPF seconds that the tool reports as its own cost.
    own: Option<f64>,
    own_bpf: Option<f64>,
    bar: Option<f64>,
}

/// Run pairs in alternating order, so that slow changes of the machine affect both runs alike.
pub fn compare(tool: &Tool, program: &Path, load: &Load, pairs: usize, percent: u64) -> io::Result<Row> {
    let size = (load.size * percent * tool.percent / 10_000).max(1);
    let pairs = if tool.program.is_none() { pairs } else { (pairs / FEWER_FOR_OTHERS).max(6.min(pairs)) };
    let (mut alone, mut with) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        if pair % 2 == 0 {
            alone.push(run::alone(load, size)?);
            with.push(run::with(tool, program, load, size)?);
        } else {
            with.push(run::with(tool, program, load, size)?);
            alone.push(run::alone(load, size)?);
        }
    }
    let ratios = alone.iter().zip(&with).map(|(a, w)| w.load / a.load).collect();
    let none = || io::Error::other("no pairs");
    Ok(Row {
        words: tool.words,
        ratio: Median::of(ratios).ok_or_else(none)?,
        alone: middle(&alone, |took| Some(took.load)).ok_or_else(none)?,
        with: middle(&with, |took| Some(took.load)).ok_or_else(none)?,
        own: middle(&with, |took| Some(took.tool?.cpu)),
        own_bpf: middle(&with, |took| took.tool?.bpf),
        bar: (tool.bar)(load.name),
    })
}

fn middle(runs: &[Took], of: fn(&Took) -> Option<f64>) -> Option<f64> {
    Some(Median::of(runs.iter().filter_map(of).collect())?.value)
}

impl Row {
    pub fn verdict(&self) -> Option<Verdict> {
        Some(self.ratio.against(self.bar?))
    }

    fn judgement(&self) -> Option<String> {
        let (bar, ratio) = (self.bar?, &self.ratio);
        Some(match self.verdict()? {
            Verdict::Holds => format!("bar {bar:.2}: holds"),
            Verdict::Fails => format!("bar {bar:.2}: FAILS"),
            Verdict::NotResolved if ratio.of < FEWEST => {
                format!("bar {bar:.2}: not judged, < {FEWEST} pairs")
            }
            Verdict::NotResolved => format!("bar {bar:.2}: NOT RESOLVED"),
        })
    }
}

/// Four digits, or the whole digits before the point if there are more.
fn digits(value: f64, width: usize) -> String {
    let after = if value < 10.0 {
        3
    } else if value < 100.0 {
        2
    } else {
        1
    };
    format!("{value:>width$.after$}")
}

/// The head of the table.
pub const HEAD: &str = "                    alone   with  ratio    95 % interval pairs own CPU    BPF";

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Median { value, low, high, of } = self.ratio;
        let interval = if low.is_finite() {
            format!("{} ..{}", digits(low, 0), digits(high, 6))
        } else {
            "too few pairs".to_owned()
        };
        write!(f, "  {:<18}{:>5.2}{:>7.2}{}", self.words, self.alone, self.with, digits(value, 7))?;
        write!(f, "{interval:>17}{of:>6}")?;
        match (self.own, self.own_bpf) {
            (Some(cpu), Some(bpf)) => write!(f, "{cpu:>8.2}{bpf:>7.2}")?,
            (Some(cpu), None) => write!(f, "{cpu:>8.2}{:>7}", "-")?,
            (None, _) => write!(f, "{:>8}{:>7}", "-", "-")?,
        }
        match self.judgement() {
            Some(words) => write!(f, "\n    {words}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: Vec<f64>, bar: Option<f64>) -> Row {
        let ratio = Median::of(values).unwrap();
        Row { words: "whyslow chains", ratio, alone: 0.5, with: 0.55, own: Some(0.31), own_bpf: None, bar }
    }

    #[test]
    fn a_row_says_what_was_measured_and_whether_the_bar_holds() {
        let spread = |n: u32| (0..n).map(|i| 1.05 + f64::from(i) / 1000.0).collect::<Vec<_>>();
        let text = row(spread(30), Some(1.10)).to_string();
        assert!(text.starts_with("  whyslow chains"), "{text}");
        assert!(text.contains("1.059 .. 1.070    30    0.31      -\n    bar 1.10: holds"), "{text}");
        assert!(row(spread(30), Some(1.05)).to_string().ends_with("bar 1.05: FAILS"));
        assert!(row(spread(30), Some(1.065)).to_string().ends_with("NOT RESOLVED"));
        assert!(row(spread(9), Some(1.10)).to_string().ends_with("not judged, < 30 pairs"));
        assert!(row(spread(4), None).to_string().contains("too few pairs"));
    }

    #[test]
    fn the_head_stands_over_its_columns() {
        let text = row(vec![1.0; 30], None).to_string();
        assert_eq!(text.len(), HEAD.len(), "{HEAD}\n{text}");
        assert!(HEAD.len() <= 80);
    }
}
