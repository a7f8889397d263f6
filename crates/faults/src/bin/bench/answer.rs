//! How soon an exam attaches its probes and answers, and what it costs.

use std::io;
use std::path::Path;

use crate::run::Session;
use crate::statistics::Median;
use crate::tools::Looks;

const WINDOW: f64 = 3.0;

/// Exams of an idle host; each line of the table is a median and a range.
pub fn time(whyslow: &Path, rounds: usize, out: &mut impl io::Write) -> io::Result<()> {
    let window = format!("{WINDOW}s");
    let (mut start, mut answer) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let session =
            Session::start(whyslow, &["exam", "--json", "--for", &window], Looks::Says("looking, "))?;
        let until_looking = session.until_looking;
        let (_, wall) = session.wait()?;
        start.push(until_looking * 1e3);
        answer.push((wall - WINDOW - until_looking) * 1e3);
    }
    writeln!(out, "exam of {WINDOW} s, {rounds} times")?;
    for (words, values) in [("start-up to first look", start), ("end of window to answer", answer)] {
        let range = values.iter().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
        let Some(middle) = Median::of(values) else { continue };
        writeln!(out, "  {words:<26}{:>5.0} ms, {:.0} .. {:.0} ms", middle.value, range.0, range.1)?;
    }
    Ok(())
}
