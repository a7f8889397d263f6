//! Scripts that start commands all the time: the report names the script, not the commands; it does not name a script that starts only a
//! few.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use whyslow_faults::report_checks::{self, Verb};
use whyslow_faults::rounds::{self, Trouble, Verdict};
use whyslow_faults::{Draw, Wrong};

/// A script with drawn names, and the commands that it starts. Dropping it ends it and all its children.
struct Agent {
    child: Child,
    script: PathBuf,
    commands: [String; 2],
    _folder: tempfile::TempDir,
}

impl Drop for Agent {
    fn drop(&mut self) {
        // SAFETY: a signal to a group of its own, whose leader has not been waited for.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

fn word(draw: &mut Draw) -> String {
    (0..4)
        .map(|_| {
            format!("{}{}", draw.pick(&["b", "d", "g", "l", "m", "z"]), draw.pick(&["a", "i", "o", "u"]))
        })
        .collect()
}

/// `pause`: time between two rounds of the script, in seconds.
fn agent(draw: &mut Draw, pause: &str) -> Agent {
    let folder = tempfile::tempdir().unwrap();
    let commands = [word(draw), word(draw)].map(|name| {
        symlink("/bin/true", folder.path().join(&name)).unwrap();
        name
    });
    let path = |name: &str| folder.path().join(name).display().to_string();
    let both = format!("{}; {}", path(&commands[0]), path(&commands[1]));
    let look = if draw.one_in(2) { both } else { format!("/bin/sh -c '{both}; :'") };
    let script = folder.path().join(word(draw));
    std::fs::write(&script, format!("#!/bin/sh\nwhile :; do {look}; sleep {pause}; done\n")).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let by_shell = draw.one_in(2);
    let mut command = Command::new(if by_shell { Path::new("/bin/sh") } else { &script });
    let child = command
        .args(by_shell.then_some(&script))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    Agent { child, script, commands, _folder: folder }
}

/// The notes of the exam about a script.
fn notes(of: &Agent, label: &str) -> Result<Vec<String>, Trouble> {
    std::thread::sleep(Duration::from_millis(200));
    let look = crate::look("agents", label, &["exam"])?;
    look.is_sound(Verb::Exam)?;
    let notes = report_checks::list(&look.document, "account.notes")?.iter().filter_map(Value::as_str);
    let script = of.script.display().to_string();
    Ok(notes.filter(|note| note.contains(&script)).map(str::to_owned).collect())
}

/// The report names it once, with the commands that it starts.
fn is_named(agent: &Agent, notes: &[String]) -> Result<(), Wrong> {
    let begin = format!("sh {} (pid {}", agent.script.display(), agent.child.id());
    let what = || format!("{notes:?}, not {begin} with {:?}", agent.commands);
    let [note] = notes else { return Err(Wrong::missed(what())) };
    let names_all = agent.commands.iter().all(|name| note.contains(name.as_str()));
    match note.starts_with(&begin) && note.contains(" children a second (") && names_all {
        true => Ok(()),
        false => Err(Wrong::inexact(what())),
    }
}

fn cell(name: &str, pause: &str, judge: fn(&Agent, &[String]) -> Result<(), Wrong>) {
    rounds::run_judged(&name, &crate::kept_in("agents"), |draw, label| {
        let agent = agent(draw, pause);
        Ok(judge(&agent, &notes(&agent, label)?).map_or_else(Verdict::Wrong, |()| Verdict::Passed))
    });
}

#[test]
fn root_a_script_that_starts_commands_all_the_time_is_named() {
    cell("agent", "0.02", is_named);
}

#[test]
fn root_a_script_that_starts_a_few_commands_is_not() {
    cell("agent-twin", "1", |_, notes| match notes {
        [] => Ok(()),
        _ => Err(Wrong::accused(format!("{notes:?}"))),
    });
}
