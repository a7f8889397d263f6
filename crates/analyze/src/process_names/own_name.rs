//! The name of one process, from its command line.

use whyslow_model::table::{BETWEEN_ARGUMENTS, Task};

use super::Called;
use super::interpreters::{Interpreter, Script};

/// Longer names break lines. The end of a path is more useful than its begin.
const MOST: usize = 72;

/// The kernel cuts names (TASK_COMM_LEN, 16 with the zero byte).
const COMM: usize = 15;

/// The name of a process that has one beside the kernel's.
pub(super) fn of(task: &Task) -> Option<Called> {
    let line = task.cmdline.as_deref().filter(|_| !task.kthread)?;
    let mut words = words(line);
    let first = words.next()?;
    if is_title(first) {
        return title(task, line);
    }
    let base = base(first);
    match Interpreter::called(base) {
        Some(interpreter) => script(task, interpreter, base, words),
        // "puma 6.4.2 (tcp://0.0.0.0:9292) [shop]", a title of ruby: written over the path.
        None if !first.contains('/') && Interpreter::called(&task.comm).is_some() => title(task, line),
        None => None,
    }
}

/// In old recordings, which do not separate arguments, there are blanks between them.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let between = if line.contains(BETWEEN_ARGUMENTS) { BETWEEN_ARGUMENTS } else { ' ' };
    line.split(between).filter(|word| !word.is_empty())
}

/// Command lines are cut at this length (`titles.bpf.h`).
const LINE: usize = 255;

/// The line is an interpreter's with a script: not an interactive shell. Parts that were cut off or hidden may differ.
pub(super) fn runs_script(line: &str) -> bool {
    if line.len() >= LINE || line.contains("***") {
        return false;
    }
    let mut words = words(line);
    let interpreter = words.next().and_then(|first| Interpreter::called(base(first)));
    interpreter.is_some_and(|interpreter| interpreter.script(words).is_some())
}

/// "postgres:", "[celeryd:"
fn is_title(text: &str) -> bool {
    let word = text.split(' ').next().unwrap_or_default();
    let name = word.trim_start_matches('[');
    name.len() > 1 && name.ends_with(':') && !name.starts_with(['-', '/'])
}

/// What a title says while the process rests. For a process that works most of its life such a title is a moment between two tasks.
const RESTS: [&str; 4] = ["idle", "sleeping", "waiting", "ready"];

fn title(task: &Task, line: &str) -> Option<Called> {
    let is_busy = task.exec_ns.saturating_mul(2) > task.lived_ns;
    let is_rest = |word: &str| RESTS.contains(&word.trim_matches(|c: char| !c.is_alphanumeric()));
    let words = line.split([' ', BETWEEN_ARGUMENTS]);
    let words: Vec<&str> = words
        .enumerate()
        .take_while(|(at, word)| *at == 0 || !(is_busy && is_rest(word)))
        .map(|(_, word)| word)
        .collect();
    let name: String = words.join(" ").chars().take(MOST).collect();
    let name = name.trim_end_matches([' ', ':', '(', '[']);
    (!name.is_empty()).then(|| Called { key: without_numbers(name), name: name.to_owned() })
}

/// A process that has given itself another name since it was started is named by that.
fn script<'l>(
    task: &Task,
    interpreter: &Interpreter,
    base: &str,
    words: impl Iterator<Item = &'l str>,
) -> Option<Called> {
    let script = interpreter.script(words)?;
    let own = |file: &str| is_called(&task.comm, self::base(file));
    let is_its_own = match &script {
        Script::File(file) => own(file),
        Script::Code(_) | Script::Named(..) => false,
    };
    if !is_its_own && !is_called(&task.comm, base) && !interpreter.threads.contains(&task.comm.as_str()) {
        return None;
    }
    let name = match script {
        Script::File(file) => format!("{base} {}", end_of(file)),
        Script::Named(option, what) => format!("{base} {option} {}", end_of(what)),
        Script::Code(option) => format!("{base} {option}"),
    };
    Some(Called { key: name.clone(), name })
}

fn is_called(comm: &str, name: &str) -> bool {
    let cut = name.char_indices().take_while(|(at, c)| at + c.len_utf8() <= COMM).count();
    comm == name || (name.len() > COMM && name.chars().take(cut).eq(comm.chars()))
}

/// The last part of a path; a login shell's name begins with "-".
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default().trim_start_matches('-')
}

fn end_of(path: &str) -> String {
    let count = path.chars().count();
    if count <= MOST {
        path.to_owned()
    } else {
        format!("...{}", path.chars().skip(count - MOST).collect::<String>())
    }
}

/// "worker 12 of 10.0.0.7" -> "worker * of *.*.*.*"
pub(super) fn without_numbers(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c.is_ascii_digit() {
            true if out.ends_with('*') => {}
            true => out.push('*'),
            false => out.push(c),
        }
    }
    out
}
