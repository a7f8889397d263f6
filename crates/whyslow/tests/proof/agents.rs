//! Scripts that start commands all the time: the script is named, not what it starts; one that starts a few is not.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use whyslow_faults::Draw;

/// A script of drawn names, with the commands that it starts. Ended with all that it has started.
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

/// `pause`: between two looks, in seconds.
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
    let mut command = if draw.one_in(2) { Command::new(&script) } else { with(&script) };
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0).spawn().unwrap();
    Agent { child, script, commands, _folder: folder }
}

fn with(script: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg(script);
    command
}

/// What the exam says first of a script.
fn notes(of: &Agent) -> Vec<String> {
    std::thread::sleep(Duration::from_millis(200));
    let look = Command::new(whyslow_faults::program!()).args(["--for", "2s", "--json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&look.stdout).expect("stdout is JSON");
    let notes = document["account"]["notes"].as_array().unwrap().iter().filter_map(Value::as_str);
    let script = of.script.display().to_string();
    notes.filter(|note| note.contains(&script)).map(str::to_owned).collect()
}

#[test]
fn root_a_script_that_starts_commands_all_the_time_is_named() {
    let mut draw = Draw::of_run("agents", 0);
    let agent = agent(&mut draw, "0.02");
    let notes = notes(&agent);
    assert_eq!(notes.len(), 1, "{notes:?}");
    let begin = format!("sh {} (pid {}", agent.script.display(), agent.child.id());
    assert!(notes[0].starts_with(&begin) && notes[0].contains(" children a second ("), "{notes:?}");
    assert!(
        agent.commands.iter().all(|name| notes[0].contains(name.as_str())),
        "{notes:?}: {:?}",
        agent.commands
    );
}

#[test]
fn root_a_script_that_starts_a_few_commands_is_not() {
    let mut draw = Draw::of_run("agents", 1);
    let agent = agent(&mut draw, "1");
    assert_eq!(notes(&agent), [""; 0]);
}
