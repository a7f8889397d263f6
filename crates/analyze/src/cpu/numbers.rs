//! Numbers of CPUs, in the form that people write.

/// Ranges that are named; the CPUs beyond them are counted.
const NAMED: usize = 8;

/// "CPU 3", "CPUs 0-2, 5"; `cpus` are in order.
#[must_use]
pub fn named<'a>(cpus: impl IntoIterator<Item = &'a u32>) -> String {
    let ranges = ranges(cpus);
    let words: Vec<String> = ranges.iter().take(NAMED).map(one).collect();
    let others = ranges.iter().skip(NAMED).map(|(a, b)| u64::from(b - a) + 1).sum::<u64>();
    let more = if others > 0 { format!(" and {others} more") } else { String::new() };
    let is_one = matches!(ranges[..], [(a, b)] if a == b);
    format!("{} {}{more}", if is_one { "CPU" } else { "CPUs" }, words.join(", "))
}

/// "0-2,5", as the kernel writes them; `cpus` are in order.
#[must_use]
pub fn list<'a>(cpus: impl IntoIterator<Item = &'a u32>) -> String {
    ranges(cpus).iter().map(one).collect::<Vec<_>>().join(",")
}

fn ranges<'a>(cpus: impl IntoIterator<Item = &'a u32>) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*cpu) => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    ranges
}

fn one((a, b): &(u32, u32)) -> String {
    if a == b { a.to_string() } else { format!("{a}-{b}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_reported_as_ranges() {
        assert_eq!(named(&[3]), "CPU 3");
        assert_eq!(named(&[0, 1, 2, 5]), "CPUs 0-2, 5");
        assert_eq!(named(&[u32::MAX]), format!("CPU {}", u32::MAX));
        let every_second: Vec<u32> = (0..40).step_by(2).collect();
        assert_eq!(named(&every_second), "CPUs 0, 2, 4, 6, 8, 10, 12, 14 and 12 more");
    }
}
