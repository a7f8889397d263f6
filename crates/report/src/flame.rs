//! Flame graphs: folded stacks as an SVG that a browser can search and zoom.

use inferno::flamegraph::{Options, from_lines};

use crate::safe::plain;

/// Sums stay exact in the f64 that the drawing computes with.
const EXACT: u64 = 1 << 53;

/// The graph could not be drawn.
#[derive(Debug)]
pub enum CannotDraw {
    /// There is no time to draw.
    Nothing,
    /// The drawing failed.
    Failed(String),
}

impl std::fmt::Display for CannotDraw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CannotDraw::Nothing => f.write_str("no time was seen that could be drawn"),
            CannotDraw::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for CannotDraw {}

/// An SVG of `lines`: (frames from the root outwards with ';' between them, nanoseconds). A line's width is its time; the
/// root is as wide as their sum.
///
/// # Errors
///
/// If there is no time in `lines`, or the drawing fails.
pub fn flame(title: &str, subtitle: &str, lines: &[(String, u64)]) -> Result<String, CannotDraw> {
    let mut stacks: Vec<(Vec<String>, u64)> = lines
        .iter()
        .filter(|(stack, ns)| *ns > 0 && !stack.is_empty())
        .map(|(stack, ns)| (stack.split(';').map(frame).collect(), *ns))
        .collect();
    let scale = scale(&stacks);
    stacks.iter_mut().for_each(|(_, ns)| *ns /= scale);
    let total: u64 = stacks.iter().map(|(_, ns)| *ns).sum();
    if total == 0 {
        return Err(CannotDraw::Nothing);
    }
    stacks.sort();
    // inferno would sort lines, in which a frame's name may come between a frame and what stands on it. As a "chart" it
    // leaves the order alone, and turns it round.
    let folded: Vec<_> = stacks.iter().rev().map(|(stack, ns)| format!("{} {ns}", stack.join(";"))).collect();
    let mut options = options(title, subtitle, total.saturating_mul(scale), scale);
    let mut svg = Vec::new();
    from_lines(&mut options, folded.iter().map(String::as_str), &mut svg)
        .map_err(|error| CannotDraw::Failed(error.to_string()))?;
    String::from_utf8(svg).map_err(|error| CannotDraw::Failed(error.to_string()))
}

fn options(title: &str, subtitle: &str, total_ns: u64, scale: u64) -> Options<'static> {
    let mut options = Options::default();
    options.title = xml(title);
    options.subtitle = (!subtitle.is_empty()).then(|| xml(subtitle));
    options.name_type = "FileSnapshot:".to_owned();
    // The same recording gives the same picture: a colour is a frame's name.
    options.hash = true;
    options.deterministic = true;
    options.flame_chart = true;
    // Below 10 s microseconds are readable, above milliseconds are.
    let (unit, ns) = if total_ns < 10_000_000_000 { ("us", 1e3) } else { ("ms", 1e6) };
    options.count_name = unit.to_owned();
    options.factor = scale as f64 / ns;
    options
}

/// By how much all times must be divided so that their sum is exact.
fn scale(stacks: &[(Vec<String>, u64)]) -> u64 {
    let total: u128 = stacks.iter().map(|(_, ns)| u128::from(*ns)).sum();
    u64::try_from(total / u128::from(EXACT)).unwrap_or(u64::MAX).saturating_add(1)
}

/// A frame's name as inferno takes it for one: a number after its last space would be read as a column of its own, and a
/// line that begins with '#' as a remark.
fn frame(name: &str) -> String {
    let name = xml(name);
    let name = name.trim();
    if name.is_empty() {
        return "?".to_owned();
    }
    let name = if name.starts_with('#') { format!("_{name}") } else { name.to_owned() };
    match name.rsplit_once(' ') {
        Some((before, last)) if last.starts_with(|c: char| c.is_ascii_digit() || c == '.') => {
            format!("{before}\u{a0}{last}")
        }
        _ => name,
    }
}

/// Without what XML cannot hold, even escaped; inferno escapes the rest.
fn xml(text: &str) -> String {
    plain(text).replace(['\u{fffe}', '\u{ffff}'], "?")
}
