//! Functions of programs that have ended before whyslow resolves their names, in six languages: the report must name them with their
//! callers, and their share of the time must match the programs' own clocks. `WHYSLOW_SEED` repeats a run.

mod judge;
mod programs;

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use whyslow::store;
use whyslow_faults::rounds::{Trouble, Verdict, run_judged};
use whyslow_faults::{Draw, Fence, Wrong};

use judge::{Said, judge};
use programs::{Language, Program};

/// The document about a command, the samples that whyslow kept, and the output of the command.
fn look(fence: &Fence, program: &Program, draw: &mut Draw) -> Result<(Said, String), Trouble> {
    let recording = fence.dir().join(format!("{}.why", draw.word(6)));
    let printed = fence.dir().join(format!("{}.out", draw.word(6)));
    let enter: String = fence
        .group(&draw.word(6))?
        .procs_files()
        .iter()
        .map(|file| format!("echo $$ > {}\n", file.display()))
        .collect();
    // The program ends before the window does: whyslow must name functions of a program that is gone.
    let script = format!("{enter}\"$@\" > {} 2>/dev/null\nsleep 0.4", printed.display());
    let mut child = Command::new(whyslow_faults::program!());
    child
        .args(["run", "--json", "-o"])
        .arg(&recording)
        .args(["--", "sh", "-ec", &script, "sh"])
        .args(&program.command);
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut all = String::new();
    child.stdout.take().ok_or("no output")?.read_to_string(&mut all)?;
    child.wait()?;
    let document: Value = all
        .lines()
        .rev()
        .find_map(|line| serde_json::from_str(line).ok())
        .ok_or(Wrong::missed("no document"))?;
    let samples = store::open(&recording)?.tables.samples.unwrap_or_default();
    std::fs::remove_file(&recording)?;
    // Java writes its list of compiled functions to the file that perf reads.
    for sample in samples.iter().filter(|sample| sample.comm == "java") {
        let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", sample.tgid));
    }
    Ok((Said { document, samples }, std::fs::read_to_string(printed)?))
}

fn cell(language: Language) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("names");
    run_judged(&format!("names-{language:?}"), &dir, |draw, _| {
        let fence = Fence::enter()?;
        let program = Program::make(language, &fence, draw)?;
        let (said, printed) = look(&fence, &program, draw)?;
        let Some(own) = program.own(&printed) else {
            return Ok(Verdict::Again(format!("{program} printed {printed:?}")));
        };
        Ok(match judge(&program.expected(own), &said) {
            Ok(()) => Verdict::Passed,
            Err(wrong) => Verdict::Wrong(wrong.told(|why| format!("{program}: {why}"))),
        })
    });
}

macro_rules! languages {
    ($($test:ident $language:ident;)*) => {
        $(#[test]
        fn $test() {
            cell(Language::$language);
        })*
    };
}

languages! {
    root_functions_of_c_are_named C;
    root_functions_of_cpp_are_named Cpp;
    root_functions_of_rust_are_named Rust;
    root_functions_of_go_are_named Go;
    root_functions_of_java_are_named Java;
    root_functions_of_python_are_named Python;
}
