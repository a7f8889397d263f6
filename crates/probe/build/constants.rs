//! Numbers and enums of the kernel halves, as Rust: for `build.rs`, and for its test.

use std::fs;
use std::path::{Path, PathBuf};

/// `$OUT_DIR/constants.rs`: a module per source (`calls_h`), with its numbers and enums that C and Rust share.
pub fn of(folder: &Path) -> String {
    let mut sources: Vec<PathBuf> = fs::read_dir(folder)
        .expect("src/bpf is there")
        .map(|entry| entry.expect("it can be listed").path())
        .collect();
    sources.sort();
    let mut modules = String::new();
    for path in sources {
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !file.ends_with(".bpf.c") && !file.ends_with(".bpf.h") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("sources are text");
        let numbers: String =
            text.lines().flat_map(numbers_in).map(|(name, value)| constant(&name, value)).collect();
        modules
            .push_str(&format!("pub mod {} {{\n{numbers}}}\n", file.replace(".bpf", "").replace('.', "_")));
    }
    modules
}

fn constant(name: &str, value: u64) -> String {
    let kind = if u32::try_from(value).is_ok() { "u32" } else { "u64" };
    format!("    pub const {name}: {kind} = {value};\n")
}

/// `#define NAME 12`, and the members of an enum on one line. Computed, negative or octal values are left out, and so are members counted
/// from them: code that uses such a name does not compile.
fn numbers_in(line: &str) -> Vec<(String, u64)> {
    let line = line.split("/*").next().unwrap_or_default().trim();
    if let Some((name, value)) = line.strip_prefix("#define ").and_then(|rest| rest.split_once(' ')) {
        return number(value.trim()).map(|value| (name.to_owned(), value)).into_iter().collect();
    }
    let Some((head, members)) = line.split_once('{').filter(|_| line.ends_with("};")) else {
        return Vec::new();
    };
    if !head.starts_with("enum") {
        return Vec::new();
    }
    let mut next = 0;
    let member = |member: &str| {
        let (name, value) =
            member.split_once('=').map_or((member, None), |(name, value)| (name, Some(value)));
        let value = value.map_or(Some(next), |value| number(value.trim()))?;
        next = value + 1;
        Some((name.trim().to_owned(), value))
    };
    let members = members.trim_end_matches("};").split(',').filter(|member| !member.trim().is_empty());
    members.map_while(member).collect()
}

fn number(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches("ULL").trim_end_matches('U');
    let is_octal = digits.len() > 1 && digits.starts_with('0');
    digits.parse().ok().filter(|_| !is_octal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(line: &str) -> String {
        numbers_in(line).iter().map(|(name, value)| format!("{name}={value} ")).collect()
    }

    #[test]
    fn numbers_are_taken_as_they_are_and_what_is_computed_is_not() {
        assert_eq!(names("#define ROWS 4096 /* a few */"), "ROWS=4096 ");
        assert_eq!(names("#define LATEST 10000000000ULL"), "LATEST=10000000000 ");
        assert_eq!(names("enum kind { A, B, C = 7, D };"), "A=0 B=1 C=7 D=8 ");
        assert_eq!(names("enum { ONE = 1, TWO = 2 };"), "ONE=1 TWO=2 ");
        for computed in ["#define A (1 << 3)", "#define A 0x10", "#define A 010", "#define A", "int a = 1;"] {
            assert_eq!(names(computed), "", "{computed}");
        }
        assert_eq!(names("enum { A, B = 1 << 4, C };"), "A=0 ");
        assert_eq!(names("enum { A = -1, B };"), "");
        assert_eq!(names("enum e { A = FIRST, B };"), "");
    }

    #[test]
    fn each_source_is_a_module_of_its_own() {
        let all = of(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/bpf")));
        assert!(all.contains("pub mod calls_h {") && all.contains("pub mod calls_c {"));
        assert!(all.contains("    pub const LOCK_MUTEX: u32 = 1;\n"));
    }
}
